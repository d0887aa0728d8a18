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
    return usual_split_find(name, strlen(name), n_dimensions).dimension;
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

static void names_of_other_families_are_split_with_those_beside_them(void **state)
{
    (void)state;
    assert_int_equal(split("model.layers.0.self_attn.dense.weight", 2), 1);
    assert_int_equal(split("model.layers.0.self_attn.dense.bias", 1), USUAL_SPLIT_NONE);
    assert_int_equal(split("layers.0.attention.wq.weight", 2), 0);
    assert_int_equal(split("layers.0.attention.wk.weight", 2), 0);
    assert_int_equal(split("layers.0.attention.wo.weight", 2), 1);
    assert_int_equal(split("tok_embeddings.weight", 2), 0);
    assert_int_equal(split("output.weight", 2), 0);
    assert_int_equal(split("transformer.wte.weight", 2), 0);
    assert_int_equal(split("transformer.h.0.mlp.fc_out.weight", 2), 1);
}

static void common_words_mean_a_split_in_their_place_alone(void **state)
{
    (void)state;
    assert_int_equal(split("bert.pooler.dense.weight", 2), USUAL_SPLIT_NONE);
    assert_int_equal(split("encoder.layer.0.attention.output.dense.weight", 2), USUAL_SPLIT_NONE);
    assert_int_equal(split("decoder.block.0.layer.2.DenseReluDense.wo.weight", 2), USUAL_SPLIT_NONE);
    assert_int_equal(split("head.output.weight", 2), USUAL_SPLIT_NONE);
}

static void a_dimension_that_the_tensor_has_not_is_none(void **state)
{
    (void)state;
    assert_int_equal(split("x.down_proj.weight", 1), USUAL_SPLIT_NONE);
    assert_int_equal(split("x.up_proj.weight", 0), USUAL_SPLIT_NONE);
}

static void what_has_more_dimensions_than_one_layer_is_whole(void **state)
{
    (void)state;
    assert_int_equal(split("experts.gate_proj.weight", 3), USUAL_SPLIT_NONE);
    assert_int_equal(split("experts.down_proj.weight", 3), USUAL_SPLIT_NONE);
    assert_int_equal(split("experts.gate_proj.bias", 2), USUAL_SPLIT_NONE);
    assert_int_equal(split("patch.fc2.weight", 4), USUAL_SPLIT_NONE);
}

static void scales_are_named_after_their_weight(void **state)
{
    (void)state;
    assert_int_equal(split("a.w2.weight_scale_inv", 2), 1);
    assert_int_equal(split("a.w1.weight_scale", 2), 0);
    assert_int_equal(split("a.w1.scale", 2), USUAL_SPLIT_NONE);
}

static enum usual_unit unit(const char *name)
{
    return usual_split_find(name, strlen(name), 2).unit;
}

static void what_a_rank_gets_a_whole_number_of(void **state)
{
    (void)state;
    assert_int_equal(unit("l.0.self_attn.q_proj.weight"), USUAL_HEADS);
    assert_int_equal(unit("l.0.self_attn.v_proj.weight"), USUAL_KV_HEADS);
    assert_int_equal(unit("l.0.self_attn.out_proj.weight"), USUAL_HEADS);
    assert_int_equal(unit("attn.out_proj.weight"), USUAL_HEADS);
    assert_int_equal(unit("l.0.linear_attn.out_proj.weight"), USUAL_ROWS);
    assert_int_equal(unit("out_proj.weight"), USUAL_ROWS);
    assert_int_equal(unit("l.0.mlp.up_proj.weight"), USUAL_ROWS);
    assert_int_equal(unit("l.0.attn.c_attn.weight"), USUAL_FUSED);
    assert_int_equal(unit("l.0.attention.wqkv.weight"), USUAL_FUSED);
    assert_int_equal(unit("l.0.linear_attn.in_proj_qkvz.weight"), USUAL_FUSED);
    assert_int_equal(unit("l.0.mlp.c_fc.weight"), USUAL_UNCLEAR);
    assert_int_equal(unit("l.0.mlp.c_proj.weight"), USUAL_UNCLEAR);
    assert_int_equal(unit("l.0.attention.wv.weight"), USUAL_KV_HEADS);
    assert_int_equal(unit("l.0.attention.wo.weight"), USUAL_HEADS);
    assert_int_equal(unit("l.0.self_attn.dense.weight"), USUAL_HEADS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_split_as_vllm_splits_them),
        cmocka_unit_test(names_of_other_families_are_split_with_those_beside_them),
        cmocka_unit_test(common_words_mean_a_split_in_their_place_alone),
        cmocka_unit_test(a_dimension_that_the_tensor_has_not_is_none),
        cmocka_unit_test(what_has_more_dimensions_than_one_layer_is_whole),
        cmocka_unit_test(scales_are_named_after_their_weight),
        cmocka_unit_test(what_a_rank_gets_a_whole_number_of),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
