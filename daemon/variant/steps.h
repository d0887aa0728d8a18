/* One function for each kind of step: makes the next set of tensors (tensor_set.h). -1: INVALID_ARGUMENT where the step does
 * not fit the tensors, naming one; UNIMPLEMENTED; RESOURCE_EXHAUSTED. */
#ifndef VARIANT_STEPS_H
#define VARIANT_STEPS_H

#include "variant/tensor_set.h"

int step_select(struct tensor_set *set); /* and drop, only */
int step_rename(struct tensor_set *set);
int step_alias(struct tensor_set *set);
int step_slice(struct tensor_set *set);
int step_transpose(struct tensor_set *set);
int step_reshape(struct tensor_set *set);
int step_concat(struct tensor_set *set);
int step_split(struct tensor_set *set);
int step_stack(struct tensor_set *set);
int step_unstack(struct tensor_set *set);
int step_permute_rope(struct tensor_set *set);
int step_replicate_experts(struct tensor_set *set);
int step_cast(struct tensor_set *set);
int step_dequantize(struct tensor_set *set);
int step_expect(struct tensor_set *set);

#endif
