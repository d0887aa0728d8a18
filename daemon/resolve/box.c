#include "resolve/box.h"

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

/* Rows of one transfer are far apart or close together in the file. Close is better, because then fewer transfers meet
 * wherever a reader is; but not at the price of many more transfers. */
enum { WORTH_MORE_RUNS = 8 };

/* The loop of the rows; n_loops: there is none. */
static uint32_t choose_rows(const struct loop_nest *nest, bool in_order)
{
    uint32_t chosen = nest->n_loops;
    uint64_t longest = 0;
    for (uint32_t i = 0; i < nest->n_loops && !in_order; i++)
        if (nest->loops[i].src && nest->loops[i].size > longest)
            longest = nest->loops[i].size;
    for (uint32_t i = 0; i < nest->n_loops; i++) {
        const struct nest_loop *loop = &nest->loops[i];
        if (loop->src && loop->size >= longest / WORTH_MORE_RUNS &&
            (chosen == nest->n_loops || loop->src < nest->loops[chosen].src))
            chosen = i;
    }
    return chosen;
}

static bool lower_nest(struct loop_nest *nest, unsigned from_bits, unsigned to_bits, bool in_order, struct box_runs *runs)
{
    uint64_t row = 1;
    while (join_two(nest))
        continue;
    for (uint32_t i = 0; i < nest->n_loops; i++) /* elements that follow each other on both sides: one loop by now */
        if (nest->loops[i].src == from_bits && nest->loops[i].dst == (int64_t)to_bits) {
            row = nest->loops[i].size;
            drop_loop(nest, i);
            break;
        }
    uint64_t src_bits = row * from_bits, dst_bits = row * to_bits;
    uint64_t odd_bits = src_bits | dst_bits | nest->src | (uint64_t)nest->dst;
    struct nest_loop rows = {1, src_bits, (int64_t)dst_bits};
    uint32_t chosen = choose_rows(nest, in_order);
    if (chosen < nest->n_loops) {
        rows = nest->loops[chosen];
        odd_bits |= rows.src | (uint64_t)rows.dst;
        drop_loop(nest, chosen);
    }
    runs->n_runs = 1;
    runs->n_rows = rows.size;
    runs->row_bytes = src_bits / 8;
    runs->src_offset = nest->src / 8;
    runs->dst_offset = (uint64_t)(nest->dst / 8);
    runs->src_stride = rows.src / 8;
    runs->dst_stride = (uint64_t)(rows.dst / 8);
    runs->n_outer = nest->n_loops;
    for (uint32_t i = 0; i < nest->n_loops; i++) {
        const struct nest_loop loop = {nest->loops[i].size, nest->loops[i].src / 8, nest->loops[i].dst / 8};
        uint32_t at = i;
        for (; at > 0 && runs->outer[at - 1].src > loop.src; at--)
            runs->outer[at] = runs->outer[at - 1];
        runs->outer[at] = loop;
        odd_bits |= nest->loops[i].src | (uint64_t)nest->loops[i].dst;
        runs->n_runs *= loop.size;
    }
    return odd_bits % 8 == 0;
}

bool box_lower_nest(struct loop_nest *nest, unsigned from_bits, unsigned to_bits, struct box_runs *runs)
{
    return lower_nest(nest, from_bits, to_bits, false, runs);
}

bool box_lower(const struct box *box, unsigned element_bits, struct box_runs *runs)
{
    struct loop_nest nest;
    uint64_t src_bits = element_bits, dst_bits = element_bits, dst = 0;
    nest.src = nest.n_loops = 0;
    for (uint32_t i = box->rank; i-- > 0; src_bits *= box->src_shape[i], dst_bits *= box->dst_shape[i]) {
        if (!box->size[i]) {
            runs->n_runs = runs->n_outer = 0;
            return true;
        }
        nest.src += box->src_start[i] * src_bits;
        dst += box->dst_start[i] * dst_bits;
        if (box->size[i] > 1)
            nest.loops[nest.n_loops++] = (struct nest_loop){box->size[i], src_bits, (int64_t)dst_bits};
    }
    nest.dst = (int64_t)dst;
    return lower_nest(&nest, element_bits, element_bits, true, runs);
}

void box_run_offsets(const struct box_runs *runs, uint64_t index, uint64_t *src, uint64_t *dst)
{
    *src = runs->src_offset;
    *dst = runs->dst_offset;
    for (uint32_t i = 0; i < runs->n_outer; i++) {
        *src += index % runs->outer[i].size * runs->outer[i].src;
        *dst += index % runs->outer[i].size * (uint64_t)runs->outer[i].dst;
        index /= runs->outer[i].size;
    }
}
