/* Arithmetic on equal rows at a fixed stride: what transfers, plan steps and clips have in common. Pure.
 *
 *     offset        offset+stride
 *     |bytes|.......|bytes|.......|bytes|        count = 3 */
#ifndef PLAN_ROWS_H
#define PLAN_ROWS_H

#include <stdint.h>

#include "plan/plan.h"
#include "resolve/mapping.h"

struct rows {
    uint64_t offset, bytes, count, stride;
};

static inline struct rows rows_of_transfer(const struct transfer *run)
{
    return (struct rows){run->src_offset, run->row_bytes, run->n_rows, run->n_rows > 1 ? run->src_stride : run->row_bytes};
}

static inline struct rows rows_of_step(const struct plan_step *step)
{
    return (struct rows){step->offset, step->bytes, step->count, step->count > 1 ? step->stride : step->bytes};
}

static inline uint64_t rows_end(const struct rows *rows)
{
    return rows->offset + (rows->count - 1) * rows->stride + rows->bytes;
}

/* How many of the rows' bytes lie before position `at`. */
static inline uint64_t rows_before(const struct rows *rows, uint64_t at)
{
    if (at <= rows->offset)
        return 0;
    uint64_t distance = at - rows->offset;
    if (rows->count == 1)
        return distance < rows->bytes ? distance : rows->bytes;
    uint64_t row = distance / rows->stride;
    if (row >= rows->count)
        return rows->count * rows->bytes;
    uint64_t inside = distance - row * rows->stride;
    return row * rows->bytes + (inside < rows->bytes ? inside : rows->bytes);
}

static inline uint64_t rows_within(const struct rows *rows, uint64_t lo, uint64_t hi)
{
    return rows_before(rows, hi) - rows_before(rows, lo);
}

/* The first byte of the rows at or after `at`; UINT64_MAX when there is none. */
static inline uint64_t rows_next(const struct rows *rows, uint64_t at)
{
    if (at <= rows->offset)
        return rows->offset;
    if (at >= rows_end(rows))
        return UINT64_MAX;
    uint64_t row = (at - rows->offset) / rows->stride;
    uint64_t start = rows->offset + row * rows->stride;
    return at < start + rows->bytes ? at : start + rows->stride;
}

#endif
