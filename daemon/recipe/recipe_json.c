/* The canonical text of a recipe: members in one order, nothing that says what is so anyway. */
#include <stdlib.h>

#include "base/json.h"
#include "recipe/recipe.h"

static void put_pattern(struct json_writer *json, const struct pattern *pattern)
{
    json_write_string(json, pattern->text, pattern->length);
}

static void put_patterns(struct json_writer *json, const char *key, const struct recipe_patterns *patterns)
{
    if (key)
        json_put_open(json, key, '[');
    else
        json_write_open(json, '[');
    for (size_t i = 0; i < patterns->n; i++)
        put_pattern(json, &patterns->list[i]);
    json_write_close(json, ']');
}

static void put_one(struct json_writer *json, const char *key, const struct recipe_patterns *patterns)
{
    json_put_string(json, key, patterns->list[0].text, patterns->list[0].length);
}

static void put_i64(struct json_writer *json, const char *key, int64_t number)
{
    json_write_key(json, key);
    json_write_i64(json, number);
}

static void put_numbers(struct json_writer *json, const char *key, const struct recipe_numbers *numbers)
{
    json_put_open(json, key, '[');
    for (size_t i = 0; i < numbers->n; i++)
        json_write_i64(json, numbers->list[i]);
    json_write_close(json, ']');
}

static void put_pairs(struct json_writer *json, const struct recipe_patterns *left, const struct recipe_patterns *right)
{
    json_write_open(json, '{');
    for (size_t i = 0; i < left->n; i++) {
        json_write_key_bytes(json, left->list[i].text, left->list[i].length);
        put_pattern(json, &right->list[i]);
    }
    json_write_close(json, '}');
}

static void put_slices(struct json_writer *json, const struct recipe_slices *slices)
{
    json_put_open(json, "slices", '[');
    for (size_t i = 0; i < slices->n; i++) {
        json_write_open(json, '[');
        json_write_i64(json, slices->list[i].start);
        json_write_i64(json, slices->list[i].stop);
        json_write_close(json, ']');
    }
    json_write_close(json, ']');
}

static void put_dtypes(struct json_writer *json, uint32_t dtypes)
{
    json_put_open(json, "only", '[');
    for (enum dtype dtype = 0; dtype < DTYPE_COUNT; dtype++) {
        if (dtypes & 1u << dtype)
            json_write_text(json, dtype_name(dtype));
    }
    json_write_close(json, ']');
}

static void put_expectations(struct json_writer *json, const struct recipe_expectations *expected)
{
    json_write_open(json, '{');
    for (size_t i = 0; i < expected->n; i++) {
        json_write_key_bytes(json, expected->list[i].name, expected->list[i].name_length);
        json_write_open(json, '{');
        put_numbers(json, "shape", &expected->list[i].shape);
        json_put_text(json, "dtype", dtype_name(expected->list[i].dtype));
        json_write_close(json, '}');
    }
    json_write_close(json, '}');
}

/* By the kind of step: its further arguments, `tensors` and the names being written. */
static void put_arguments(struct json_writer *json, const struct recipe_step *step)
{
    switch (step->kind) {
    case STEP_SLICE:
        put_slices(json, &step->slices);
        break;
    case STEP_TRANSPOSE:
        put_numbers(json, "dims", &step->numbers);
        break;
    case STEP_RESHAPE:
        put_numbers(json, "shape", &step->numbers);
        break;
    case STEP_PERMUTE_ROPE:
        put_i64(json, "heads", step->count);
        json_put_text(json, "to", step->to_halves ? "halves" : "interleaved");
        break;
    case STEP_REPLICATE_EXPERTS:
        put_i64(json, "experts", step->count);
        put_i64(json, "inter_dim", step->inter_dim);
        if (step->has_shuffle)
            put_i64(json, "shuffle_seed", step->shuffle_seed);
        break;
    case STEP_CAST:
        json_put_text(json, "dtype", dtype_name(step->dtype));
        if (step->has_only)
            put_dtypes(json, step->only);
        break;
    case STEP_DEQUANTIZE:
        json_put_string(json, "scale", step->scale.text, step->scale.length);
        put_numbers(json, "block", &step->numbers);
        json_put_text(json, "dtype", dtype_name(step->dtype));
        break;
    case STEP_SPLIT:
        if (step->even)
            json_put_bool(json, "even", true);
        else
            put_numbers(json, "sizes", &step->numbers);
        put_i64(json, "dim", step->dim);
        break;
    default: /* concat, stack, unstack */
        put_i64(json, "dim", step->dim);
        break;
    }
}

static void put_value(struct json_writer *json, const struct recipe_step *step)
{
    switch (step->kind) {
    case STEP_SELECT:
    case STEP_DROP:
    case STEP_ONLY:
        put_patterns(json, NULL, &step->tensors);
        return;
    case STEP_RENAME:
        put_pairs(json, &step->from, &step->to);
        return;
    case STEP_ALIAS:
        put_pairs(json, &step->to, &step->from);
        return;
    case STEP_EXPECT:
        put_expectations(json, &step->expected);
        return;
    default:
        break;
    }
    json_write_open(json, '{');
    if (step->tensors.n)
        put_patterns(json, "tensors", &step->tensors);
    if (step->kind == STEP_CONCAT)
        put_patterns(json, "from", &step->from);
    else if (step->from.n)
        put_one(json, "from", &step->from);
    if (step->kind == STEP_SPLIT)
        put_patterns(json, "to", &step->to);
    else if (step->to.n)
        put_one(json, "to", &step->to);
    put_arguments(json, step);
    json_write_close(json, '}');
}

char *recipe_json(const struct recipe *recipe, struct error *error)
{
    struct json_writer json = {0};
    json_write_open(&json, '[');
    for (size_t i = 0; i < recipe->n_steps; i++) {
        const struct recipe_step *step = &recipe->steps[i];
        json_write_open(&json, '{');
        json_write_key(&json, recipe_step_name(step->kind));
        put_value(&json, step);
        if (step->optional)
            json_put_bool(&json, "optional", true);
        if (step->allow_missing)
            json_put_bool(&json, "allow_missing", true);
        if (step->allow_extra)
            json_put_bool(&json, "allow_extra", true);
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
