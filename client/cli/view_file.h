/* A view as JSON: {"tensors": [{"name": "w", "slices": [null, [0, 8]]}, ...], "align": 64, "placement": "packed"} -> the
 * library's struct tc_view.
 * Pure; any thread; memory is the arena's. Order is kept; unknown and repeated keys are refused; names are never globs. */
#ifndef CLI_VIEW_FILE_H
#define CLI_VIEW_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "base/error.h"
#include "tensorcast.h"

struct view_file {
    struct tc_view view;
    /* Some item says "slices": []: right for a 0-d tensor and wrong for any other, but as n_slices = 0 it means "whole".
     * Such items have slices != NULL; whoever knows the artifact must check them. */
    bool has_empty_slices;
    bool has_placement;
    enum tc_placement placement;
};

/* Fails with INVALID_ARGUMENT, telling the byte and, inside an item, the tensor. */
int view_file_parse(const char *bytes, size_t count, struct arena *arena, struct view_file *file, struct error *error);

#endif
