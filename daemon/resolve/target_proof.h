/* The proof that targets can be written: no two elements share a byte, in whichever regions and by whichever offers they are
 * reached, and nothing of a cover is left out. Exact, by element; elements are not expanded, so that it takes tens of
 * milliseconds for 100,000 targets. Pure; any thread; memory is charged and freed. */
#ifndef RESOLVE_TARGET_PROOF_H
#define RESOLVE_TARGET_PROOF_H

#include "base/error.h"
#include "resolve/mapping.h"
#include "resolve/target.h"

/* What was looked at by then: about a second for a million targets. Targets that need more are UNIMPLEMENTED. */
enum { TARGET_MAX_STEPS = 1 << 23 };

/* Every target, fill and cover has passed target_check(). tensors[i]: whose target list->tensors[i] is. INVALID_ARGUMENT
 * naming the targets and what is wrong, of a cover the box that is left out as NAME[4:5, 0:6]. */
int target_prove(const struct target_list *list, const struct view_tensor *tensors, struct error *error);

#endif
