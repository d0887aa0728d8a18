/* The proof that targets can be written: no two elements share a byte, in whichever regions and by whichever offers they are
 * reached, and nothing of a cover is left out. Exact, by element. Pure; any thread; memory is charged and freed. */
#ifndef RESOLVE_TARGET_PROOF_H
#define RESOLVE_TARGET_PROOF_H

#include "base/error.h"
#include "resolve/mapping.h"
#include "resolve/target.h"

/* Bounds of one proof, about a second: rows and words of bitmaps that were looked at, and bits of one bitmap (32 MiB). What needs
 * more is UNIMPLEMENTED. */
enum { TARGET_MAX_STEPS = 1 << 27, TARGET_MAX_BITS = 1 << 28 };

/* Every target, fill and cover has passed target_check(). tensors[i]: whose target list->tensors[i] is. INVALID_ARGUMENT
 * naming the targets and what is wrong, of a cover the box that is left out as NAME[4:5, 0:6]. */
int target_prove(const struct target_list *list, const struct view_tensor *tensors, struct error *error);

#endif
