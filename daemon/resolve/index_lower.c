/* Steps become strides in bits; the rest is loop_nest.c. */
#include "resolve/index_lower.h"

#include "resolve/loop_nest.h"

bool index_lower(const struct index_draft *draft, const struct index_frame *frame, struct box_runs *runs)
{
    struct loop_nest nest = {.n_loops = draft->n_loops};
    uint64_t src = 0, dst = 0;
    for (uint32_t i = 0; i < draft->src_rank; i++)
        src += (draft->src_start[i] - (frame->src_start ? frame->src_start[i] : 0)) * frame->src_stride[i];
    for (uint32_t i = 0; i < frame->dst_rank; i++)
        dst += (draft->dst_start[i] - frame->dst_start[i]) * (uint64_t)frame->dst_stride_bits[i];
    nest.src = src * frame->from_bits;
    nest.dst = (int64_t)dst;
    for (uint32_t i = 0; i < draft->n_loops; i++) {
        const struct index_loop *loop = &draft->loops[i];
        uint64_t dst_stride = loop->dst_step * (uint64_t)frame->dst_stride_bits[loop->dst_dim];
        nest.loops[i] = (struct nest_loop){loop->size, loop->src_step * frame->src_stride[loop->src_dim] * frame->from_bits,
                                           (int64_t)dst_stride};
    }
    return loop_nest_lower(&nest, frame->from_bits, frame->to_bits, runs);
}
