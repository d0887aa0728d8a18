/* Which dimension ranks split, by the name alone. */
#include "resolve/usual_split.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static int64_t split(const char *name, size_t n_dimensions)
{
    return usual_split_dimension(name, strlen(name), n_dimensions);
}

static void names_are_split_as_vllm_splits_them(void **state)
{
    (void)state;
    assert_int_equal(split("model.layers.0.self_attn.q_proj.weight", 2), 0);
    assert_int_equal(split("model.layers.0.self_attn.q_proj.bias", 1), 0);
    assert_int_equal(split("model.layers.0.self_attn.o_proj.weight", 2), 1);
    assert_int_equal(split("model.layers.0.self_attn.o_proj.bias", 1), USUAL_SPLIT_NONE);
    assert_int_equal(split("lm_head.weight", 2), 0);
    assert_int_equal(split("model.norm.weight", 1), USUAL_SPLIT_NONE);
    assert_int_equal(split("weight", 2), USUAL_SPLIT_NONE);
}

static void a_dimension_that_the_tensor_has_not_is_none(void **state)
{
    (void)state;
    assert_int_equal(split("x.down_proj.weight", 1), USUAL_SPLIT_NONE);
    assert_int_equal(split("x.up_proj.weight", 0), USUAL_SPLIT_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_split_as_vllm_splits_them),
        cmocka_unit_test(a_dimension_that_the_tensor_has_not_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
