/* Applying a recipe: an artifact and steps become an artifact of its own, whose tensors are derived (resolve/derivation.h).
 * Nothing is read and nothing is copied. Any thread; charged to the account of the thread. */
#ifndef VARIANT_VARIANT_H
#define VARIANT_VARIANT_H

#include "base/cancel.h"
#include "base/error.h"
#include "resolve/artifact.h"

struct header_cache;

/* `artifact` becomes its variant, in place of the reference that the caller had, which is gone also when this fails. json:
 * what the request says, {"version": 1, "steps": [..]} or just the steps. cache may be NULL: else what was made for the same
 * artifact and the same steps before is used again. INVALID_ARGUMENT names the step and mostly a tensor. CANCELLED within a
 * second of cancel, which may be NULL. */
int variant_apply(struct artifact **artifact, const char *json, size_t length, struct header_cache *cache,
                  const struct cancel *cancel, struct error *error);

#endif
