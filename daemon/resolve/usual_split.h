/* Which dimension of a tensor tensor-parallel ranks take their parts of, by the usual Hugging Face names and as vLLM splits
 * them. Pure; any thread. */
#ifndef RESOLVE_USUAL_SPLIT_H
#define RESOLVE_USUAL_SPLIT_H

#include <stddef.h>
#include <stdint.h>

enum { USUAL_SPLIT_NONE = -1 };

/* q/k/v/gate/up and the like 0 with their biases, o/down and the like 1 without, embeddings and lm_head 0, all else none; none
 * also where the tensor has no such dimension. */
int64_t usual_split_dimension(const char *name, size_t name_length, size_t n_dimensions);

#endif
