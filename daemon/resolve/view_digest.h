/* The name of a view: equal exactly when the same tensors are cut the same way into the same places. */
#ifndef RESOLVE_VIEW_DIGEST_H
#define RESOLVE_VIEW_DIGEST_H

#include "resolve/mapping.h"

/* starts[i]: where the box of mapping->tensors[i] begins, one number per dimension. Built from what slices mean, never from
 * how they were written. With targets (NULL = none) also from where everything goes: never that of a view without. */
void view_digest(const struct mapping *mapping, const uint64_t *const *starts, const struct target_list *targets,
                 char hex[DIGEST_HEX_CHARS + 1]);

#endif
