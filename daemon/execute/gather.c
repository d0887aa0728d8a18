/* The staging buffer is an image of a piece of the file: offset o lies at o - start, so that reads widened to the device's
 * alignment need no book-keeping. The tail of a file that is no whole device block comes through the page cache. */
#include "execute/gather.h"

#include "base/clock.h"
#include "execute/arrivals.h"
#include "execute/extent.h"
#include "execute/place.h"

enum { PAGE_BYTES = 4096 }; /* a smaller gap the kernel or the device would read anyway */

static int read_range(struct item *item, const struct staging_buffer *buffer, struct range range, struct source_read read,
                      struct error *error)
{
    if (range.lo >= range.hi)
        return 0;
    struct iovec iov = {buffer->memory + (range.lo - buffer->start), range_bytes(range)};
    read.offset = range.lo;
    read.iov = &iov;
    read.n_iov = 1;
    return item_read(item, &read, range_bytes(range), error);
}

int gather_read(struct item *item, struct window *window, struct staging_buffer *buffer, struct error *error)
{
    const struct source *source = item->parts[0].source;
    struct extents *requests = &window->requests;
    uint64_t alignment = window->is_direct ? source->caps.direct_offset_alignment : 1;
    uint64_t file_bytes = source->files[item->parts[0].file].size_bytes, whole = file_bytes & ~(alignment - 1);
    extent_plan_requests(requests, &window->extents, alignment, item->is_remote ? 0 : PAGE_BYTES);
    struct source_read head = {.direct = window->is_direct}, tail = {0};
    head.arrival = tail.arrival = arrivals_begin(item, &window->clips, requests);
    for (size_t i = 0; i < requests->n; i++) {
        struct range *request = &requests->list[i].range;
        request->hi = request->hi < file_bytes ? request->hi : file_bytes;
        uint64_t middle = request->hi < whole ? request->hi : whole;
        middle = middle > request->lo ? middle : request->lo;
        if (read_range(item, buffer, (struct range){request->lo, middle}, head, error) ||
            read_range(item, buffer, (struct range){middle, request->hi}, tail, error))
            return -1;
    }
    return 0;
}

/* The first request that ends behind the range's beginning, when it holds all of it; `next` moves along with rising ranges.
 */
static bool is_read(const struct extents *requests, size_t *next, uint64_t lo, uint64_t hi)
{
    while (*next < requests->n && requests->list[*next].range.hi <= lo)
        (*next)++;
    return *next < requests->n && requests->list[*next].range.lo <= lo && hi <= requests->list[*next].range.hi;
}

static void place_clip(struct part *part, const struct clip *clip, const struct extents *requests, size_t *next,
                       const struct staging_buffer *buffer)
{
    const unsigned char *src = buffer->memory + (clip->src.offset - buffer->start);
    struct device_rows rows = {clip->src.bytes, clip->src.count, clip->src.stride, clip->dst_stride};
    if (is_read(requests, next, clip->src.offset, rows_end(&clip->src))) {
        place_rows(part, clip->dst_offset, src, &rows, clip->src.offset);
        return;
    }
    rows.count = 1;
    size_t next_row = *next; /* rows of other clips may lie between these */
    for (uint64_t i = 0; i < clip->src.count; i++) {
        uint64_t skip = i * clip->src.stride, lo = clip->src.offset + skip;
        if (is_read(requests, &next_row, lo, lo + clip->src.bytes))
            place_rows(part, clip->dst_offset + i * clip->dst_stride, src + skip, &rows, lo);
    }
}

void gather_place(struct item *item, const struct clips *clips, const struct extents *requests,
                  struct staging_buffer *buffer)
{
    const size_t prepare_ns = offsetof(struct run_report, prepare_ns);
    uint64_t started_ns = clock_now_ns(), prepared_ns = item_sum_reports(item, prepare_ns), last_offset = 0;
    size_t next = 0;
    for (size_t i = 0; i < clips->n; i++) {
        const struct clip *clip = &clips->list[i];
        if (clip->src.offset < last_offset) /* the next part's clips begin */
            next = 0;
        last_offset = clip->src.offset;
        place_clip(&item->parts[clip->part], clip, requests, &next, buffer);
    }
    flight_begin(&buffer->flight, item);
    item->copy_ns += clock_now_ns() - started_ns - (item_sum_reports(item, prepare_ns) - prepared_ns);
}
