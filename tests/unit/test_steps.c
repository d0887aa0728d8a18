/* Where a step does not fit the tensors: every way, with its step and a tensor named. What steps do to elements is in
 * tests/property/test_variants_numpy.py. */
#include "tests/support/unit.h"

#include "tests/support/variant_scene.h"

static unsigned char zero(uint64_t i)
{
    (void)i;
    return 0;
}

static int begin(void **state)
{
    variant_scene_begin(state);
    variant_scene_put("{\"alpha\":{\"dtype\":\"F32\",\"shape\":[6,4],\"data_offsets\":[0,96]},"
                      "\"beta\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[96,120]},"
                      "\"gamma\":{\"dtype\":\"F16\",\"shape\":[6,4],\"data_offsets\":[120,168]},"
                      "\"e.0\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[168,176]},"
                      "\"e.2\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[176,184]},"
                      "\"d.0\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[184,192]},"
                      "\"d.00\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[192,200]},"
                      "\"w1\":{\"dtype\":\"F32\",\"shape\":[6,2],\"data_offsets\":[200,248]},"
                      "\"f8\":{\"dtype\":\"F8_E4M3\",\"shape\":[2,2],\"data_offsets\":[248,252]},"
                      "\"f8_s\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[252,260]},"
                      "\"f8_i\":{\"dtype\":\"I32\",\"shape\":[1,1],\"data_offsets\":[260,264]},"
                      "\"cube\":{\"dtype\":\"F8_E4M3\",\"shape\":[1,1,1],\"data_offsets\":[264,265]},"
                      "\"cube_s\":{\"dtype\":\"F32\",\"shape\":[1,1],\"data_offsets\":[265,269]},"
                      "\"f4\":{\"dtype\":\"F4\",\"shape\":[2,3],\"data_offsets\":[269,272]},"
                      "\"scalar\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[272,276]}}",
                      276, zero);
    return 0;
}

#define ROPE(heads) "{\"permute_rope\": {\"tensors\": [\"alpha\"], \"heads\": " heads ", \"to\": \"halves\"}}"
#define EXPERTS(tensor, experts, inner)                                                                                     \
    "{\"replicate_experts\": {\"tensors\": [\"" tensor "\"], \"experts\": " experts ", \"inter_dim\": " inner "}}"
#define SCALED(tensor, scale)                                                                                               \
    "{\"dequantize\": {\"tensors\": [\"" tensor "\"], \"scale\": \"" scale "\", \"block\": [2, 2], \"dtype\": \"F32\"}}"

static const struct {
    const char *step, *named;
    enum error_code code;
} wrong[] = {
    {"{\"drop\": [\"nobody.*\"]}", "nobody.*", ERROR_INVALID_ARGUMENT},
    {"{\"only\": [\"alpha\"]}", "tensor beta", ERROR_INVALID_ARGUMENT},
    {"{\"rename\": {\"nobody\": \"x\"}}", "nobody", ERROR_INVALID_ARGUMENT},
    {"{\"rename\": {\"alpha\": \"beta\"}}", "tensor beta", ERROR_INVALID_ARGUMENT},
    {"{\"alias\": {\"beta\": \"alpha\"}}", "tensor beta", ERROR_INVALID_ARGUMENT},
    {"{\"alias\": {\"x\": \"nobody\"}}", "nobody", ERROR_INVALID_ARGUMENT},
    {"{\"slice\": {\"tensors\": [\"alpha\"], \"slices\": [[0, 1]]}}", "alpha", ERROR_INVALID_ARGUMENT},
    {"{\"slice\": {\"tensors\": [\"f4\"], \"slices\": [[0, 1], [0, 3]]}}", "f4", ERROR_INVALID_ARGUMENT},
    {"{\"transpose\": {\"tensors\": [\"alpha\"], \"dims\": [0]}}", "alpha", ERROR_INVALID_ARGUMENT},
    {"{\"transpose\": {\"tensors\": [\"alpha\"], \"dims\": [0, 0]}}", "alpha", ERROR_INVALID_ARGUMENT},
    {"{\"transpose\": {\"tensors\": [\"alpha\"], \"dims\": [0, -2]}}", "twice", ERROR_INVALID_ARGUMENT},
    {"{\"transpose\": {\"tensors\": [\"alpha\"], \"dims\": [0, 2]}}", "number 2", ERROR_INVALID_ARGUMENT},
    {"{\"reshape\": {\"tensors\": [\"alpha\"], \"shape\": [5, -1]}}", "alpha", ERROR_INVALID_ARGUMENT},
    {"{\"reshape\": {\"tensors\": [\"alpha\"], \"shape\": [0, -1]}}", "alpha", ERROR_INVALID_ARGUMENT},
    {"{\"reshape\": {\"tensors\": [\"alpha\"], \"shape\": [5, 5]}}", "alpha", ERROR_INVALID_ARGUMENT},
    {"{\"reshape\": {\"tensors\": [\"alpha\"], \"shape\": [4294967296, 4294967296, 4294967296]}}", "alpha",
     ERROR_INVALID_ARGUMENT},
    {"{\"concat\": {\"from\": [\"alpha\", \"beta\"], \"to\": \"x\", \"dim\": 0}}", "tensor beta", ERROR_INVALID_ARGUMENT},
    {"{\"concat\": {\"from\": [\"alpha\", \"gamma\"], \"to\": \"x\", \"dim\": 0}}", "tensor gamma", ERROR_INVALID_ARGUMENT},
    {"{\"concat\": {\"from\": [\"alpha\", \"alpha\"], \"to\": \"x\", \"dim\": 0}}", "twice", ERROR_INVALID_ARGUMENT},
    {"{\"concat\": {\"from\": [\"alpha\", \"nobody\"], \"to\": \"x\", \"dim\": 0}}", "nobody", ERROR_INVALID_ARGUMENT},
    {"{\"concat\": {\"from\": [\"e.{}\", \"d.{}\"], \"to\": \"x.{}\", \"dim\": 0}}", "is missing", ERROR_INVALID_ARGUMENT},
    {"{\"concat\": {\"from\": [\"alpha\", \"w1\"], \"to\": \"x\", \"dim\": 2}}", "number 2", ERROR_INVALID_ARGUMENT},
    {"{\"split\": {\"from\": \"alpha\", \"to\": [\"x\", \"y\"], \"sizes\": [3, 2], \"dim\": 0}}", "alpha",
     ERROR_INVALID_ARGUMENT},
    {"{\"split\": {\"from\": \"alpha\", \"to\": [\"x\", \"y\", \"z\", \"u\"], \"even\": true, \"dim\": 0}}", "alpha",
     ERROR_INVALID_ARGUMENT},
    {"{\"split\": {\"from\": \"alpha\", \"to\": [\"x\", \"y\"], \"sizes\": [9223372036854775807, 9223372036854775807], "
     "\"dim\": 0}}",
     "alpha", ERROR_INVALID_ARGUMENT},
    {"{\"split\": {\"from\": \"scalar\", \"to\": [\"x\"], \"even\": true, \"dim\": 0}}", "scalar", ERROR_INVALID_ARGUMENT},
    {"{\"split\": {\"from\": \"alpha\", \"to\": [\"x\", \"x\"], \"even\": true, \"dim\": 0}}", "tensor x",
     ERROR_INVALID_ARGUMENT},
    {"{\"split\": {\"from\": \"f4\", \"to\": [\"x\", \"y\"], \"even\": true, \"dim\": 0}}", "f4", ERROR_INVALID_ARGUMENT},
    {"{\"stack\": {\"from\": \"e.{}\", \"to\": \"x\", \"dim\": 0}}", "tensor e.1", ERROR_INVALID_ARGUMENT},
    {"{\"stack\": {\"from\": \"d.{}\", \"to\": \"x\", \"dim\": 0}}", "same number", ERROR_INVALID_ARGUMENT},
    {"{\"stack\": {\"from\": \"nobody.{}\", \"to\": \"x\", \"dim\": 0}}", "nobody.{}", ERROR_INVALID_ARGUMENT},
    {"{\"stack\": {\"from\": \"w{}\", \"to\": \"x\", \"dim\": 4}}", "w0", ERROR_INVALID_ARGUMENT},
    {"{\"unstack\": {\"from\": \"alpha\", \"to\": \"x.{}\", \"dim\": 2}}", "alpha", ERROR_INVALID_ARGUMENT},
    {"{\"unstack\": {\"from\": \"f4\", \"to\": \"x.{}\", \"dim\": 0}}", "f4", ERROR_INVALID_ARGUMENT},
    {"{\"unstack\": {\"from\": \"e.0\", \"to\": \"e.{}\", \"dim\": 0}, \"optional\": true}, {\"stack\": {\"from\": "
     "\"e.{}\", "
     "\"to\": \"x\", \"dim\": 0}}",
     "tensor e.2", ERROR_INVALID_ARGUMENT},
    {ROPE("4"), "alpha", ERROR_INVALID_ARGUMENT},
    {ROPE("2"), "alpha", ERROR_INVALID_ARGUMENT},
    {"{\"permute_rope\": {\"tensors\": [\"scalar\"], \"heads\": 1, \"to\": \"halves\"}}", "scalar", ERROR_INVALID_ARGUMENT},
    {EXPERTS("w1", "3", "3"), "w1", ERROR_INVALID_ARGUMENT},
    {EXPERTS("w1", "4", "4"), "w1", ERROR_INVALID_ARGUMENT},
    {EXPERTS("alpha", "2", "3"), "alpha", ERROR_INVALID_ARGUMENT},
    {"{\"rename\": {\"scalar\": \"x.w2\"}}, " EXPERTS("x.w2", "1", "1"), "matrix", ERROR_INVALID_ARGUMENT},
    {EXPERTS("w1", "4611686018427387904", "6"), "too large", ERROR_INVALID_ARGUMENT},
    {"{\"cast\": {\"tensors\": [\"f4\"], \"dtype\": \"F32\"}}", "f4", ERROR_UNIMPLEMENTED},
    {SCALED("f8", "{tensor}_scale_inv"), "f8_scale_inv", ERROR_INVALID_ARGUMENT},
    {SCALED("f8", "{tensor}"), "missing", ERROR_INVALID_ARGUMENT},
    {SCALED("f8", "{tensor}_s"), "tensor f8_s", ERROR_INVALID_ARGUMENT},
    {SCALED("f8", "{tensor}_i"), "tensor f8_i", ERROR_INVALID_ARGUMENT},
    {SCALED("cube", "{tensor}_s"), "tensor cube", ERROR_INVALID_ARGUMENT},
    {SCALED("nobody", "{tensor}_s"), "nobody", ERROR_INVALID_ARGUMENT},
    {"{\"expect\": {\"alpha\": {\"shape\": [4, 6], \"dtype\": \"F32\"}, \"gamma\": {\"shape\": [6, 4], \"dtype\": "
     "\"BF16\"}, "
     "\"nobody\": {\"shape\": [], \"dtype\": \"F32\"}}}",
     "gamma is F16, not BF16; nobody is missing; beta is not expected", ERROR_INVALID_ARGUMENT},
};

TEST_IN(what_does_not_fit_is_refused_with_step_and_tensor, begin, variant_scene_end)
{
    char recipe[1000];
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        snprintf(recipe, sizeof recipe, "[{\"only\": [\"*\"]}, %s]", wrong[i].step);
        if (variant_scene_apply(recipe) == 0)
            fail_msg("%s is taken", recipe);
        if (variant_scene.error.code != wrong[i].code || !strstr(variant_scene.error.message, wrong[i].named) ||
            strncmp(variant_scene.error.message, "step ", 5) != 0)
            fail_msg("%s: %s: %s does not name %s", recipe, error_code_name(variant_scene.error.code),
                     variant_scene.error.message, wrong[i].named);
    }
}

TEST_IN(optional_steps_may_match_nothing, begin, variant_scene_end)
{
    assert_int_equal(
        variant_scene_apply(
            "[{\"drop\": [\"n*\"], \"optional\": true}, {\"rename\": {\"n\": \"m\"}, \"optional\": true}, "
            "{\"alias\": {\"n\": \"m\"}, \"optional\": true}, {\"stack\": {\"from\": \"n.{}\", \"to\": \"n\", "
            "\"dim\": 0}, \"optional\": true}, {\"concat\": {\"from\": [\"n\", \"m\"], \"to\": \"o\", \"dim\": 0}, "
            "\"optional\": true}, {\"split\": {\"from\": \"n\", \"to\": [\"m\"], \"even\": true, \"dim\": 0}, "
            "\"optional\": true}, {\"cast\": {\"tensors\": [\"n\"], \"dtype\": \"F16\"}, \"optional\": true}, "
            "{\"dequantize\": {\"tensors\": [\"n\"], \"scale\": \"{tensor}s\", \"block\": [1, 1], \"dtype\": "
            "\"F16\"}, \"optional\": true}]"),
        0);
    assert_int_equal(variant_scene.artifact->n_tensors, 15);
}

TEST_IN(expectations_may_allow_what_is_missing_or_too_many, begin, variant_scene_end)
{
    assert_int_equal(
        variant_scene_apply("[{\"expect\": {\"x\": {\"shape\": [], \"dtype\": \"F32\"}}, \"allow_missing\": true, "
                            "\"allow_extra\": true}]"),
        0);
    assert_int_equal(
        variant_scene_apply("[{\"select\": [\"e.*\"]}, {\"expect\": {\"e.0\": {\"shape\": [2], \"dtype\": \"F32\"}, "
                            "\"e.2\": {\"shape\": [2], \"dtype\": \"F32\"}}}]"),
        0);
}

/* More than a message holds: how many there are is told all the same. */
TEST_IN(many_complaints_are_counted, begin, variant_scene_end)
{
    static char recipe[20000];
    size_t used = (size_t)snprintf(recipe, sizeof recipe, "[{\"expect\": {");
    for (int i = 0; i < 200; i++)
        used += (size_t)snprintf(recipe + used, sizeof recipe - used,
                                 "%s\"a.rather.long.name.%d\": {\"shape\": [], \"dtype\": \"F32\"}", i ? ", " : "", i);
    snprintf(recipe + used, sizeof recipe - used, "}, \"allow_extra\": true}]");
    assert_int_equal(variant_scene_apply(recipe), -1);
    assert_non_null(strstr(variant_scene.error.message, "a.rather.long.name.0 is missing"));
    assert_non_null(strstr(variant_scene.error.message, " more"));
}

#define QUANTIZED(dtype)                                                                                                    \
    "{\"a.weight\":{\"dtype\":\"" dtype "\",\"shape\":[2,2],\"data_offsets\":[0,4]},"                                       \
    "\"a.weight_scale\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]},"                                         \
    "\"b.qweight\":{\"dtype\":\"I32\",\"shape\":[1],\"data_offsets\":[12,16]},"                                             \
    "\"b.scales\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[16,20]},"                                              \
    "\"n\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[20,24]}}"

static void casts(const char *tensors, const char *dtype, const char *named)
{
    char recipe[200];
    snprintf(recipe, sizeof recipe, "[{\"cast\": {\"tensors\": [%s], \"dtype\": \"%s\"}}]", tensors, dtype);
    int failed = variant_scene_apply(recipe);
    if (failed != (named ? -1 : 0))
        fail_msg("%s: %s", recipe, failed ? variant_scene.error.message : "taken");
    if (named && (!strstr(variant_scene.error.message, named) || !strstr(variant_scene.error.message, "fp8-block-to-bf16")))
        fail_msg("%s: %s", recipe, variant_scene.error.message);
}

TEST_IN(a_cast_of_everything_neither_leaves_scales_out_nor_rounds_them, begin, variant_scene_end)
{
    static const char *const types[] = {QUANTIZED("F8_E4M3"), QUANTIZED("F8_E5M2"), QUANTIZED("I8")};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        variant_scene_put(types[i], 24, zero);
        casts("\"*\"", "BF16", "tensor a.weight: ");
        casts("\"a.*\"", "F16", "tensor a.weight: ");
        casts("\"b.*\"", "BF16", "tensor b.qweight: ");
        casts("\"*\"", "F32", i < 2 ? "tensor a.weight: " : NULL); /* no scale is rounded, no integer cast */
        casts("\"n\"", "BF16", NULL);
        casts("\"n\", \"a.weight\"", "BF16", NULL); /* by name */
        casts("\"a.weight_scale\"", "BF16", NULL);
        casts("\"b.scales\"", "F32", NULL);
    }
}
