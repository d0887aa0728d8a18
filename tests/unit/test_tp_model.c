/* How many heads and how large blocks a config.json tells of. */
#include "tests/support/unit.h"

#include "resolve/tp_model.h" /* before cmocka.h, whose macro fail() would hide base/error.h's function */

static struct tp_model model;
static struct error error;

static void read_it(const char *json)
{
    if (tp_model_read(json, strlen(json), &model, &error) < 0)
        fail_msg("%s: %s", json, error.message);
}

static struct tp_heads heads(const char *name)
{
    return *tp_model_heads(&model, name, strlen(name));
}

TEST(heads_are_known_by_the_names_that_vllm_knows)
{
    static const struct {
        const char *json;
        uint64_t query, kv;
    } cases[] = {
        {"{}", 0, 0},
        {"{\"num_attention_heads\": 20, \"num_key_value_heads\": 5}", 20, 5},
        {"{\"num_attention_heads\": 20}", 20, 20},
        {"{\"num_attention_heads\": 4, \"rope_theta\": Infinity, \"num_attention_heads\": 8, \"num_key_value_heads\": NaN}",
         8, 8},
        {"{\"num_attention_heads\": 20, \"num_key_value_heads\": null}", 20, 20},
        {"{\"num_attention_heads\": 20.5, \"hidden_size\": -1e300}", 0, 0},
        {"{\"n_head\": 9, \"n_head_kv\": 3, \"num_key_value_heads\": 9}", 9, 3},
        {"{\"num_key_value_heads\": 9, \"num_kv_heads\": 3, \"n_head\": 9}", 9, 3},
        {"{\"num_attention_heads\": 71, \"multi_query\": true}", 71, 1},
        {"{\"num_attention_heads\": 71, \"multi_query\": false}", 71, 71},
        {"{\"num_attention_heads\": 64, \"multi_query\": true, \"new_decoder_architecture\": true, \"num_kv_heads\": 8, "
         "\"model_type\": \"falcon\"}",
         64, 8},
        {"{\"num_attention_heads\": 32, \"multi_query_attention\": true, \"multi_query_group_num\": 2}", 32, 2},
        {"{\"n_heads\": 24, \"attn_config\": {\"kv_n_heads\": 6, \"rope\": {\"num_heads\": 1}}}", 24, 6},
        {"{\"num_attention_heads\": 2, \"text_config\": {\"num_attention_heads\": 14, \"num_key_value_heads\": 7}}", 14, 7},
        {"{\"llm_config\": {\"num_attention_heads\": 14}, \"other\": {\"num_attention_heads\": 3}}", 14, 14},
        {"{\"thinker_config\": {\"text_config\": {\"num_attention_heads\": 12, \"num_key_value_heads\": 4}}}", 12, 4},
        {"{\"num_attention_heads\": 12, \"text_config\": {\"num_key_value_heads\": 4}}", 12, 4},
        {"{\"num_attention_heads\": 12, \"text_config\": {\"hidden_size\": 4}}", 12, 12},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        read_it(cases[i].json);
        struct tp_heads found = heads("model.layers.0.self_attn.k_proj.weight");
        if (found.query != cases[i].query || found.kv != cases[i].kv || found.is_list)
            fail_msg("%s: %d and %d heads", cases[i].json, (int)found.query, (int)found.kv);
    }
}

TEST(each_tower_has_heads_of_its_own)
{
    read_it("{\"vision_config\": {\"num_heads\": 16}, \"num_attention_heads\": 28, \"num_key_value_heads\": 4, "
            "\"audio_config\": {\"encoder_attention_heads\": 20}}");
    assert_int_equal(heads("model.layers.1.self_attn.q_proj.weight").kv, 4);
    assert_int_equal(heads("visual.blocks.1.attn.q_proj.weight").query, 16);
    assert_int_equal(heads("model.vision_tower.0.q_proj.weight").kv, 16);
    assert_int_equal(heads("audio_tower.layers.0.q_proj.weight").query, 20);
}

TEST(a_number_for_each_layer_is_noticed)
{
    read_it("{\"num_query_heads\": [12, 16], \"num_kv_heads\": [3, [4]]}");
    assert_true(heads("l").is_list);
}

TEST(blocks_are_those_of_the_quantization)
{
    read_it("{\"quantization_config\": {\"weight_block_size\": [64, 32], \"num_attention_heads\": 4}}");
    assert_int_equal(model.block[0], 64);
    assert_int_equal(model.block[1], 32);
    assert_int_equal(heads("x").query, 0);
    static const char *const none[] = {"{\"weight_block_size\": [64, 32]}",
                                       "{\"quantization_config\": {\"weight_block_size\": null}}",
                                       "{\"quantization_config\": {\"weight_block_size\": [128]}}",
                                       "{\"quantization_config\": {\"weight_block_size\": [128, 0]}}",
                                       "{\"quantization_config\": {\"weight_block_size\": [1, 2, 3]}}"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        read_it(none[i]);
        assert_int_equal(model.block[0], 0);
    }
}

TEST(without_a_file_nothing_is_known_and_a_broken_one_is_refused)
{
    static const char *const broken[] = {"", "[]", "{\"num_attention_heads\": 4", "{\"text_config\": {\"a\" 1}}", "{} {}"};
    assert_int_equal(tp_model_read(NULL, 0, &model, &error), 0);
    assert_int_equal(heads("q_proj.weight").query, 0);
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        if (tp_model_read(broken[i], strlen(broken[i]), &model, &error) == 0)
            fail_msg("taken: %s", broken[i]);
        assert_non_null(strstr(error.message, "config.json"));
    }
}
