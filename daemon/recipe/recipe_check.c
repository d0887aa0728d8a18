/* What is wrong with a step whatever the tensors are; see recipe_private.h. What depends on tensors is checked by daemon/variant. */
#include <inttypes.h>
#include <string.h>

#include "base/text.h"
#include "recipe/recipe_private.h"

static bool is_float_type(enum dtype dtype)
{
    switch (dtype) {
    case DTYPE_F8_E5M2:
    case DTYPE_F8_E4M3:
    case DTYPE_F8_E8M0:
    case DTYPE_F8_E4M3FNUZ:
    case DTYPE_F8_E5M2FNUZ:
    case DTYPE_F16:
    case DTYPE_BF16:
    case DTYPE_F32:
    case DTYPE_F64:
        return true;
    default:
        return false;
    }
}

static int check_target(const struct reading *reading)
{
    enum dtype dtype = reading->step->dtype;
    if (is_float_type(dtype))
        return 0;
    return fail(reading->error, ERROR_INVALID_ARGUMENT, "BAD_RECIPE",
                "dtype: elements become F64, F32, F16, BF16 or a type of F8, not %s", dtype_name(dtype));
}

static int check_shape(const struct reading *reading)
{
    const struct recipe_numbers *shape = &reading->step->numbers;
    size_t n_open = 0;
    for (size_t i = 0; i < shape->n; i++) {
        n_open += shape->list[i] == -1;
        if (shape->list[i] < -1)
            return recipe_complain(reading, "shape: an extent is a number from 0, or -1 for what is left");
    }
    return n_open > 1 ? recipe_complain(reading, "shape: only one extent may be -1") : 0;
}

static int check_numbered(const struct reading *reading, const struct pattern *counted, const char *argument)
{
    char name[TEXT_NAME_CHARS];
    if (counted->n_numbers)
        return 0;
    return fail(reading->error, ERROR_INVALID_ARGUMENT, "BAD_RECIPE", "%s: %s has no {}, which counts the tensors", argument,
                text_escape(counted->text, counted->length, name));
}

/* What `to` is filled from has as many wildcards; `fewer` of the numbers count something else. */
static int check_filled(const struct reading *reading, const struct pattern *from, const struct pattern *to,
                        uint32_t fewer_from, uint32_t fewer_to)
{
    char left[TEXT_NAME_CHARS], right[TEXT_NAME_CHARS];
    if (to->n_numbers - fewer_to <= from->n_numbers - fewer_from && to->n_runs <= from->n_runs)
        return 0;
    return fail(reading->error, ERROR_INVALID_ARGUMENT, "BAD_RECIPE", "to: %s has more {} or * than %s can fill",
                text_escape(to->text, to->length, left), text_escape(from->text, from->length, right));
}

static int check_concat(const struct reading *reading)
{
    const struct recipe_step *step = reading->step;
    for (size_t i = 1; i < step->from.n; i++) {
        if (step->from.list[i].n_numbers != step->from.list[0].n_numbers ||
            step->from.list[i].n_runs != step->from.list[0].n_runs)
            return recipe_complain(reading, "from: every pattern needs the same number of {} and *");
    }
    return check_filled(reading, &step->from.list[0], &step->to.list[0], 0, 0);
}

static int check_split(const struct reading *reading)
{
    const struct recipe_step *step = reading->step;
    bool has_sizes = step->numbers.list != NULL;
    if (has_sizes == step->even)
        return recipe_complain(reading, "a split needs either sizes or even: true");
    if (has_sizes && step->numbers.n != step->to.n)
        return recipe_complain(reading, "sizes: there is one size for each name in `to`");
    for (size_t i = 0; i < step->numbers.n; i++) {
        if (step->numbers.list[i] < 0)
            return recipe_complain(reading, "sizes: a size is a number from 0");
    }
    for (size_t i = 0; i < step->to.n; i++) {
        if (check_filled(reading, &step->from.list[0], &step->to.list[i], 0, 0) < 0)
            return -1;
    }
    return 0;
}

static int check_positive(const struct reading *reading, const char *argument, int64_t number)
{
    if (number > 0)
        return 0;
    return fail(reading->error, ERROR_INVALID_ARGUMENT, "BAD_RECIPE", "%s: expected a number above 0, not %" PRId64,
                argument, number);
}

static int check_dequantize(const struct reading *reading)
{
    const struct recipe_numbers *block = &reading->step->numbers;
    if (block->n != 2 || block->list[0] < 1 || block->list[1] < 1)
        return recipe_complain(reading, "block: expected two numbers above 0, such as [128, 128]");
    if (!strstr(reading->step->scale.text, "{tensor}"))
        return recipe_complain(reading, "scale: the name of the scales is made of {tensor}, such as \"{tensor}_scale_inv\"");
    return check_target(reading);
}

static int check_expect(const struct reading *reading)
{
    const struct recipe_expectations *expected = &reading->step->expected;
    for (size_t i = 0; i < expected->n; i++) {
        for (size_t k = 0; k < expected->list[i].shape.n; k++) {
            if (expected->list[i].shape.list[k] < 0)
                return recipe_complain(reading, "shape: an extent is a number from 0");
        }
    }
    return 0;
}

int recipe_check_step(const struct reading *reading)
{
    const struct recipe_step *step = reading->step;
    switch (step->kind) {
    case STEP_RESHAPE:
        return check_shape(reading);
    case STEP_CONCAT:
        return check_concat(reading);
    case STEP_SPLIT:
        return check_split(reading);
    case STEP_STACK:
        return check_numbered(reading, &step->from.list[0], "from") ||
                       check_filled(reading, &step->from.list[0], &step->to.list[0], 1, 0)
                   ? -1
                   : 0;
    case STEP_UNSTACK:
        return check_numbered(reading, &step->to.list[0], "to") ||
                       check_filled(reading, &step->from.list[0], &step->to.list[0], 0, 1)
                   ? -1
                   : 0;
    case STEP_PERMUTE_ROPE:
        return check_positive(reading, "heads", step->count);
    case STEP_REPLICATE_EXPERTS:
        return check_positive(reading, "experts", step->count) || check_positive(reading, "inter_dim", step->inter_dim) ||
                       (step->has_shuffle && step->shuffle_seed < 0 &&
                        recipe_complain(reading, "shuffle_seed: expected a number from 0"))
                   ? -1
                   : 0;
    case STEP_CAST:
        return check_target(reading);
    case STEP_DEQUANTIZE:
        return check_dequantize(reading);
    case STEP_EXPECT:
        return check_expect(reading);
    default:
        return 0;
    }
}
