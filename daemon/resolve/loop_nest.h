/* A loop nest with a stride on each side, in any order and the destination's of any sign, lowered to equal rows: what boxes
 * with strides at their destination and parts of index maps have in common. Pure; any thread. */
#ifndef RESOLVE_LOOP_NEST_H
#define RESOLVE_LOOP_NEST_H

#include <stdbool.h>
#include <stdint.h>

#include "resolve/box.h"

struct nest_loop { /* strides in bits, so that elements may be smaller than a byte */
    uint64_t size;
    uint64_t src; /* 0 = the same elements again */
    int64_t dst;
};

struct loop_nest {
    uint64_t src; /* of the first element, in bits */
    int64_t dst;
    uint32_t n_loops;
    struct nest_loop loops[BOX_MAX_RANK]; /* size > 1; the order says nothing */
};

/* Runs as box_lower() makes them, in bytes of each side. Loops that count on where another one ends are joined, elements that
 * follow each other on both sides become the row, one loop more its repetition, and what is left are runs, in file order.
 * `levels` are filled in from 2 on; destinations may go backwards, so their strides and offsets wrap around. The nest is
 * used up. False when elements do not begin and end on byte boundaries. */
bool loop_nest_lower(struct loop_nest *nest, unsigned from_bits, unsigned to_bits, struct box_runs *runs);

#endif
