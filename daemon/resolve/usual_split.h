/* Which dimension of a tensor tensor-parallel ranks take their parts of, by the usual Hugging Face names and as vLLM splits
 * them. Pure; any thread. */
#ifndef RESOLVE_USUAL_SPLIT_H
#define RESOLVE_USUAL_SPLIT_H

#include <stddef.h>
#include <stdint.h>

enum { USUAL_SPLIT_NONE = -1 };

enum usual_unit { /* what a rank gets a whole number of */
                  USUAL_ROWS,
                  USUAL_HEADS,
                  USUAL_KV_HEADS,
                  USUAL_FUSED,  /* several matrices in one tensor: vLLM gives a rank a part of each, which is no range */
                  USUAL_UNCLEAR /* models differ in which dimension is which under this name */
};

struct usual_split {
    int64_t dimension;
    enum usual_unit unit;
};

/* q/k/v/gate/up and the like 0 with their biases, o/down and the like 1 without, embeddings and lm_head 0, all else none. None
 * also for a weight of more than two dimensions and a bias of more than one, which is of experts in one tensor or of a
 * convolution, and where the tensor has no such dimension. */
struct usual_split usual_split_find(const char *name, size_t name_length, size_t n_dimensions);

#endif
