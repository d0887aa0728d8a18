/* The staging buffer is an image of a piece of the file: offset o lies at o - start, so that reads widened to the device's
 * alignment need no book-keeping. The tail of a file that is no whole device block comes through the page cache. */
#include "execute/gather.h"

#include "base/clock.h"
#include "execute/item.h"
#include "execute/clip.h"
#include "execute/elements.h"
#include "execute/extent.h"
#include "execute/in_place.h"
#include "execute/place.h"

enum { PAGE_BYTES = 4096 }; /* a smaller gap the kernel or the device would read anyway */

static int read_range(struct item *item, struct window *window, const struct staging_buffer *buffer, struct range range,
                      struct source_read read, struct error *error)
{
    if (range.lo >= range.hi)
        return 0;
    read.offset = range.lo;
    read.n_iov = (window->way == WAY_WANTED ? in_place_wanted_buffers : in_place_buffers)(window, buffer, range);
    read.iov = window->in_place.buffers;
    return item_read(item, &read, range_bytes(range), error);
}

int gather_read(struct item *item, struct window *window, struct staging_buffer *buffer, struct error *error)
{
    const struct source *source = item->parts[0].source;
    struct extents *requests = &window->requests;
    bool is_direct = window->way == WAY_DIRECT || window->way == WAY_IN_PLACE;
    uint64_t alignment = is_direct ? source->caps.direct_offset_alignment : 1;
    uint64_t file_bytes = source->files[item->parts[0].file].size_bytes, whole = file_bytes & ~(alignment - 1);
    extent_plan_requests(requests, &window->extents, alignment, item->is_remote ? 0 : PAGE_BYTES);
    struct source_read head = {.direct = is_direct}, tail = {0};
    head.arrival = tail.arrival = item_begin_arrivals(item, &window->clips, requests);
    window->in_place.n = 0;
    if (requests->n && requests->list[requests->n - 1].range.hi > file_bytes)
        requests->list[requests->n - 1].range.hi = file_bytes;
    if (window->way == WAY_IN_PLACE)
        in_place_find(item, window);
    for (size_t i = 0; i < requests->n; i++) {
        const struct range *request = &requests->list[i].range;
        uint64_t middle = request->hi < whole ? request->hi : whole;
        middle = middle > request->lo ? middle : request->lo;
        if (read_range(item, window, buffer, (struct range){request->lo, middle}, head, error) ||
            read_range(item, window, buffer, (struct range){middle, request->hi}, tail, error))
            return -1;
    }
    return elements_read_torn(item, window, error);
}

struct cursor {             /* moves along with rising offsets */
    size_t request, landed; /* the first of each that ends behind the offset */
};

/* One request has all of the range. */
static bool is_read(const struct extents *requests, struct cursor *next, uint64_t lo, uint64_t hi)
{
    while (next->request < requests->n && requests->list[next->request].range.hi <= lo)
        next->request++;
    return next->request < requests->n && requests->list[next->request].range.lo <= lo &&
           hi <= requests->list[next->request].range.hi;
}

static void place_whole(const struct elements *elements, const struct clip *clip)
{
    const struct staging_buffer *buffer = elements->buffer;
    const struct device_rows rows = {clip->src.bytes, clip->src.count, clip->src.stride, (uint64_t)clip->dst_stride};
    if (clip->operation)
        elements_convert(elements, clip);
    else if (elements_goes_backwards(elements, clip))
        elements_turn_rows(elements, clip);
    else
        place_rows(&elements->item->parts[clip->part], clip->dst_offset, buffer->memory + (clip->src.offset - buffer->start),
                   &rows, clip->src.offset);
}

static uint64_t find_end(const struct clip *clip)
{
    return rows_end(&clip->src) - clip->torn_bytes;
}

/* Some of it may have landed in place. */
static bool may_have_landed(const struct window *window, const struct clip *clip, struct cursor *next)
{
    const struct in_place *in_place = &window->in_place;
    while (next->landed < in_place->n && in_place->list[next->landed].range.hi <= clip->src.offset)
        next->landed++;
    for (size_t i = next->landed; i < in_place->n && in_place->list[i].range.lo < rows_end(&clip->src); i++)
        if (in_place->list[i].part == clip->part)
            return true;
    return false;
}

/* What of one row did not land in place by itself. */
static void place_rest(const struct elements *elements, const struct clip *row, struct cursor *next)
{
    uint64_t lo = row->src.offset, hi = lo + row->src.bytes;
    for (uint64_t at = lo; at < hi;) {
        struct range rest = in_place_rest(elements->window, (struct range){at, hi}, &next->landed);
        struct clip piece = *row;
        piece.src = (struct rows){rest.lo, range_bytes(rest), 1, range_bytes(rest)};
        piece.dst_offset = row->dst_offset + (rest.lo - lo);
        if (rest.lo < rest.hi && is_read(&elements->window->requests, next, rest.lo, rest.hi))
            place_whole(elements, &piece);
        at = rest.hi;
    }
}

static void place_clip(const struct elements *elements, const struct clip *clip, struct cursor *next)
{
    const struct extents *requests = &elements->window->requests;
    bool has_landed = may_have_landed(elements->window, clip, next);
    if (!has_landed && is_read(requests, next, clip->src.offset, find_end(clip))) {
        place_whole(elements, clip);
        return;
    }
    struct clip row = *clip;
    struct cursor of_row = *next; /* rows of other clips may lie between these */
    row.src.count = 1;
    for (uint64_t i = 0; i < clip->src.count; i++) {
        row.src.offset = clip->src.offset + i * clip->src.stride;
        row.dst_offset = clip->dst_offset + i * (uint64_t)clip->dst_stride;
        if (has_landed)
            place_rest(elements, &row, &of_row);
        else if (is_read(requests, &of_row, row.src.offset, find_end(&row)))
            place_whole(elements, &row);
    }
}

void gather_place(struct item *item, const struct window *window, struct staging_buffer *buffer)
{
    const size_t prepare_ns = offsetof(struct run_report, prepare_ns);
    const struct elements elements = {.item = item, .window = window, .buffer = buffer};
    const struct clips *clips = &window->clips;
    uint64_t started_ns = clock_now_ns(), prepared_ns = item_sum_reports(item, prepare_ns), last_offset = 0;
    struct cursor next = {0};
    in_place_count(item, window);
    for (size_t i = 0, n; i < clips->n; i += n) {
        const struct clip *clip = &clips->list[i];
        if (clip->src.offset < last_offset) /* the next part's clips begin */
            next = (struct cursor){0};
        last_offset = clip->src.offset;
        n = elements_find_matrix(&elements, clip, clips->n - i);
        if (n > 1 && is_read(&window->requests, &next, clip->src.offset, find_end(&clip[n - 1]))) {
            elements_place_matrix(&elements, clip, n);
        } else {
            place_clip(&elements, clip, &next);
            n = 1;
        }
    }
    flight_begin(&buffer->flight, item);
    item->copy_ns += clock_now_ns() - started_ns - (item_sum_reports(item, prepare_ns) - prepared_ns);
}
