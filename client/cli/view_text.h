/* 'NAME[2:5, :, -3:]' -> name and bounds, as NumPy spells them. Pure; any thread; memory is the arena's.
 * The name is everything before the last '[', so names may hold brackets. One part per dimension, step 1. */
#ifndef CLI_VIEW_TEXT_H
#define CLI_VIEW_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "catalog.h"
#include "resolve/tp_part.h"
#include "tensorcast.h"

struct slice_text {
    const char *name;
    size_t n_slices; /* 1 .. TC_MAX_RANK */
    const struct tc_slice *slices;
};

/* Fails with INVALID_ARGUMENT, naming the tensor where there is a name. */
int slice_text_parse(const char *text, struct arena *arena, struct slice_text *slice, struct error *error);

/* The tensor-parallel shorthand: which part of a tensor a rank takes.
 *
 * With rules of the user's, the first whose glob matches decides and a tensor that none matches is replicated. Without,
 * the usual Hugging Face names are split as vLLM splits them (resolve/tp_part.h). Pure; any thread. */
struct tp_rule { /* 'GLOB=DIM' */
    const char *glob;
    bool replicate;
    int64_t dimension; /* negative = from the last, as in NumPy */
};

struct tp_split {
    int64_t size, rank; /* 0 <= rank < size */
    const struct tp_rule *rules;
    size_t n_rules;
};

/* GLOB=DIM, DIM a number or "replicate"; the glob ends at the last '='. */
int tp_rule_parse(const char *text, struct arena *arena, struct tp_rule *rule, struct error *error);

/* This rank's slices of one tensor, one per dimension; NULL = the whole tensor. The group is the split's, with what the usual
 * names need to know. INVALID_ARGUMENT naming the tensor: a rule's dimension does not exist, or see resolve/tp_part.h. */
int tp_rules_apply(const struct tp_split *split, const struct tp_group *group, const struct catalog_tensor *tensor,
                   struct arena *arena, const struct tc_slice **slices, struct error *error);

/* The dimension that the rules, or without any the usual names, split; -1 = none. One that the tensor has not is
 * INVALID_ARGUMENT, or `lenient`ly none. */
int tp_rules_dimension(const struct tp_split *split, const struct catalog_tensor *tensor, bool lenient, int64_t *dimension,
                       struct error *error);

/* A view as JSON: {"tensors": [{"name": "w", "slices": [null, [0, 8]]}, ...], "align": 64, "placement": "packed"} -> the
 * library's struct tc_view.
 * Pure; any thread; memory is the arena's. Order is kept; unknown and repeated keys are refused; names are never globs. */
struct view_file {
    struct tc_view view;
    /* Some item says "slices": []: right for a 0-d tensor and wrong for any other, but as n_slices = 0 it means "whole".
     * Such items have slices != NULL; the caller checks them against the artifact. */
    bool has_empty_slices;
    bool has_placement;
    enum tc_placement placement;
};

/* Fails with INVALID_ARGUMENT, telling the byte and, inside an item, the tensor. */
int view_file_parse(const char *bytes, size_t count, struct arena *arena, struct view_file *file, struct error *error);

#endif
