/* A request's slices against one tensor: NumPy's rules for negative, missing and too large bounds, step 1. Pure. */
#ifndef RESOLVE_VIEW_H
#define RESOLVE_VIEW_H

#include "base/error.h"
#include "normalize/load_spec.h"
#include "resolve/artifact.h"
#include "resolve/box.h"

/* What x[start:stop] means for an extent. An empty slice starts at 0, however it was spelled. */
void view_slice(const struct slice *slice, uint64_t extent, uint64_t *start, uint64_t *size);

/* Fills start[] and size[] with `rank` numbers each. INVALID_ARGUMENT naming the tensor unless there is one slice per
 * dimension; of a leading view there may be fewer. */
int view_slices(const struct view_item *item, bool leading, const struct tensor_record *record, uint64_t *start,
                uint64_t *size, struct error *error);

#endif
