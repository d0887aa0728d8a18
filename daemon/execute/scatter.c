/* One preadv(2) per request, up to IOV_MAX buffers each: destinations where bytes are wanted, a trash buffer for the gaps.
 * From a remote source one request, whatever the number of buffers; it throws away by itself what has no address.
 *
 *     request  |aaaa....bbbbbb..cc|        a, b, c: pieces of (maybe) different transfers, sorted by source offset
 *     iovecs    a   trash b   tr c
 *
 * A piece that overlaps earlier ones is copied from their destinations after the read. Pieces outside every request are not
 * placed, and so not counted: the run's final account notices. */
#include "execute/scatter.h"

#include <limits.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "execute/item.h"
#include "execute/clip.h"
#include "execute/extent.h"
#include "execute/place.h"
#include "device/transport.h"

enum { PAGE_BYTES = 4096 }; /* a smaller gap the kernel would read anyway */

struct read_list { /* iovecs for one contiguous range of the file */
    struct scatter *scatter;
    struct item *item;
    struct iovec trash;
    bool is_cached;
    struct arrival *arrival;
    uint64_t start, at; /* the range so far */
    int n_iov;
    struct error *error;
};

void scatter_fini(struct scatter *scatter)
{
    free(scatter->pieces.list);
    free(scatter->primaries.list);
    free(scatter->copies);
    free(scatter->iov);
    *scatter = (struct scatter){0};
}

static int flush_iovecs(struct read_list *list)
{
    struct source_read read = {.offset = list->start,
                               .iov = list->scatter->iov,
                               .n_iov = list->n_iov,
                               .is_cached = list->is_cached,
                               .trash = list->trash.iov_base,
                               .arrival = list->arrival};
    if (list->n_iov == 0)
        return 0;
    int result = item_read(list->item, &read, list->at - list->start, list->error);
    list->start = list->at;
    list->n_iov = 0;
    return result;
}

/* A system call takes so many buffers, a request takes any number. */
static int add_iovec(struct read_list *list, void *base, uint64_t bytes)
{
    struct scatter *scatter = list->scatter;
    if ((size_t)list->n_iov == scatter->iov_room) {
        if (!list->item->is_remote && flush_iovecs(list))
            return -1;
        if (list->item->is_remote)
            scatter->iov = memory_grow(scatter->iov, scatter->iov_room *= 2, sizeof *scatter->iov);
    }
    scatter->iov[list->n_iov++] = (struct iovec){base, bytes};
    list->at += bytes;
    return 0;
}

static int add_gap(struct read_list *list, uint64_t end)
{
    while (list->at < end) {
        uint64_t bytes = end - list->at;
        bool is_long = list->trash.iov_base && bytes > list->trash.iov_len;
        if (add_iovec(list, list->trash.iov_base, is_long ? list->trash.iov_len : bytes))
            return -1;
    }
    return 0;
}

static unsigned char *address_of(const struct item *item, const struct piece *piece)
{
    return (unsigned char *)item->parts[piece->part].run->destination->address + piece->dst_offset;
}

static void add_piece(struct pieces *pieces, struct piece piece)
{
    ARRAY_RESERVE(pieces->list, pieces->n, pieces->room);
    pieces->list[pieces->n++] = piece;
}

static int compare_pieces(const void *a, const void *b)
{
    const struct piece *left = a, *right = b;
    if (left->src != right->src)
        return left->src < right->src ? -1 : 1;
    return left->part < right->part ? -1 : left->part > right->part;
}

static void collect_pieces(struct pieces *pieces, struct item *item, const struct clips *clips)
{
    pieces->n = 0;
    for (size_t i = 0; i < clips->n; i++) {
        const struct clip *clip = &clips->list[i];
        struct transfer_extent extent = clip_extent(clip, clip->src.bytes);
        if (!place_prepare(&item->parts[clip->part], extent.lo, extent.hi - extent.lo))
            continue;
        for (uint64_t row = 0; row < clip->src.count; row++)
            add_piece(pieces, (struct piece){clip->src.offset + row * clip->src.stride, clip->src.bytes,
                                             clip->dst_offset + row * (uint64_t)clip->dst_stride, clip->part});
    }
    window_sort(pieces->list, pieces->n, sizeof *pieces->list, compare_pieces);
}

/* Notes copies for what earlier pieces have of this one, up to where the range is read so far. Those lie back to back. */
static void copy_overlap(struct scatter *scatter, const struct item *item, struct piece *piece, uint64_t read_to)
{
    const struct pieces *primaries = &scatter->primaries;
    size_t i = primaries->n;
    while (i > 0 && primaries->list[i - 1].src + primaries->list[i - 1].bytes > piece->src)
        i--;
    for (; i < primaries->n && piece->bytes > 0 && piece->src < read_to; i++) {
        const struct piece *primary = &primaries->list[i];
        uint64_t skip = piece->src - primary->src, bytes = primary->bytes - skip;
        bytes = bytes < piece->bytes ? bytes : piece->bytes;
        ARRAY_RESERVE(scatter->copies, scatter->n_copies, scatter->copies_room);
        scatter->copies[scatter->n_copies++] =
            (struct copy){piece->dst_offset, bytes, address_of(item, primary) + skip, piece->part};
        *piece = (struct piece){piece->src + bytes, piece->bytes - bytes, piece->dst_offset + bytes, piece->part};
    }
}

static int read_piece(struct read_list *list, struct piece piece)
{
    if (piece.src < list->at)
        copy_overlap(list->scatter, list->item, &piece, list->at);
    if (piece.bytes == 0)
        return 0;
    add_piece(&list->scatter->primaries, piece);
    if (add_gap(list, piece.src))
        return -1;
    struct iovec *last = list->n_iov ? &list->scatter->iov[list->n_iov - 1] : NULL;
    unsigned char *address = address_of(list->item, &piece);
    if (!last || (unsigned char *)last->iov_base + last->iov_len != address)
        return add_iovec(list, address, piece.bytes);
    last->iov_len += piece.bytes;
    list->at += piece.bytes;
    return 0;
}

static void account_and_copy(const struct scatter *scatter, struct item *item)
{
    for (size_t i = 0; i < scatter->primaries.n; i++) {
        struct part *part = &item->parts[scatter->primaries.list[i].part];
        part->placed_bytes += scatter->primaries.list[i].bytes;
        part->report.direct_bytes += scatter->primaries.list[i].bytes;
    }
    uint64_t started_ns = clock_now_ns();
    for (size_t i = 0; i < scatter->n_copies; i++) {
        const struct copy *copy = &scatter->copies[i];
        const struct device_rows row = {copy->bytes, 1, copy->bytes, copy->bytes};
        place_rows(&item->parts[copy->part], copy->dst_offset, copy->src, &row, TRANSPORT_UNKNOWN);
    }
    if (scatter->n_copies)
        item->copy_ns += clock_now_ns() - started_ns;
}

static int scatter_request(struct read_list list, struct range request, size_t *next)
{
    const struct pieces *pieces = &list.scatter->pieces;
    list.start = list.at = request.lo;
    list.scatter->primaries.n = list.scatter->n_copies = 0;
    while (*next < pieces->n && pieces->list[*next].src < request.lo)
        (*next)++;
    for (; *next < pieces->n && pieces->list[*next].src < request.hi; (*next)++) {
        struct piece piece = pieces->list[*next];
        if (piece.src + piece.bytes <= request.hi && read_piece(&list, piece))
            return -1;
    }
    if (add_gap(&list, request.hi) || flush_iovecs(&list))
        return -1;
    account_and_copy(list.scatter, list.item);
    return 0;
}

/* Pages that were just cleared are still in the caches, where the kernel's copy finds them: stores around the caches would
 * write them to memory twice. */
static bool had_pages(const struct item *item, const struct clips *clips)
{
    for (size_t i = 0; i < clips->n; i++) {
        const struct clip *clip = &clips->list[i];
        if (clip_extent(clip, clip->src.bytes).hi > item->parts[clip->part].run->destination->backed_bytes)
            return false;
    }
    return true;
}

int scatter_window(struct scatter *scatter, struct item *item, struct window *window, struct iovec trash,
                   struct error *error)
{
    size_t next = 0;
    if (!scatter->iov)
        scatter->iov = memory_alloc_array(scatter->iov_room = IOV_MAX, sizeof *scatter->iov);
    extent_plan_requests(&window->requests, &window->extents, 1, item->is_remote ? 0 : PAGE_BYTES);
    collect_pieces(&scatter->pieces, item, &window->clips);
    const struct read_list list = {.scatter = scatter,
                                   .item = item,
                                   .trash = trash,
                                   .is_cached = window->is_hot && had_pages(item, &window->clips),
                                   .arrival = item_begin_arrivals(item, &window->clips, &window->requests),
                                   .error = error};
    for (size_t i = 0; i < window->requests.n; i++)
        if (scatter_request(list, window->requests.list[i].range, &next))
            return -1;
    return 0;
}
