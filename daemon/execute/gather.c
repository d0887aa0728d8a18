/* The staging buffer is an image of a piece of the file: offset o lies at o - start, so that reads widened to the device's
 * alignment need no book-keeping. The tail of a file that is no whole device block comes through the page cache. */
#include "execute/gather.h"

#include "base/clock.h"
#include "execute/arrivals.h"
#include "execute/extent.h"
#include "execute/place.h"
#include "execute/sums.h"

static int read_range(struct worker *worker, uint64_t lo, uint64_t hi, bool direct, struct arrival *arrival,
                      struct error *error)
{
    const struct part *part = &worker->parts[0];
    if (lo >= hi)
        return 0;
    struct iovec iov = {worker->buffer->memory + (lo - worker->buffer->start), hi - lo};
    struct source_read read = {.file = part->file,
                               .offset = lo,
                               .iov = &iov,
                               .n_iov = 1,
                               .direct = direct,
                               .cancel = worker->is_remote ? &worker->cancel : NULL,
                               .uid = part->run->options.uid,
                               .checksum = sums_kind(worker),
                               .arrival = arrival};
    if (source_read(part->source, &read, error))
        return -1;
    sums_add(worker, &read, hi - lo);
    return 0;
}

int gather_read(struct worker *worker, bool direct, struct error *error)
{
    const struct source *source = worker->parts[0].source;
    uint64_t alignment = direct ? source->caps.direct_offset_alignment : 1;
    uint64_t file_bytes = source->files[worker->parts[0].file].size_bytes, whole = file_bytes & ~(alignment - 1);
    uint64_t started_ns = clock_now_ns();
    int result = 0;
    extent_requests(worker, alignment);
    struct arrival *arrival = arrivals_begin(worker);
    for (size_t i = 0; i < worker->n_requests && result == 0; i++) {
        struct extent *request = &worker->requests[i];
        request->hi = request->hi < file_bytes ? request->hi : file_bytes;
        uint64_t middle = request->hi < whole ? request->hi : whole;
        middle = middle > request->lo ? middle : request->lo;
        result = read_range(worker, request->lo, middle, direct, arrival, error) ||
                         read_range(worker, middle, request->hi, false, arrival, error)
                     ? -1
                     : 0;
    }
    worker->read_ns += clock_now_ns() - started_ns;
    return result;
}

/* The first request that ends behind lo, when it holds [lo, hi); `next` moves along with rising lo. */
static bool is_read(const struct worker *worker, size_t *next, uint64_t lo, uint64_t hi)
{
    while (*next < worker->n_requests && worker->requests[*next].hi <= lo)
        (*next)++;
    return *next < worker->n_requests && worker->requests[*next].lo <= lo && hi <= worker->requests[*next].hi;
}

static void place_clip(struct worker *worker, const struct clip *clip, size_t *next)
{
    struct part *part = &worker->parts[clip->part];
    const unsigned char *memory = worker->buffer->memory;
    uint64_t start = worker->buffer->start;
    if (is_read(worker, next, clip->src.offset, rows_end(&clip->src))) {
        place_rows(part, clip->dst_offset, memory + (clip->src.offset - start), clip->src);
        return;
    }
    struct rows row = {.bytes = clip->src.bytes, .count = 1, .stride = clip->src.bytes};
    size_t next_row = *next; /* rows of other clips may lie between these */
    for (uint64_t i = 0; i < clip->src.count; i++) {
        uint64_t lo = clip->src.offset + i * clip->src.stride;
        row.offset = lo;
        if (is_read(worker, &next_row, lo, lo + clip->src.bytes))
            place_rows(part, clip->dst_offset + i * clip->src.bytes, memory + (lo - start), row);
    }
}

static uint64_t sum_prepare_ns(const struct worker *worker)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < worker->n_parts; i++)
        sum += worker->parts[i].report.prepare_ns;
    return sum;
}

void gather_place(struct worker *worker)
{
    uint64_t started_ns = clock_now_ns(), prepared_ns = sum_prepare_ns(worker), last_offset = 0;
    size_t next = 0;
    for (size_t i = 0; i < worker->n_clips; i++) {
        if (worker->clips[i].src.offset < last_offset) /* the next part's clips begin */
            next = 0;
        last_offset = worker->clips[i].src.offset;
        place_clip(worker, &worker->clips[i], &next);
    }
    flight_begin(&worker->buffer->flight, worker);
    worker->copy_ns += clock_now_ns() - started_ns - (sum_prepare_ns(worker) - prepared_ns);
}
