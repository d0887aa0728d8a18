/* From the loops of a map to rows: steps become strides in elements, loops that count on where another one ends are joined,
 * the innermost become the row, one more its repetition, and what is left are runs. */
#include "resolve/index_lower.h"

struct flat_loop {
    uint64_t size, src, dst; /* strides in elements */
};

struct flat_loops {
    uint32_t n;
    struct flat_loop list[INDEX_MAX_LOOPS];
    uint64_t src, dst; /* of the first element */
};

static void flatten(const struct index_draft *draft, const struct index_frame *frame, struct flat_loops *loops)
{
    loops->n = draft->n_loops;
    loops->src = loops->dst = 0;
    for (uint32_t i = 0; i < draft->src_rank; i++)
        loops->src += (draft->src_start[i] - (frame->src_start ? frame->src_start[i] : 0)) * frame->src_stride[i];
    for (uint32_t i = 0; i < frame->dst_rank; i++)
        loops->dst += (draft->dst_start[i] - frame->dst_start[i]) * frame->dst_stride[i];
    for (uint32_t i = 0; i < draft->n_loops; i++) {
        const struct index_loop *loop = &draft->loops[i];
        loops->list[i] = (struct flat_loop){loop->size, loop->src_step * frame->src_stride[loop->src_dim],
                                            loop->dst_step * frame->dst_stride[loop->dst_dim]};
    }
}

static void drop_loop(struct flat_loops *loops, uint32_t at)
{
    loops->list[at] = loops->list[--loops->n];
}

static bool join_two(struct flat_loops *loops)
{
    for (uint32_t a = 0; a < loops->n; a++) {
        for (uint32_t b = 0; b < loops->n; b++) {
            const struct flat_loop *outer = &loops->list[a], *inner = &loops->list[b];
            if (a == b || !inner->src || outer->src != inner->src * inner->size || outer->dst != inner->dst * inner->size)
                continue;
            loops->list[b].size *= outer->size;
            drop_loop(loops, a);
            return true;
        }
    }
    return false;
}

/* Elements that follow each other on both sides. All that does is one loop by now. */
static uint64_t take_row(struct flat_loops *loops)
{
    for (uint32_t i = 0; i < loops->n; i++) {
        if (loops->list[i].src == 1 && loops->list[i].dst == 1) {
            uint64_t size = loops->list[i].size;
            drop_loop(loops, i);
            return size;
        }
    }
    return 1;
}

/* Rows of one transfer are far apart or close together in the file. Close is better, because then fewer transfers meet
 * wherever a reader is; but not at the price of many more transfers. */
enum { WORTH_MORE_TRANSFERS = 8 };

static struct flat_loop take_rows(struct flat_loops *loops, uint64_t row)
{
    uint32_t chosen = loops->n;
    uint64_t longest = 0;
    for (uint32_t i = 0; i < loops->n; i++) {
        if (loops->list[i].src && loops->list[i].size > longest)
            longest = loops->list[i].size;
    }
    for (uint32_t i = 0; i < loops->n; i++) {
        const struct flat_loop *loop = &loops->list[i];
        if (loop->src && loop->size >= longest / WORTH_MORE_TRANSFERS &&
            (chosen == loops->n || loop->src < loops->list[chosen].src))
            chosen = i;
    }
    if (chosen == loops->n)
        return (struct flat_loop){1, row, row};
    struct flat_loop rows = loops->list[chosen];
    drop_loop(loops, chosen);
    return rows;
}

/* By source stride, the smallest first, so that runs come in file order. */
static void sort_loops(struct flat_loops *loops)
{
    for (uint32_t i = 1; i < loops->n; i++) {
        struct flat_loop loop = loops->list[i];
        uint32_t at = i;
        for (; at > 0 && loops->list[at - 1].src > loop.src; at--)
            loops->list[at] = loops->list[at - 1];
        loops->list[at] = loop;
    }
}

bool index_lower(const struct index_draft *draft, const struct index_frame *frame, struct box_runs *runs)
{
    struct flat_loops loops;
    flatten(draft, frame, &loops);
    while (join_two(&loops))
        continue;
    uint64_t from_bits = frame->from_bits, to_bits = frame->to_bits, row = take_row(&loops);
    struct flat_loop rows = take_rows(&loops, row);
    uint64_t odd_bits = row * from_bits | loops.src * from_bits | row * to_bits | loops.dst * to_bits;
    if (rows.size > 1)
        odd_bits |= rows.src * from_bits | rows.dst * to_bits;
    sort_loops(&loops);
    runs->n_runs = 1;
    runs->n_rows = rows.size;
    runs->row_bytes = row * from_bits / 8;
    runs->src_offset = loops.src * from_bits / 8;
    runs->dst_offset = loops.dst * to_bits / 8;
    runs->src_stride = rows.src * from_bits / 8;
    runs->dst_stride = rows.dst * to_bits / 8;
    runs->n_levels = 2;
    for (uint32_t i = 0; i < loops.n; i++) {
        struct flat_loop *loop = &loops.list[i];
        odd_bits |= loop->src * from_bits | loop->dst * to_bits;
        runs->levels[runs->n_levels++] = (struct box_level){loop->size, loop->src * from_bits / 8, loop->dst * to_bits / 8};
        runs->n_runs *= loop->size;
    }
    return odd_bits % 8 == 0;
}
