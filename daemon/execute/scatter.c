/* One preadv(2) per extent, up to IOV_MAX buffers each: destinations where bytes are wanted, a trash buffer for the gaps.
 * From a remote source one request, whatever the number of buffers; it throws away by itself what has no address.
 *
 *     extent   |aaaa....bbbbbb..cc|        a, b, c: pieces of (maybe) different runs, sorted by source offset
 *     iovecs    a   trash b   tr c
 *
 * A piece that overlaps earlier ones is copied from their destinations after the read. Pieces outside every extent are not
 * placed, and so not counted: the run's final account notices. */
#include "execute/scatter.h"

#include <limits.h>
#include <stdlib.h>
#include <sys/uio.h>

#include "base/clock.h"
#include "base/memory.h"
#include "execute/arrivals.h"
#include "execute/clip.h"
#include "execute/extent.h"
#include "execute/place.h"
#include "execute/sums.h"

struct read_list { /* iovecs for one contiguous range of the file */
    struct worker *worker;
    uint64_t start, at; /* the range so far */
    int n_iov;
    struct arrival *arrival;
    struct error *error;
};

static int flush(struct read_list *list)
{
    struct worker *worker = list->worker;
    const struct part *part = &worker->parts[0];
    if (list->n_iov == 0)
        return 0;
    uint64_t started_ns = clock_now_ns();
    struct source_read read = {.file = part->file,
                               .offset = list->start,
                               .iov = worker->iov,
                               .n_iov = list->n_iov,
                               .cancel = worker->is_remote ? &worker->cancel : NULL,
                               .uid = part->run->options.uid,
                               .checksum = sums_kind(worker),
                               .arrival = list->arrival};
    int result = source_read(part->source, &read, list->error);
    worker->read_ns += clock_now_ns() - started_ns;
    if (result == 0)
        sums_add(worker, &read, list->at - list->start);
    list->start = list->at;
    list->n_iov = 0;
    return result;
}

/* A system call takes so many buffers, a request takes any number. */
static int make_room(struct read_list *list)
{
    struct worker *worker = list->worker;
    if ((size_t)list->n_iov < worker->iov_room)
        return 0;
    if (!worker->is_remote)
        return flush(list);
    worker->iov_room *= 2;
    worker->iov = memory_grow(worker->iov, worker->iov_room, sizeof *worker->iov);
    return 0;
}

static int add_buffer(struct read_list *list, void *base, uint64_t bytes)
{
    struct iovec *last = list->n_iov ? &list->worker->iov[list->n_iov - 1] : NULL;
    if (last && (char *)last->iov_base + last->iov_len == base) {
        last->iov_len += bytes;
    } else {
        if (make_room(list))
            return -1;
        list->worker->iov[list->n_iov++] = (struct iovec){base, bytes};
    }
    list->at += bytes;
    return 0;
}

static int add_gap(struct read_list *list, uint64_t end)
{
    struct worker *worker = list->worker;
    while (list->at < end) {
        uint64_t bytes = end - list->at, room = worker->is_remote ? UINT64_MAX : worker->engine->staging.buffer_bytes;
        if (make_room(list))
            return -1;
        bytes = bytes < room ? bytes : room;
        worker->iov[list->n_iov++] = (struct iovec){worker->is_remote ? NULL : worker->buffer->memory, bytes};
        list->at += bytes;
    }
    return 0;
}

static void add_pieces(struct worker *worker, const struct clip *clip)
{
    struct part *part = &worker->parts[clip->part];
    uint64_t bytes = clip->src.bytes;
    unsigned char *dst = (unsigned char *)part->run->options.segment->host_address + clip->dst_offset;
    if (!place_prepare(part, clip->dst_offset, clip_bytes(clip)))
        return;
    for (uint64_t row = 0; row < clip->src.count; row++) {
        ARRAY_RESERVE(worker->pieces, worker->n_pieces, worker->pieces_room);
        worker->pieces[worker->n_pieces++] =
            (struct piece){clip->src.offset + row * clip->src.stride, bytes, dst + row * bytes, clip->part};
    }
}

static int compare_pieces(const void *a, const void *b)
{
    const struct piece *left = a, *right = b;
    if (left->src != right->src)
        return left->src < right->src ? -1 : 1;
    return left->part < right->part ? -1 : left->part > right->part;
}

static void collect_pieces(struct worker *worker)
{
    worker->n_pieces = 0;
    for (size_t i = 0; i < worker->n_clips; i++)
        add_pieces(worker, &worker->clips[i]);
    if (worker->n_parts > 1 && worker->n_pieces > 1)
        qsort(worker->pieces, worker->n_pieces, sizeof *worker->pieces, compare_pieces);
}

/* Notes copies for what earlier pieces have of this one, up to where the range is read so far. Those lie back to back. */
static void copy_overlap(struct worker *worker, struct piece *piece, uint64_t read_to)
{
    size_t i = worker->n_primaries;
    while (i > 0 && worker->primaries[i - 1].src + worker->primaries[i - 1].bytes > piece->src)
        i--;
    for (; i < worker->n_primaries && piece->bytes > 0 && piece->src < read_to; i++) {
        const struct piece *primary = &worker->primaries[i];
        uint64_t skip = piece->src - primary->src, bytes = primary->bytes - skip;
        bytes = bytes < piece->bytes ? bytes : piece->bytes;
        ARRAY_RESERVE(worker->copies, worker->n_copies, worker->copies_room);
        worker->copies[worker->n_copies++] = (struct copy){piece->dst, primary->dst + skip, bytes, piece->part};
        *piece = (struct piece){piece->src + bytes, piece->bytes - bytes, piece->dst + bytes, piece->part};
    }
}

static int add_piece(struct read_list *list, struct piece piece)
{
    struct worker *worker = list->worker;
    if (piece.src < list->at)
        copy_overlap(worker, &piece, list->at);
    if (piece.bytes == 0)
        return 0;
    ARRAY_RESERVE(worker->primaries, worker->n_primaries, worker->primaries_room);
    worker->primaries[worker->n_primaries++] = piece;
    if (add_gap(list, piece.src))
        return -1;
    return add_buffer(list, piece.dst, piece.bytes);
}

static void account(struct worker *worker)
{
    for (size_t i = 0; i < worker->n_primaries; i++) {
        struct part *part = &worker->parts[worker->primaries[i].part];
        part->placed_bytes += worker->primaries[i].bytes;
        part->report.direct_bytes += worker->primaries[i].bytes;
    }
    uint64_t started_ns = clock_now_ns();
    for (size_t i = 0; i < worker->n_copies; i++) {
        const struct copy *copy = &worker->copies[i];
        place_copy(&worker->parts[copy->part], copy->dst, copy->src, copy->bytes);
    }
    if (worker->n_copies)
        worker->copy_ns += clock_now_ns() - started_ns;
}

static int scatter_request(struct read_list list, const struct extent *request, size_t *next)
{
    struct worker *worker = list.worker;
    list.start = list.at = request->lo;
    worker->n_primaries = worker->n_copies = 0;
    while (*next < worker->n_pieces && worker->pieces[*next].src < request->lo)
        (*next)++;
    for (; *next < worker->n_pieces && worker->pieces[*next].src < request->hi; (*next)++) {
        const struct piece *piece = &worker->pieces[*next];
        if (piece->src + piece->bytes <= request->hi && add_piece(&list, *piece))
            return -1;
    }
    if (add_gap(&list, request->hi) || flush(&list))
        return -1;
    account(worker);
    return 0;
}

int scatter_window(struct worker *worker, struct error *error)
{
    size_t next = 0;
    if (!worker->iov) {
        worker->iov_room = IOV_MAX;
        worker->iov = memory_alloc_array(worker->iov_room, sizeof *worker->iov);
    }
    extent_requests(worker, 1);
    collect_pieces(worker);
    const struct read_list list = {.worker = worker, .arrival = arrivals_begin(worker), .error = error};
    for (size_t i = 0; i < worker->n_requests; i++)
        if (scatter_request(list, &worker->requests[i], &next))
            return -1;
    return 0;
}
