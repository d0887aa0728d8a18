/* A part of an index map, lowered to equal rows with a stride on each side. Pure; any thread. */
#ifndef RESOLVE_INDEX_LOWER_H
#define RESOLVE_INDEX_LOWER_H

#include "resolve/box.h"
#include "resolve/index_map.h"

/* Where indexes are in memory: the strides of each side's dimensions, in stored elements and in bits of the destination, and
 * what lies at offset 0. */
struct index_frame {
    uint32_t dst_rank;
    const uint64_t *dst_start;
    const int64_t *dst_stride_bits;
    const uint64_t *src_start; /* NULL = zeros */
    const uint64_t *src_stride;
    unsigned from_bits, to_bits; /* of one element, stored and derived */
};

/* Runs as loop_nest_lower() makes them. The part has no tables. False when elements do not begin and end on byte
 * boundaries. */
bool index_lower(const struct index_draft *draft, const struct index_frame *frame, struct box_runs *runs);

#endif
