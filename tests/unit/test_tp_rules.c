/* Which part of which tensor a tensor-parallel rank gets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "client/cli/tp_rules.h" /* before cmocka.h, whose macro fail() would hide base/error.h's function */

#include <cmocka.h>

enum { WHOLE = -1, REFUSED = -2 };

static struct arena arena;
static struct error error;

static int tear_down(void **state)
{
    (void)state;
    arena_fini(&arena);
    return 0;
}

static struct catalog_tensor tensor(const char *name, size_t rank, const uint64_t *shape)
{
    return (struct catalog_tensor){.name = name, .name_length = strlen(name), .dtype = "BF16", .shape = shape, .rank = rank};
}

static bool find_nothing(const void *data, const char *name, size_t length, struct tp_tensor *found)
{
    (void)data;
    (void)name;
    (void)length;
    (void)found;
    return false;
}

static int apply(const struct tp_split *split, const struct catalog_tensor *it, const struct tc_slice **slices)
{
    static const struct tp_model model;
    const struct tp_group group = {&model, (uint64_t)split->size, (uint64_t)split->rank, find_nothing, NULL};
    return tp_rules_apply(split, &group, it, &arena, slices, &error);
}

/* Applies the split; returns the one dimension that was cut, WHOLE or REFUSED. */
static int cut(const struct tp_split *split, const struct catalog_tensor *tensor, struct tc_slice *part)
{
    const struct tc_slice *slices;
    int dimension = WHOLE;
    if (apply(split, tensor, &slices) < 0)
        return REFUSED;
    for (size_t d = 0; slices && d < tensor->rank; d++) {
        if (slices[d].start == 0 && slices[d].stop == TC_OPEN_END)
            continue;
        assert_int_equal(dimension, WHOLE);
        dimension = (int)d;
        *part = slices[d];
    }
    return dimension;
}

static void the_usual_names_are_split_as_vllm_splits_them(void **state)
{
    static const struct {
        const char *name;
        size_t rank;
        int dimension;
    } cases[] = {
        {"model.layers.0.self_attn.q_proj.weight", 2, 0},
        {"model.layers.0.self_attn.k_proj.weight", 2, 0},
        {"model.layers.0.self_attn.v_proj.weight", 2, 0},
        {"model.layers.0.self_attn.q_proj.bias", 1, 0},
        {"model.layers.0.self_attn.o_proj.weight", 2, 1},
        {"model.layers.0.self_attn.o_proj.bias", 1, WHOLE},
        {"model.layers.0.self_attn.q_norm.weight", 1, WHOLE},
        {"model.layers.0.mlp.gate_proj.weight", 2, 0},
        {"model.layers.0.mlp.up_proj.bias", 1, 0},
        {"model.layers.0.mlp.down_proj.weight", 2, 1},
        {"model.layers.0.mlp.down_proj.bias", 1, WHOLE},
        {"model.layers.0.mlp.down_proj.weight_scale_inv", 2, 1},
        {"model.layers.0.mlp.gate.weight", 2, WHOLE},
        {"model.layers.0.block_sparse_moe.experts.7.w2.weight", 2, 1},
        {"model.layers.0.block_sparse_moe.experts.7.w3.weight", 2, 0},
        {"model.layers.0.input_layernorm.weight", 1, WHOLE},
        {"model.embed_tokens.weight", 2, 0},
        {"lm_head.weight", 2, 0},
        {"lm_head.bias", 1, 0},
        {"model.norm.weight", 1, WHOLE},
        {"my_q_proj.weight", 2, WHOLE},
        {"q_proj", 2, WHOLE},
        {"q_proj.weight.extra", 2, WHOLE},
        {"a.o_proj.weight", 1, WHOLE}, /* shares the name, has no dimension 1 */
        {"a.q_proj.weight", 0, WHOLE},
    };
    static const uint64_t shape[] = {8, 12};
    const struct tp_split split = {.size = 4, .rank = 3};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct catalog_tensor it = tensor(cases[i].name, cases[i].rank, shape);
        struct tc_slice part;
        int dimension = cut(&split, &it, &part);
        if (dimension != cases[i].dimension)
            fail_msg("%s is cut on %d", cases[i].name, dimension);
        if (dimension >= 0) {
            assert_int_equal(part.start, 3 * shape[dimension] / 4);
            assert_int_equal(part.stop, shape[dimension]);
        }
    }
}

static void every_rank_gets_its_own_share(void **state)
{
    static const uint64_t shape[] = {6};
    struct catalog_tensor it = tensor("q_proj.bias", 1, shape);
    (void)state;
    for (int64_t rank = 0; rank < 3; rank++) {
        struct tc_slice part;
        assert_int_equal(cut(&(struct tp_split){.size = 3, .rank = rank}, &it, &part), 0);
        assert_int_equal(part.start, 2 * rank);
        assert_int_equal(part.stop, 2 * rank + 2);
    }
}

static void a_group_of_one_takes_everything_whole(void **state)
{
    static const uint64_t shape[] = {7, 7};
    struct catalog_tensor it = tensor("q_proj.weight", 2, shape);
    struct tc_slice part;
    (void)state;
    assert_int_equal(cut(&(struct tp_split){.size = 1}, &it, &part), WHOLE);
}

static void the_first_rule_that_matches_decides(void **state)
{
    static const uint64_t shape[] = {4, 6};
    struct tp_rule rules[3];
    struct tc_slice part;
    (void)state;
    assert_int_equal(tp_rule_parse("a.x=replicate", &arena, &rules[0], &error), 0);
    assert_int_equal(tp_rule_parse("a.*=1", &arena, &rules[1], &error), 0);
    assert_int_equal(tp_rule_parse("?.x=-2", &arena, &rules[2], &error), 0);
    const struct tp_split split = {.size = 2, .rank = 1, .rules = rules, .n_rules = 3};
    struct catalog_tensor ax = tensor("a.x", 2, shape), ay = tensor("a.y", 2, shape), bx = tensor("b.x", 2, shape);
    struct catalog_tensor q = tensor("q_proj.weight", 2, shape);
    assert_int_equal(cut(&split, &ax, &part), WHOLE);
    assert_int_equal(cut(&split, &ay, &part), 1);
    assert_int_equal(part.start, 3);
    assert_int_equal(cut(&split, &bx, &part), 0);    /* -2 of two dimensions */
    assert_int_equal(cut(&split, &q, &part), WHOLE); /* the usual names count only without rules */
}

static void a_rule_may_name_any_dimension(void **state)
{
    static const uint64_t shape[] = {2, 3, 4, 6};
    struct tp_rule rule;
    struct tc_slice part;
    (void)state;
    struct catalog_tensor it = tensor("experts.up_proj.weight", 4, shape);
    static const struct {
        const char *text;
        int64_t size;
        int dimension;
    } cases[] = {{"*=0", 2, 0}, {"*=1", 3, 1}, {"*=-2", 4, 2}, {"*=-1", 3, 3}, {"*=-4", 2, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(tp_rule_parse(cases[i].text, &arena, &rule, &error), 0);
        const struct tp_split split = {.size = cases[i].size, .rank = 1, .rules = &rule, .n_rules = 1};
        assert_int_equal(cut(&split, &it, &part), cases[i].dimension);
        assert_int_equal(part.start, (int64_t)shape[cases[i].dimension] / cases[i].size);
    }
}

static void a_dimension_that_does_not_divide_is_refused_and_everything_named(void **state)
{
    static const uint64_t shape[] = {7, 6};
    struct catalog_tensor it = tensor("k_proj.weight", 2, shape);
    struct tc_slice part;
    (void)state;
    assert_int_equal(cut(&(struct tp_split){.size = 2}, &it, &part), REFUSED);
    assert_int_equal(error.code, ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "k_proj.weight"));
    assert_non_null(strstr(error.message, "(7)"));
    assert_non_null(strstr(error.message, "2 ranks"));
    assert_non_null(strstr(error.message, "'k_proj.weight=replicate'"));
}

static void a_rule_for_a_dimension_that_is_not_there_is_refused(void **state)
{
    static const uint64_t shape[] = {4, 4};
    struct tp_rule rule;
    struct tc_slice part;
    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tp_rule_parse(i ? "*=-3" : "*=2", &arena, &rule, &error), 0);
        struct catalog_tensor it = tensor("w", 2, shape);
        assert_int_equal(cut(&(struct tp_split){.size = 2, .rules = &rule, .n_rules = 1}, &it, &part), REFUSED);
        assert_non_null(strstr(error.message, "'w'"));
    }
}

static void an_empty_dimension_divides_by_any_number(void **state)
{
    static const uint64_t shape[] = {0, 5}, huge[] = {UINT64_MAX - 1, 0};
    struct catalog_tensor empty = tensor("q_proj.weight", 2, shape), unaddressable = tensor("q_proj.weight", 2, huge);
    const struct tc_slice *slices;
    (void)state;
    assert_int_equal(apply(&(struct tp_split){.size = 8, .rank = 7}, &empty, &slices), 0);
    assert_int_equal(slices[0].start, 0);
    assert_int_equal(slices[0].stop, 0);
    assert_int_equal(apply(&(struct tp_split){.size = 2, .rank = 1}, &unaddressable, &slices), 0);
    assert_null(slices);
}

static void a_rule_is_a_glob_an_equals_sign_and_a_dimension(void **state)
{
    static const char *const bad[] = {"",
                                      "w",
                                      "=0",
                                      "w=",
                                      "w=x",
                                      "w=1.0",
                                      "w=64",
                                      "w=-65",
                                      "w= 1",
                                      "w=--1",
                                      "w=+1",
                                      "w=1x",
                                      "w=99999999999999999999",
                                      "w=Replicate"};
    struct tp_rule rule;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (tp_rule_parse(bad[i], &arena, &rule, &error) == 0)
            fail_msg("accepted: %s", bad[i]);
    }
    assert_int_equal(tp_rule_parse("a=b=63", &arena, &rule, &error), 0);
    assert_string_equal(rule.glob, "a=b");
    assert_int_equal(rule.dimension, 63);
    assert_int_equal(tp_rule_parse("w=-64", &arena, &rule, &error), 0);
    assert_int_equal(rule.dimension, -64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(the_usual_names_are_split_as_vllm_splits_them, tear_down),
        cmocka_unit_test_teardown(every_rank_gets_its_own_share, tear_down),
        cmocka_unit_test_teardown(a_group_of_one_takes_everything_whole, tear_down),
        cmocka_unit_test_teardown(the_first_rule_that_matches_decides, tear_down),
        cmocka_unit_test_teardown(a_rule_may_name_any_dimension, tear_down),
        cmocka_unit_test_teardown(a_dimension_that_does_not_divide_is_refused_and_everything_named, tear_down),
        cmocka_unit_test_teardown(a_rule_for_a_dimension_that_is_not_there_is_refused, tear_down),
        cmocka_unit_test_teardown(an_empty_dimension_divides_by_any_number, tear_down),
        cmocka_unit_test_teardown(a_rule_is_a_glob_an_equals_sign_and_a_dimension, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
