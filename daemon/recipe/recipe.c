/* Steps as data: a row per step, a row per argument, a reader and a writer per type of argument. */
#include "recipe/recipe.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "base/text.h"

/* --- what steps there are ------------------------------------------------------------------------------------------- */

enum argument_type {
    ARGUMENT_PATTERNS, /* a list of texts */
    ARGUMENT_PATTERN,  /* one of them */
    ARGUMENT_NUMBERS,
    ARGUMENT_NUMBER,
    ARGUMENT_SEED, /* a number; null = none */
    ARGUMENT_SLICES,
    ARGUMENT_DTYPE,
    ARGUMENT_DTYPES,
    ARGUMENT_TRUE, /* only that */
    ARGUMENT_WAY,  /* of rotary pairs */
    ARGUMENT_TEXT,
};

struct argument_row {
    const char *name;
    enum argument_type type;
    size_t offset; /* in struct recipe_step */
    bool required;
};

enum step_form { FORM_PATTERNS, FORM_PAIRS, FORM_ARGUMENTS, FORM_EXPECTATIONS };

struct step_row {
    const char *name;
    enum step_form form;
    const struct argument_row *arguments; /* ends with an empty name */
};

#define AT(member) offsetof(struct recipe_step, member)
#define TENSORS                                                                                                             \
    {                                                                                                                       \
        "tensors", ARGUMENT_PATTERNS, AT(tensors), true                                                                     \
    }
#define END                                                                                                                 \
    {                                                                                                                       \
        NULL, ARGUMENT_TEXT, 0, false                                                                                       \
    }
static const struct argument_row slice_arguments[] = {TENSORS, {"slices", ARGUMENT_SLICES, AT(slices), true}, END};
static const struct argument_row transpose_arguments[] = {TENSORS, {"dims", ARGUMENT_NUMBERS, AT(numbers), true}, END};
static const struct argument_row reshape_arguments[] = {TENSORS, {"shape", ARGUMENT_NUMBERS, AT(numbers), true}, END};
static const struct argument_row concat_arguments[] = {{"from", ARGUMENT_PATTERNS, AT(from), true},
                                                       {"to", ARGUMENT_PATTERN, AT(to), true},
                                                       {"dim", ARGUMENT_NUMBER, AT(dim), true},
                                                       END};
static const struct argument_row split_arguments[] = {
    {"from", ARGUMENT_PATTERN, AT(from), true},      {"to", ARGUMENT_PATTERNS, AT(to), true},
    {"sizes", ARGUMENT_NUMBERS, AT(numbers), false}, {"even", ARGUMENT_TRUE, AT(even), false},
    {"dim", ARGUMENT_NUMBER, AT(dim), true},         END};
static const struct argument_row stack_arguments[] = {{"from", ARGUMENT_PATTERN, AT(from), true},
                                                      {"to", ARGUMENT_PATTERN, AT(to), true},
                                                      {"dim", ARGUMENT_NUMBER, AT(dim), true},
                                                      END};
static const struct argument_row rope_arguments[] = {
    TENSORS, {"heads", ARGUMENT_NUMBER, AT(count), true}, {"to", ARGUMENT_WAY, AT(to_halves), true}, END};
static const struct argument_row replicate_arguments[] = {TENSORS,
                                                          {"experts", ARGUMENT_NUMBER, AT(count), true},
                                                          {"inter_dim", ARGUMENT_NUMBER, AT(inter_dim), true},
                                                          {"shuffle_seed", ARGUMENT_SEED, AT(shuffle_seed), false},
                                                          END};
static const struct argument_row cast_arguments[] = {
    TENSORS, {"dtype", ARGUMENT_DTYPE, AT(dtype), true}, {"only", ARGUMENT_DTYPES, AT(only), false}, END};
static const struct argument_row dequantize_arguments[] = {TENSORS,
                                                           {"scale", ARGUMENT_TEXT, AT(scale), true},
                                                           {"block", ARGUMENT_NUMBERS, AT(numbers), true},
                                                           {"dtype", ARGUMENT_DTYPE, AT(dtype), true},
                                                           END};

static const struct step_row step_table[STEP_COUNT] = {
    [STEP_SELECT] = {"select", FORM_PATTERNS, NULL},
    [STEP_DROP] = {"drop", FORM_PATTERNS, NULL},
    [STEP_ONLY] = {"only", FORM_PATTERNS, NULL},
    [STEP_RENAME] = {"rename", FORM_PAIRS, NULL},
    [STEP_ALIAS] = {"alias", FORM_PAIRS, NULL},
    [STEP_SLICE] = {"slice", FORM_ARGUMENTS, slice_arguments},
    [STEP_TRANSPOSE] = {"transpose", FORM_ARGUMENTS, transpose_arguments},
    [STEP_RESHAPE] = {"reshape", FORM_ARGUMENTS, reshape_arguments},
    [STEP_CONCAT] = {"concat", FORM_ARGUMENTS, concat_arguments},
    [STEP_SPLIT] = {"split", FORM_ARGUMENTS, split_arguments},
    [STEP_STACK] = {"stack", FORM_ARGUMENTS, stack_arguments},
    [STEP_UNSTACK] = {"unstack", FORM_ARGUMENTS, stack_arguments},
    [STEP_PERMUTE_ROPE] = {"permute_rope", FORM_ARGUMENTS, rope_arguments},
    [STEP_REPLICATE_EXPERTS] = {"replicate_experts", FORM_ARGUMENTS, replicate_arguments},
    [STEP_CAST] = {"cast", FORM_ARGUMENTS, cast_arguments},
    [STEP_DEQUANTIZE] = {"dequantize", FORM_ARGUMENTS, dequantize_arguments},
    [STEP_EXPECT] = {"expect", FORM_EXPECTATIONS, NULL},
};

static const struct { /* beside the name of a step */
    const char *name;
    size_t offset;
    int only_step; /* -1 = any */
} flags[] = {{"optional", AT(optional), -1},
             {"allow_missing", AT(allow_missing), STEP_EXPECT},
             {"allow_extra", AT(allow_extra), STEP_EXPECT}};
enum { N_FLAGS = sizeof flags / sizeof flags[0] };

/* --- reading -------------------------------------------------------------------------------------------------------- */

struct reading { /* of one step */
    struct arena *arena;
    struct recipe_step *step;
    const char *argument; /* that is being read; NULL = the step itself */
    struct error *error;
};

static int complain(const struct reading *reading, const char *complaint)
{
    return fail(reading->error, ERROR_INVALID_ARGUMENT, "BAD_RECIPE", "%s", complaint);
}

static int wrong_value(const struct reading *reading, const char *expected, const struct recipe_node *node)
{
    char shown[RECIPE_NODE_CHARS];
    const char *argument = reading->argument;
    return fail(reading->error, ERROR_INVALID_ARGUMENT, "BAD_RECIPE", "%s%sexpected %s, not %s", argument ? argument : "",
                argument ? ": " : "", expected, recipe_node_show(node, shown));
}

static void *take_array(const struct reading *reading, size_t n, size_t size)
{
    return arena_try_array(reading->arena, n, size, reading->error);
}

static int take_pattern(const struct reading *reading, const struct recipe_node *node, struct pattern *pattern)
{
    if (node->kind != NODE_TEXT || !node->length)
        return wrong_value(reading, "a name or pattern (quote it)", node);
    if (!pattern_init(pattern, node->text, node->length))
        return fail(reading->error, ERROR_INVALID_ARGUMENT, "BAD_RECIPE", "pattern %s has more than %d wildcards",
                    text_show_bytes(node->text, node->length), PATTERN_MAX_WILDCARDS);
    return 0;
}

static int take_patterns(const struct reading *reading, const struct recipe_node *node, struct recipe_patterns *patterns)
{
    if (node->kind != NODE_LIST || !node->n_items)
        return wrong_value(reading, "a list of names or patterns", node);
    patterns->list = take_array(reading, node->n_items, sizeof *patterns->list);
    patterns->n = node->n_items;
    for (size_t i = 0; patterns->list && i < node->n_items; i++) {
        if (take_pattern(reading, &node->items[i], &patterns->list[i]) < 0)
            return -1;
    }
    return patterns->list ? 0 : -1;
}

static int take_numbers(const struct reading *reading, const struct recipe_node *node, struct recipe_numbers *numbers)
{
    if (node->kind != NODE_LIST)
        return wrong_value(reading, "a list of whole numbers", node);
    numbers->list = take_array(reading, node->n_items, sizeof *numbers->list);
    numbers->n = node->n_items;
    for (size_t i = 0; numbers->list && i < node->n_items; i++) {
        if (node->items[i].kind != NODE_NUMBER)
            return wrong_value(reading, "whole numbers", &node->items[i]);
        numbers->list[i] = node->items[i].number;
    }
    return numbers->list ? 0 : -1;
}

static int take_number(const struct reading *reading, const struct recipe_node *node, int64_t *number)
{
    if (node->kind != NODE_NUMBER)
        return wrong_value(reading, "a whole number", node);
    *number = node->number;
    return 0;
}

static int take_bound(const struct reading *reading, const struct recipe_node *node, int64_t open, int64_t *bound)
{
    *bound = open;
    return node->kind == NODE_NULL ? 0 : take_number(reading, node, bound);
}

static int take_slices(const struct reading *reading, const struct recipe_node *node, struct recipe_slices *slices)
{
    if (node->kind != NODE_LIST)
        return wrong_value(reading, "a list of slices, such as [[0, 4], [1, null]]", node);
    slices->list = take_array(reading, node->n_items, sizeof *slices->list);
    slices->n = node->n_items;
    for (size_t i = 0; slices->list && i < node->n_items; i++) {
        const struct recipe_node *slice = &node->items[i];
        if (slice->kind == NODE_NULL) {
            slices->list[i] = (struct recipe_slice){0, INT64_MAX};
            continue;
        }
        if (slice->kind != NODE_LIST || slice->n_items != 2)
            return wrong_value(reading, "two bounds per slice, such as [1, null]", slice);
        if (take_bound(reading, &slice->items[0], 0, &slices->list[i].start) < 0 ||
            take_bound(reading, &slice->items[1], INT64_MAX, &slices->list[i].stop) < 0)
            return -1;
    }
    return slices->list ? 0 : -1;
}

static int take_dtype(const struct reading *reading, const struct recipe_node *node, enum dtype *dtype)
{
    char help[DTYPE_HELP_CHARS];
    if (node->kind == NODE_TEXT && dtype_read(node->text, node->length, dtype))
        return 0;
    return wrong_value(reading, dtype_help(node->text, node->kind == NODE_TEXT ? node->length : 0, help), node);
}

static int take_dtypes(const struct reading *reading, const struct recipe_node *node, uint32_t *dtypes)
{
    if (node->kind != NODE_LIST || !node->n_items)
        return wrong_value(reading, "a list of element types", node);
    reading->step->has_only = true;
    for (size_t i = 0; i < node->n_items; i++) {
        enum dtype dtype;
        if (take_dtype(reading, &node->items[i], &dtype) < 0)
            return -1;
        *dtypes |= 1u << dtype;
    }
    return 0;
}

static int take_bool(const struct reading *reading, const struct recipe_node *node, bool *value)
{
    if (node->kind != NODE_BOOL)
        return wrong_value(reading, "true or false", node);
    *value = node->number;
    return 0;
}

static int take_argument(struct reading *reading, const struct argument_row *row, const struct recipe_node *node)
{
    void *place = (char *)reading->step + row->offset;
    switch (row->type) {
    case ARGUMENT_PATTERNS:
        return take_patterns(reading, node, place);
    case ARGUMENT_PATTERN:
        *(struct recipe_patterns *)place = (struct recipe_patterns){take_array(reading, 1, sizeof(struct pattern)), 1};
        return ((struct recipe_patterns *)place)->list ? take_pattern(reading, node, ((struct recipe_patterns *)place)->list)
                                                       : -1;
    case ARGUMENT_NUMBERS:
        return take_numbers(reading, node, place);
    case ARGUMENT_NUMBER:
        return take_number(reading, node, place);
    case ARGUMENT_SEED:
        reading->step->has_shuffle = node->kind != NODE_NULL;
        return node->kind == NODE_NULL ? 0 : take_number(reading, node, place);
    case ARGUMENT_SLICES:
        return take_slices(reading, node, place);
    case ARGUMENT_DTYPE:
        return take_dtype(reading, node, place);
    case ARGUMENT_DTYPES:
        return take_dtypes(reading, node, place);
    case ARGUMENT_TRUE:
        return take_bool(reading, node, place);
    case ARGUMENT_WAY:
        *(bool *)place = node->kind == NODE_TEXT && strcmp(node->text, "halves") == 0;
        if (*(bool *)place || (node->kind == NODE_TEXT && strcmp(node->text, "interleaved") == 0))
            return 0;
        return wrong_value(reading, "interleaved or halves", node);
    case ARGUMENT_TEXT:
        break;
    }
    return take_pattern(reading, node, place);
}

static int fail_unknown(const struct reading *reading, const char *what, const struct recipe_node *key,
                        const char *const *names, size_t n_names)
{
    const char *nearest = key->length < TEXT_NAME_CHARS ? text_nearest(key->text, names, n_names) : NULL;
    return fail(reading->error, ERROR_INVALID_ARGUMENT, "BAD_RECIPE", "there is no %s '%s'%s%s%s", what,
                text_show_bytes(key->text, key->length), nearest ? "; did you mean '" : "", nearest ? nearest : "",
                nearest ? "'?" : "");
}

enum { MAX_ARGUMENTS = 8 };

static int take_arguments(struct reading *reading, const struct argument_row *rows, const struct recipe_node *node)
{
    const char *names[MAX_ARGUMENTS];
    bool seen[MAX_ARGUMENTS] = {0};
    size_t n = 0;
    if (node->kind != NODE_MAP)
        return wrong_value(reading, "arguments, such as {tensors: [..]}", node);
    for (; rows[n].name; n++)
        names[n] = rows[n].name;
    for (size_t i = 0; i < node->n_items; i += 2) {
        size_t k = 0;
        while (k < n && strcmp(node->items[i].text, names[k]) != 0)
            k++;
        if (k == n)
            return fail_unknown(reading, "argument", &node->items[i], names, n);
        reading->argument = names[k];
        if (take_argument(reading, &rows[k], &node->items[i + 1]) < 0)
            return -1;
        reading->argument = NULL;
        seen[k] = true;
    }
    for (size_t k = 0; k < n; k++) {
        if (rows[k].required && !seen[k])
            return fail(reading->error, ERROR_INVALID_ARGUMENT, "BAD_RECIPE", "the argument %s is missing", names[k]);
    }
    return 0;
}

/* {left: right, ..}: in a rename the left one is what there is, in an alias it is the new name. */
static int take_pairs(const struct reading *reading, const struct recipe_node *node)
{
    struct recipe_step *step = reading->step;
    bool is_rename = step->kind == STEP_RENAME;
    size_t n = node->n_items / 2;
    if (node->kind != NODE_MAP || !n)
        return wrong_value(reading, is_rename ? "names as {from: to}" : "names as {new: existing}", node);
    step->from = (struct recipe_patterns){take_array(reading, n, sizeof *step->from.list), n};
    step->to = (struct recipe_patterns){take_array(reading, n, sizeof *step->to.list), n};
    if (!step->from.list || !step->to.list)
        return -1;
    for (size_t i = 0; i < n; i++) {
        const struct recipe_node *key = &node->items[2 * i], *value = key + 1;
        struct pattern *from = &step->from.list[i], *to = &step->to.list[i];
        if (is_rename && value->kind == NODE_NULL)
            return fail(reading->error, ERROR_INVALID_ARGUMENT, "BAD_RECIPE", "%s has no new name; to remove it use drop",
                        text_show_bytes(key->text, key->length));
        if (take_pattern(reading, is_rename ? key : value, from) < 0 ||
            take_pattern(reading, is_rename ? value : key, to) < 0)
            return -1;
        if (!pattern_can_fill(from, to))
            return fail(reading->error, ERROR_INVALID_ARGUMENT, "BAD_RECIPE", "%s has more {} or * than %s, which fills it",
                        text_show_bytes(to->text, to->length), text_show_bytes(from->text, from->length));
    }
    return 0;
}

static int take_expectations(struct reading *reading, const struct recipe_node *node)
{
    struct recipe_expectations *expected = &reading->step->expected;
    if (node->kind != NODE_MAP)
        return wrong_value(reading, "tensors as {name: {shape: [..], dtype: ..}}", node);
    expected->list = take_array(reading, node->n_items / 2, sizeof *expected->list);
    expected->n = node->n_items / 2;
    for (size_t i = 0; expected->list && i < expected->n; i++) {
        const struct recipe_node *name = &node->items[2 * i], *of = name + 1;
        const struct recipe_node *shape = recipe_node_get(of, "shape"), *dtype = recipe_node_get(of, "dtype");
        struct recipe_expected *one = &expected->list[i];
        one->name = name->text;
        one->name_length = name->length;
        reading->argument = text_show_bytes(name->text, name->length);
        if (of->kind != NODE_MAP || !shape || !dtype || of->n_items != 4)
            return wrong_value(reading, "{shape: [..], dtype: ..}", of);
        if (take_numbers(reading, shape, &one->shape) < 0 || take_dtype(reading, dtype, &one->dtype) < 0)
            return -1;
        reading->argument = NULL;
    }
    return expected->list ? 0 : -1;
}

/* --- what is wrong with a step whatever the tensors are; daemon/variant checks what depends on them ------------------- */

static int check_numbered(const struct reading *reading, const struct pattern *counted, const char *argument)
{
    if (counted->n_numbers)
        return 0;
    return fail(reading->error, ERROR_INVALID_ARGUMENT, "BAD_RECIPE", "%s: %s has no {}, which counts the tensors", argument,
                text_show_bytes(counted->text, counted->length));
}

/* What `to` is filled from has as many wildcards; `fewer` of the numbers count something else. */
static int check_filled(const struct reading *reading, const struct pattern *from, const struct pattern *to,
                        uint32_t fewer_from, uint32_t fewer_to)
{
    if (to->n_numbers - fewer_to <= from->n_numbers - fewer_from && to->n_runs <= from->n_runs)
        return 0;
    return fail(reading->error, ERROR_INVALID_ARGUMENT, "BAD_RECIPE", "to: %s has more {} or * than %s can fill",
                text_show_bytes(to->text, to->length), text_show_bytes(from->text, from->length));
}

static int check_positive(const struct reading *reading, const char *argument, int64_t number)
{
    if (number > 0)
        return 0;
    return fail(reading->error, ERROR_INVALID_ARGUMENT, "BAD_RECIPE", "%s: expected a number above 0, not %" PRId64,
                argument, number);
}

static int check_step(const struct reading *reading)
{
    const struct recipe_step *step = reading->step;
    const struct pattern *from = step->from.list, *to = step->to.list;
    const struct recipe_numbers *numbers = &step->numbers;
    size_t n_open = 0;
    if ((step->kind == STEP_CAST || step->kind == STEP_DEQUANTIZE) && !dtype_is_float(step->dtype))
        return fail(reading->error, ERROR_INVALID_ARGUMENT, "BAD_RECIPE",
                    "dtype: elements become F64, F32, F16, BF16 or a type of F8, not %s", dtype_name(step->dtype));
    switch (step->kind) {
    case STEP_RESHAPE:
        for (size_t i = 0; i < numbers->n; i++) {
            n_open += numbers->list[i] == -1;
            if (numbers->list[i] < -1)
                return complain(reading, "shape: an extent is a number from 0, or -1 for what is left");
        }
        return n_open > 1 ? complain(reading, "shape: only one extent may be -1") : 0;
    case STEP_CONCAT:
        for (size_t i = 1; i < step->from.n; i++)
            if (from[i].n_numbers != from->n_numbers || from[i].n_runs != from->n_runs)
                return complain(reading, "from: every pattern needs the same number of {} and *");
        return check_filled(reading, from, to, 0, 0);
    case STEP_SPLIT:
        if ((numbers->list != NULL) == step->even)
            return complain(reading, "a split needs either sizes or even: true");
        if (numbers->list && numbers->n != step->to.n)
            return complain(reading, "sizes: there is one size for each name in `to`");
        for (size_t i = 0; i < numbers->n; i++)
            if (numbers->list[i] < 0)
                return complain(reading, "sizes: a size is a number from 0");
        for (size_t i = 0; i < step->to.n; i++)
            if (check_filled(reading, from, &to[i], 0, 0) < 0)
                return -1;
        return 0;
    case STEP_STACK:
        return check_numbered(reading, from, "from") || check_filled(reading, from, to, 1, 0) ? -1 : 0;
    case STEP_UNSTACK:
        return check_numbered(reading, to, "to") || check_filled(reading, from, to, 0, 1) ? -1 : 0;
    case STEP_PERMUTE_ROPE:
        return check_positive(reading, "heads", step->count);
    case STEP_REPLICATE_EXPERTS:
        if (check_positive(reading, "experts", step->count) || check_positive(reading, "inter_dim", step->inter_dim))
            return -1;
        return step->has_shuffle && step->shuffle_seed < 0 ? complain(reading, "shuffle_seed: expected a number from 0") : 0;
    case STEP_DEQUANTIZE:
        if (numbers->n != 2 || numbers->list[0] < 1 || numbers->list[1] < 1)
            return complain(reading, "block: expected two numbers above 0, such as [128, 128]");
        if (!strstr(step->scale.text, "{tensor}"))
            return complain(reading, "scale: the name of the scales is made of {tensor}, such as \"{tensor}_scale_inv\"");
        return 0;
    case STEP_EXPECT:
        for (size_t i = 0; i < step->expected.n; i++)
            for (size_t k = 0; k < step->expected.list[i].shape.n; k++)
                if (step->expected.list[i].shape.list[k] < 0)
                    return complain(reading, "shape: an extent is a number from 0");
        return 0;
    default:
        return 0;
    }
}

/* --- a step and all of them ----------------------------------------------------------------------------------------- */

static int find_step(const struct reading *reading, const struct recipe_node *node, const struct recipe_node **value)
{
    const char *names[STEP_COUNT + N_FLAGS];
    *value = NULL;
    for (size_t k = 0; k < STEP_COUNT; k++)
        names[k] = step_table[k].name;
    for (size_t f = 0; f < N_FLAGS; f++)
        names[STEP_COUNT + f] = flags[f].name;
    for (size_t i = 0; i < node->n_items; i += 2) {
        size_t k = 0;
        while (k < STEP_COUNT + N_FLAGS && strcmp(node->items[i].text, names[k]) != 0)
            k++;
        if (k == STEP_COUNT + N_FLAGS)
            return fail_unknown(reading, "step", &node->items[i], names, STEP_COUNT + N_FLAGS);
        if (k >= STEP_COUNT)
            continue;
        if (*value)
            return fail(reading->error, ERROR_INVALID_ARGUMENT, "BAD_RECIPE",
                        "%s and %s are two steps; begin each with a dash", step_table[reading->step->kind].name, names[k]);
        reading->step->kind = (enum recipe_step_kind)k;
        *value = &node->items[i + 1];
    }
    return *value ? 0 : complain(reading, "there is no step in it, such as drop or rename");
}

static int take_flags(struct reading *reading, const struct recipe_node *node)
{
    for (size_t f = 0; f < N_FLAGS; f++) {
        const struct recipe_node *value = recipe_node_get(node, flags[f].name);
        if (value && flags[f].only_step >= 0 && flags[f].only_step != (int)reading->step->kind)
            return fail(reading->error, ERROR_INVALID_ARGUMENT, "BAD_RECIPE", "%s belongs to %s alone", flags[f].name,
                        step_table[flags[f].only_step].name);
        reading->argument = flags[f].name;
        if (value && take_bool(reading, value, (bool *)((char *)reading->step + flags[f].offset)) < 0)
            return -1;
        reading->argument = NULL;
    }
    return 0;
}

static int check_duplicates(const struct reading *reading, const struct recipe_node *node)
{
    const struct recipe_node *key;
    int found = node->kind == NODE_MAP ? recipe_node_find_duplicate(node, &key, reading->error) : 0;
    if (found < 0)
        return -1;
    if (found)
        return fail(reading->error, ERROR_INVALID_ARGUMENT, "BAD_RECIPE", "'%s' is there twice",
                    text_show_bytes(key->text, key->length));
    for (size_t i = 0; i < node->n_items; i++) {
        if (check_duplicates(reading, &node->items[i]) < 0)
            return -1;
    }
    return 0;
}

static int take_step(struct reading *reading, const struct recipe_node *node)
{
    const struct recipe_node *value;
    if (node->kind != NODE_MAP)
        return wrong_value(reading, "a step, such as drop: [..]", node);
    if (check_duplicates(reading, node) < 0 || find_step(reading, node, &value) < 0 || take_flags(reading, node) < 0)
        return -1;
    const struct step_row *row = &step_table[reading->step->kind];
    int failed = -1;
    switch (row->form) {
    case FORM_PATTERNS:
        failed = take_patterns(reading, value, &reading->step->tensors);
        break;
    case FORM_PAIRS:
        failed = take_pairs(reading, value);
        break;
    case FORM_ARGUMENTS:
        failed = take_arguments(reading, row->arguments, value);
        break;
    case FORM_EXPECTATIONS:
        failed = take_expectations(reading, value);
        break;
    }
    return failed ? failed : check_step(reading);
}

int recipe_error_prefix(const struct recipe_step *step, const char *name, struct error *error)
{
    bool has_name = step->number && step->kind < STEP_COUNT;
    error_prefix(error, has_name ? "step %u (%s)" : "step %u", step->number, has_name ? step_table[step->kind].name : "");
    if (name && step->line)
        error_prefix(error, "%s:%u", text_show(name), step->line);
    return error_note(error, "step", "%u", step->number);
}

/* Of a complaint about the whole recipe; name: NULL where it has none. */
static int prefix_name(const char *name, struct error *error)
{
    return name ? error_prefix(error, "%s", text_show(name)) : -1;
}

static const struct recipe_node *find_steps(const struct recipe_node *document, struct error *error)
{
    char shown[RECIPE_NODE_CHARS];
    const struct recipe_node *key, *steps = recipe_node_get(document, "steps"), *version;
    version = recipe_node_get(document, "version");
    if (document->kind != NODE_MAP) {
        fail(error, ERROR_INVALID_ARGUMENT, "BAD_RECIPE", "a recipe has `version: 1` and `steps:`; this is %s",
             recipe_node_show(document, shown));
        return NULL;
    }
    int found = recipe_node_find_duplicate(document, &key, error);
    if (found < 0)
        return NULL;
    if (found) {
        fail(error, ERROR_INVALID_ARGUMENT, "BAD_RECIPE", "'%s' is there twice", text_show_bytes(key->text, key->length));
        return NULL;
    }
    for (size_t i = 0; i < document->n_items; i += 2) {
        const struct recipe_node *at = &document->items[i];
        if (strcmp(at->text, "version") == 0 || strcmp(at->text, "steps") == 0)
            continue;
        fail(error, ERROR_INVALID_ARGUMENT, "BAD_RECIPE", "there is no '%s' in a recipe, only version and steps",
             text_show_bytes(at->text, at->length));
        return NULL;
    }
    if (!version || version->kind != NODE_NUMBER || version->number != 1) {
        fail(error, ERROR_INVALID_ARGUMENT, "BAD_RECIPE", "a recipe says `version: 1`");
        return NULL;
    }
    if (!steps || steps->kind != NODE_LIST) {
        fail(error, ERROR_INVALID_ARGUMENT, "BAD_RECIPE", "`steps` has to be a list of steps");
        return NULL;
    }
    return steps;
}

static int build_steps(const struct recipe_node *steps, const char *name, struct arena *arena, struct recipe *recipe,
                       struct error *error)
{
    *recipe = (struct recipe){0};
    if (steps->n_items > RECIPE_MAX_STEPS) {
        fail(error, ERROR_INVALID_ARGUMENT, "BAD_RECIPE", "a recipe has at most %d steps, not %zu", RECIPE_MAX_STEPS,
             steps->n_items);
        return prefix_name(name, error);
    }
    recipe->steps = arena_try_array(arena, steps->n_items, sizeof *recipe->steps, error);
    if (!recipe->steps)
        return -1;
    for (; recipe->n_steps < steps->n_items; recipe->n_steps++) {
        const struct recipe_node *node = &steps->items[recipe->n_steps];
        struct recipe_step *step = &recipe->steps[recipe->n_steps];
        struct reading reading = {.arena = arena, .step = step, .error = error};
        *step = (struct recipe_step){.kind = STEP_COUNT, .number = (uint32_t)recipe->n_steps + 1, .line = node->line};
        if (take_step(&reading, node) < 0)
            return error->code == ERROR_INVALID_ARGUMENT ? recipe_error_prefix(step, name, error) : -1;
    }
    return 0;
}

int recipe_build(const struct recipe_node *document, const char *name, struct arena *arena, struct recipe *recipe,
                 struct error *error)
{
    const struct recipe_node *steps = find_steps(document, error);
    return steps ? build_steps(steps, name, arena, recipe, error) : prefix_name(name, error);
}

int recipe_parse(const char *json, size_t length, struct arena *arena, struct recipe *recipe, struct error *error)
{
    struct recipe_node document;
    if (length > RECIPE_MAX_BYTES)
        return fail(error, ERROR_INVALID_ARGUMENT, "RECIPE_TOO_LARGE",
                    "a variant has at most %d bytes of JSON, this one %zu", RECIPE_MAX_BYTES, length);
    if (recipe_node_parse(json, length, "the variant", arena, &document, error) < 0)
        return -1;
    return document.kind == NODE_LIST ? build_steps(&document, NULL, arena, recipe, error)
                                      : recipe_build(&document, NULL, arena, recipe, error);
}

bool recipe_dim(int64_t dim, uint32_t rank, uint32_t *found)
{
    int64_t at = dim < 0 ? dim + (int64_t)rank : dim;
    *found = (uint32_t)at;
    return at >= 0 && at < (int64_t)rank;
}

/* --- the canonical text: members in the order of the table, nothing that says what is so anyway ------------------------ */

static void put_patterns(struct json_writer *json, const char *key, const struct recipe_patterns *patterns)
{
    if (key)
        json_put_open(json, key, '[');
    else
        json_write_open(json, '[');
    for (size_t i = 0; i < patterns->n; i++)
        json_write_string(json, patterns->list[i].text, patterns->list[i].length);
    json_write_close(json, ']');
}

static void put_numbers(struct json_writer *json, const char *key, const struct recipe_numbers *numbers)
{
    json_put_open(json, key, '[');
    for (size_t i = 0; i < numbers->n; i++)
        json_write_i64(json, numbers->list[i]);
    json_write_close(json, ']');
}

static void put_argument(struct json_writer *json, const struct argument_row *row, const struct recipe_step *step)
{
    const void *place = (const char *)step + row->offset;
    const struct recipe_numbers *numbers = place;
    const struct recipe_slices *slices = place;
    const struct pattern *pattern = row->type == ARGUMENT_PATTERN ? ((const struct recipe_patterns *)place)->list : place;
    switch (row->type) {
    case ARGUMENT_PATTERNS:
        put_patterns(json, row->name, place);
        break;
    case ARGUMENT_PATTERN:
    case ARGUMENT_TEXT:
        json_put_string(json, row->name, pattern->text, pattern->length);
        break;
    case ARGUMENT_NUMBERS:
        if (numbers->list)
            put_numbers(json, row->name, numbers);
        break;
    case ARGUMENT_SEED:
        if (!step->has_shuffle)
            break; /* fall through */
    case ARGUMENT_NUMBER:
        json_write_key(json, row->name);
        json_write_i64(json, *(const int64_t *)place);
        break;
    case ARGUMENT_SLICES:
        json_put_open(json, row->name, '[');
        for (size_t i = 0; i < slices->n; i++) {
            json_write_open(json, '[');
            json_write_i64(json, slices->list[i].start);
            json_write_i64(json, slices->list[i].stop);
            json_write_close(json, ']');
        }
        json_write_close(json, ']');
        break;
    case ARGUMENT_DTYPE:
        json_put_text(json, row->name, dtype_name(*(const enum dtype *)place));
        break;
    case ARGUMENT_DTYPES:
        if (!step->has_only)
            break;
        json_put_open(json, row->name, '[');
        for (enum dtype dtype = 0; dtype < DTYPE_COUNT; dtype++)
            if (step->only & 1u << dtype)
                json_write_text(json, dtype_name(dtype));
        json_write_close(json, ']');
        break;
    case ARGUMENT_TRUE:
        if (*(const bool *)place)
            json_put_bool(json, row->name, true);
        break;
    case ARGUMENT_WAY:
        json_put_text(json, row->name, *(const bool *)place ? "halves" : "interleaved");
        break;
    }
}

static void put_value(struct json_writer *json, const struct recipe_step *step)
{
    const struct step_row *row = &step_table[step->kind];
    const struct recipe_patterns *left = step->kind == STEP_RENAME ? &step->from : &step->to;
    const struct recipe_patterns *right = step->kind == STEP_RENAME ? &step->to : &step->from;
    if (row->form == FORM_PATTERNS) {
        put_patterns(json, NULL, &step->tensors);
        return;
    }
    json_write_open(json, '{');
    for (const struct argument_row *argument = row->arguments; argument && argument->name; argument++)
        put_argument(json, argument, step);
    for (size_t i = 0; row->form == FORM_PAIRS && i < left->n; i++) {
        json_write_key_bytes(json, left->list[i].text, left->list[i].length);
        json_write_string(json, right->list[i].text, right->list[i].length);
    }
    for (size_t i = 0; i < step->expected.n; i++) {
        json_write_key_bytes(json, step->expected.list[i].name, step->expected.list[i].name_length);
        json_write_open(json, '{');
        put_numbers(json, "shape", &step->expected.list[i].shape);
        json_put_text(json, "dtype", dtype_name(step->expected.list[i].dtype));
        json_write_close(json, '}');
    }
    json_write_close(json, '}');
}

char *recipe_json(const struct recipe *recipe, struct error *error)
{
    struct json_writer json = {0};
    json_write_open(&json, '[');
    for (size_t i = 0; i < recipe->n_steps; i++) {
        const struct recipe_step *step = &recipe->steps[i];
        json_write_open(&json, '{');
        json_write_key(&json, step_table[step->kind].name);
        put_value(&json, step);
        for (size_t f = 0; f < N_FLAGS; f++)
            if (*(const bool *)((const char *)step + flags[f].offset))
                json_put_bool(&json, flags[f].name, true);
        json_write_close(&json, '}');
    }
    json_write_close(&json, ']');
    if (json.length <= RECIPE_MAX_BYTES)
        return json.text;
    fail(error, ERROR_INVALID_ARGUMENT, "RECIPE_TOO_LARGE", "a variant has at most %d bytes of JSON, this one %zu",
         RECIPE_MAX_BYTES, json.length);
    free(json.text);
    return NULL;
}
