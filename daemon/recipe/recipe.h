/* A recipe: the steps that turn one artifact's tensors into a variant's. One validator for the command line, the wire, C and
 * Python: what a step may say is a table (recipe.c), which reads it from a document and writes it as canonical JSON. What
 * depends on tensors is checked where a step is applied (daemon/variant).
 *
 * Texts and lists live in the arena and may point into the document. Pure; const once built; any thread. */
#ifndef RECIPE_RECIPE_H
#define RECIPE_RECIPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/dtype.h"
#include "base/error.h"
#include "recipe/pattern.h"
#include "recipe/recipe_node.h"

enum { RECIPE_MAX_BYTES = 1 << 20, RECIPE_MAX_STEPS = 512 }; /* of canonical JSON */

enum recipe_step_kind {
    STEP_SELECT,
    STEP_DROP,
    STEP_ONLY,
    STEP_RENAME,
    STEP_ALIAS,
    STEP_SLICE,
    STEP_TRANSPOSE,
    STEP_RESHAPE,
    STEP_CONCAT,
    STEP_SPLIT,
    STEP_STACK,
    STEP_UNSTACK,
    STEP_PERMUTE_ROPE,
    STEP_REPLICATE_EXPERTS,
    STEP_CAST,
    STEP_DEQUANTIZE,
    STEP_EXPECT,
    STEP_COUNT
};

struct recipe_patterns {
    struct pattern *list;
    size_t n;
};

struct recipe_numbers {
    int64_t *list;
    size_t n;
};

struct recipe_slices {
    struct recipe_slice {
        int64_t start, stop; /* as NumPy means them; INT64_MAX = open end */
    } * list;
    size_t n;
};

struct recipe_expectations {
    struct recipe_expected {
        const char *name;
        size_t name_length;
        enum dtype dtype;
        struct recipe_numbers shape;
    } * list;
    size_t n;
};

struct recipe_step {
    enum recipe_step_kind kind;
    uint32_t number; /* from 1 */
    uint32_t line;   /* 0 = unknown */
    bool optional, allow_missing, allow_extra;
    struct recipe_patterns tensors;  /* select, drop, only; `tensors` of others */
    struct recipe_patterns from, to; /* rename: from[i] becomes to[i]; alias: to[i] is a name for from[i] */
    struct recipe_numbers numbers;   /* dims, shape, sizes, block */
    struct recipe_slices slices;
    struct recipe_expectations expected;
    int64_t dim;
    bool even, to_halves;
    bool has_shuffle, has_only;
    int64_t count; /* heads, experts */
    int64_t inter_dim, shuffle_seed;
    enum dtype dtype;
    uint32_t only;        /* a bit for each dtype */
    struct pattern scale; /* "{tensor}" stands for the tensor's name */
};

struct recipe {
    struct recipe_step *steps;
    size_t n_steps;
};

/* A whole recipe, {"version": 1, "steps": [..]}. `name` is what messages call it. -1: INVALID_ARGUMENT with the number of the
 * step, and "NAME:LINE" where lines are known; RESOURCE_EXHAUSTED when the arena is full. */
int recipe_build(const struct recipe_node *document, const char *name, struct arena *arena, struct recipe *recipe,
                 struct error *error);
/* Of JSON from the wire, of at most RECIPE_MAX_BYTES; just the list of steps will do. */
int recipe_parse(const char *json, size_t length, struct arena *arena, struct recipe *recipe, struct error *error);

/* Steps of the same meaning give the same text: what goes over the wire, and what a variant is known by. The caller frees.
 * NULL: RESOURCE_EXHAUSTED, it has more than RECIPE_MAX_BYTES. */
char *recipe_json(const struct recipe *recipe, struct error *error);

/* Puts "step 3 (cast): " before a message, behind "NAME:LINE: " where both are known (name may be NULL), and notes the number
 * of the step for programs. Returns -1. */
int recipe_error_prefix(const struct recipe_step *step, const char *name, struct error *error);

/* What a list of dimensions says of a dimension, which may count from the end. False: there is no such dimension. */
bool recipe_dim(int64_t dim, uint32_t rank, uint32_t *found);

#endif
