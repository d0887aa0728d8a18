/* The tensors of a variant between two steps, and what the steps have in common: finding tensors by pattern, new tensors
 * behind old ones, errors that name a tensor.
 *
 * A step reads `tensors` and makes the next set by set_keep() and set_add(), then calls set_next(). Names, shapes and maps
 * live in the derivation's arena, the arrays of tensors only as long as they are needed. Used on one thread. */
#ifndef VARIANT_TENSOR_SET_H
#define VARIANT_TENSOR_SET_H

#include "base/cancel.h"
#include "base/map.h"
#include "recipe/recipe.h"
#include "resolve/derivation.h"

/* Of one variant; and how often patterns are held against names, which takes some seconds. */
enum { SET_MAX_TENSORS = 1 << 22, SET_MAX_MATCHES = 1 << 27 };
#define SET_MAX_MATCH_STEPS ((uint64_t)1 << 30)     /* some 20 s, where names and patterns are made for that */
#define SET_MAX_ONE_MATCH_STEPS ((uint64_t)1 << 24) /* some 0.3 s: of one name and one pattern */

struct set_tensor {
    const char *name;
    size_t name_length;
    struct index_array array; /* maps NULL while is_stored */
    enum dtype dtype;
    bool is_stored;
    uint32_t source; /* one of the stored tensors that it is made of */
};

struct permutations { /* of the last step that shuffled */
    const uint32_t *list;
    uint32_t n, count;
    int64_t seed;
};

struct tensor_set {
    const struct artifact *artifact; /* where they are stored */
    const struct recipe_step *step;  /* that is being applied */
    struct set_tensor *tensors, *next;
    size_t n, n_next, capacity, next_capacity;
    size_t n_matches;           /* of SET_MAX_MATCHES */
    uint64_t match_steps_left;  /* of SET_MAX_MATCH_STEPS */
    size_t pattern;             /* that set_each() has found for the tensor at hand ... */
    struct pattern_match match; /* ... and what its wildcards stand for */
    struct index_work work;
    struct arena *arena;
    const struct cancel *cancel; /* asked for each pattern that is held against a name */
    struct error *error;
    struct element_chain *chains;
    size_t n_chains, chain_capacity;
    struct scaling *scalings;
    size_t n_scalings, scaling_capacity;
    struct permutations permutations;
};

/* All tensors of the artifact, each as it is stored. */
int set_init(struct tensor_set *set, const struct artifact *artifact, struct arena *arena, const struct cancel *cancel,
             struct error *error);
void set_fini(struct tensor_set *set);

/* The next set: one of this one as it is, or a new one, which takes the name. NULL: no memory, or too many. */
struct set_tensor *set_add(struct tensor_set *set, const struct set_tensor *tensor);
/* The next set becomes this one. INVALID_ARGUMENT when a name occurs twice. */
int set_next(struct tensor_set *set);

/* pattern_match() of a tensor's name. */
int set_match(struct tensor_set *set, const struct pattern *pattern, const struct set_tensor *tensor,
              struct pattern_match *match);

/* Texts in the arena; NULL = no memory. */
char *set_text(struct tensor_set *set, const char *text, size_t length);
const char *set_fill(struct tensor_set *set, const struct pattern *template, const struct pattern_match *match,
                     size_t *length);

/* The first of the patterns that matches, and what for; n = none. seen[i] is set for each that does. Counts every look. */
struct set_patterns {
    const struct recipe_patterns *patterns;
    struct map exact; /* those without wildcards */
    size_t *wild;     /* indexes of the others */
    size_t n_wild;
    bool *seen;
};
int set_patterns_init(struct tensor_set *set, const struct recipe_patterns *patterns, struct set_patterns *found);
void set_patterns_fini(struct set_patterns *found);
/* -1 when too much was matched. */
int set_find(struct tensor_set *set, struct set_patterns *found, const struct set_tensor *tensor, size_t *pattern,
             struct pattern_match *match);
/* INVALID_ARGUMENT for a pattern that matched nothing, unless the step is optional. */
int set_check_seen(struct tensor_set *set, const struct set_patterns *found);

/* Calls `change` for every tensor that the patterns match; the others stay. `change` adds what comes of it. Then the next set. */
int set_each(struct tensor_set *set, const struct recipe_patterns *patterns,
             int (*change)(struct tensor_set *set, const struct set_tensor *tensor));

/* The maps of a tensor, made now if it is as it is stored. */
int set_maps(struct tensor_set *set, const struct set_tensor *tensor, struct index_array *array);
/* Adds it with another array. */
int set_add_array(struct tensor_set *set, const struct set_tensor *tensor, const struct index_array *array);

/* "tensor NAME: ..." with INVALID_ARGUMENT and a note of the tensor. Returns -1. */
int set_fail(const struct tensor_set *set, const struct set_tensor *tensor, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int set_fail_name(const struct tensor_set *set, const char *name, size_t length, const char *complaint);
/* "(2, 3)" */
enum { SET_SHAPE_CHARS = 160 };
const char *set_show_shape(uint32_t rank, const uint64_t *shape, char out[SET_SHAPE_CHARS]);
/* In decimal; returns its length. */
enum { SET_NUMBER_CHARS = 24 };
size_t set_number(uint64_t number, char out[SET_NUMBER_CHARS]);
/* False where a tensor of that shape and type would have more bits than can be counted, or no whole number of bytes. */
bool set_bytes(uint32_t rank, const uint64_t *shape, enum dtype dtype, uint64_t *bytes);
uint64_t set_elements(const struct index_array *array);

#endif
