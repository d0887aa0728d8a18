/* From loops to rows; see loop_nest.h. */
#include "resolve/loop_nest.h"

static void drop_loop(struct loop_nest *nest, uint32_t at)
{
    nest->loops[at] = nest->loops[--nest->n_loops];
}

static bool join_two(struct loop_nest *nest)
{
    for (uint32_t a = 0; a < nest->n_loops; a++) {
        for (uint32_t b = 0; b < nest->n_loops; b++) {
            const struct nest_loop *outer = &nest->loops[a], *inner = &nest->loops[b];
            if (a == b || !inner->src || outer->src != inner->src * inner->size ||
                (uint64_t)outer->dst != (uint64_t)inner->dst * inner->size)
                continue;
            nest->loops[b].size *= outer->size;
            drop_loop(nest, a);
            return true;
        }
    }
    return false;
}

/* Elements that follow each other on both sides. All that does is one loop by now. */
static uint64_t take_row(struct loop_nest *nest, unsigned from_bits, unsigned to_bits)
{
    for (uint32_t i = 0; i < nest->n_loops; i++) {
        if (nest->loops[i].src == from_bits && nest->loops[i].dst == (int64_t)to_bits) {
            uint64_t size = nest->loops[i].size;
            drop_loop(nest, i);
            return size;
        }
    }
    return 1;
}

/* Rows of one transfer are far apart or close together in the file. Close is better, because then fewer transfers meet
 * wherever a reader is; but not at the price of many more transfers. */
enum { WORTH_MORE_TRANSFERS = 8 };

static struct nest_loop take_rows(struct loop_nest *nest, uint64_t src_bits, uint64_t dst_bits)
{
    uint32_t chosen = nest->n_loops;
    uint64_t longest = 0;
    for (uint32_t i = 0; i < nest->n_loops; i++) {
        if (nest->loops[i].src && nest->loops[i].size > longest)
            longest = nest->loops[i].size;
    }
    for (uint32_t i = 0; i < nest->n_loops; i++) {
        const struct nest_loop *loop = &nest->loops[i];
        if (loop->src && loop->size >= longest / WORTH_MORE_TRANSFERS &&
            (chosen == nest->n_loops || loop->src < nest->loops[chosen].src))
            chosen = i;
    }
    if (chosen == nest->n_loops)
        return (struct nest_loop){1, src_bits, (int64_t)dst_bits};
    struct nest_loop rows = nest->loops[chosen];
    drop_loop(nest, chosen);
    return rows;
}

/* By source stride, the smallest first, so that runs come in file order. */
static void sort_loops(struct loop_nest *nest)
{
    for (uint32_t i = 1; i < nest->n_loops; i++) {
        struct nest_loop loop = nest->loops[i];
        uint32_t at = i;
        for (; at > 0 && nest->loops[at - 1].src > loop.src; at--)
            nest->loops[at] = nest->loops[at - 1];
        nest->loops[at] = loop;
    }
}

bool loop_nest_lower(struct loop_nest *nest, unsigned from_bits, unsigned to_bits, struct box_runs *runs)
{
    while (join_two(nest))
        continue;
    uint64_t row = take_row(nest, from_bits, to_bits), src_bits = row * from_bits, dst_bits = row * to_bits;
    struct nest_loop rows = take_rows(nest, src_bits, dst_bits);
    uint64_t odd_bits = src_bits | dst_bits | nest->src | (uint64_t)nest->dst;
    if (rows.size > 1)
        odd_bits |= rows.src | (uint64_t)rows.dst;
    sort_loops(nest);
    runs->n_runs = 1;
    runs->n_rows = rows.size;
    runs->row_bytes = src_bits / 8;
    runs->src_offset = nest->src / 8;
    runs->dst_offset = (uint64_t)(nest->dst / 8);
    runs->src_stride = rows.src / 8;
    runs->dst_stride = (uint64_t)(rows.dst / 8);
    runs->n_levels = 2;
    for (uint32_t i = 0; i < nest->n_loops; i++) {
        const struct nest_loop *loop = &nest->loops[i];
        odd_bits |= loop->src | (uint64_t)loop->dst;
        runs->levels[runs->n_levels++] = (struct box_level){loop->size, loop->src / 8, (uint64_t)(loop->dst / 8)};
        runs->n_runs *= loop->size;
    }
    return odd_bits % 8 == 0;
}
