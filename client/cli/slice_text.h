/* 'NAME[2:5, :, -3:]' -> name and bounds, as NumPy spells them. Pure; any thread; memory is the arena's.
 * The name is everything before the last '[', so names may hold brackets. One part per dimension, step 1. */
#ifndef CLI_SLICE_TEXT_H
#define CLI_SLICE_TEXT_H

#include <stddef.h>

#include "base/arena.h"
#include "base/error.h"
#include "tensorcast.h"

struct slice_text {
    const char *name;
    size_t n_slices; /* 1 .. TC_MAX_RANK */
    const struct tc_slice *slices;
};

/* Fails with INVALID_ARGUMENT, naming the tensor where there is a name. */
int slice_text_parse(const char *text, struct arena *arena, struct slice_text *slice, struct error *error);

#endif
