#include "resolve/usual_split.h"

#include <stdbool.h>
#include <string.h>

/* Module name (the component before "weight" or "bias") -> where vLLM's linear and embedding layers split it. Layers that
 * split their output split their bias with it; layers that split their input add their bias once, after the sum. */
static const struct usual_row {
    const char *module;
    int weight_dimension, bias_dimension;
    enum usual_unit unit;
    enum { ANYWHERE, IN_ATTENTION, AT_TOP } where; /* the word means this only there */
} usual_rows[] = {
    {"q_proj", 0, 0, USUAL_HEADS, ANYWHERE},
    {"k_proj", 0, 0, USUAL_KV_HEADS, ANYWHERE},
    {"v_proj", 0, 0, USUAL_KV_HEADS, ANYWHERE},
    {"o_proj", 1, USUAL_SPLIT_NONE, USUAL_HEADS, ANYWHERE},
    {"gate_proj", 0, 0, USUAL_ROWS, ANYWHERE},
    {"up_proj", 0, 0, USUAL_ROWS, ANYWHERE},
    {"w1", 0, 0, USUAL_ROWS, ANYWHERE},
    {"down_proj", 1, USUAL_SPLIT_NONE, USUAL_ROWS, ANYWHERE},
    {"w3", 0, 0, USUAL_ROWS, ANYWHERE},
    {"w2", 1, USUAL_SPLIT_NONE, USUAL_ROWS, ANYWHERE},
    {"fc1", 0, 0, USUAL_ROWS, ANYWHERE},
    {"fc2", 1, USUAL_SPLIT_NONE, USUAL_ROWS, ANYWHERE},
    {"q_b_proj", 0, 0, USUAL_HEADS, ANYWHERE},
    {"kv_b_proj", 0, 0, USUAL_HEADS, ANYWHERE},
    {"lm_head", 0, 0, USUAL_ROWS, ANYWHERE},
    {"out_proj", 1, USUAL_SPLIT_NONE, USUAL_HEADS, IN_ATTENTION},
    {"out_proj", 1, USUAL_SPLIT_NONE, USUAL_ROWS, ANYWHERE},
    {"embed_tokens", 0, USUAL_SPLIT_NONE, USUAL_ROWS, ANYWHERE},
    {"dense", 1, USUAL_SPLIT_NONE, USUAL_HEADS, IN_ATTENTION}, /* Phi */
    {"wq", 0, 0, USUAL_HEADS, IN_ATTENTION},                   /* Mistral's own format, InternLM2 */
    {"wk", 0, 0, USUAL_KV_HEADS, IN_ATTENTION},
    {"wv", 0, 0, USUAL_KV_HEADS, IN_ATTENTION},
    {"wo", 1, USUAL_SPLIT_NONE, USUAL_HEADS, IN_ATTENTION},
    {"tok_embeddings", 0, USUAL_SPLIT_NONE, USUAL_ROWS, ANYWHERE},
    {"wte", 0, USUAL_SPLIT_NONE, USUAL_ROWS, ANYWHERE},
    {"fc_in", 0, 0, USUAL_ROWS, ANYWHERE}, /* GPT-J */
    {"fc_out", 1, USUAL_SPLIT_NONE, USUAL_ROWS, ANYWHERE},
    {"c_fc", 0, 0, USUAL_UNCLEAR, ANYWHERE}, /* StarCoder2; GPT-2 has it transposed */
    {"c_proj", 1, USUAL_SPLIT_NONE, USUAL_UNCLEAR, ANYWHERE},
    {"in_proj_qkvz", 0, 0, USUAL_FUSED, ANYWHERE}, /* Qwen3-Next */
    {"in_proj_ba", 0, 0, USUAL_FUSED, ANYWHERE},
    {"output", 0, 0, USUAL_ROWS, AT_TOP},
    {"wqkv", 0, 0, USUAL_FUSED, ANYWHERE},
    {"qkv_proj", 0, 0, USUAL_FUSED, ANYWHERE},
    {"query_key_value", 0, 0, USUAL_FUSED, ANYWHERE},
    {"Wqkv", 0, 0, USUAL_FUSED, ANYWHERE},
    {"qkv", 0, 0, USUAL_FUSED, ANYWHERE},
    {"c_attn", 0, 0, USUAL_FUSED, ANYWHERE},
    {"gate_up_proj", 0, 0, USUAL_FUSED, ANYWHERE},
};

static bool is_word(const char *word, const char *text, size_t length)
{
    return strlen(word) == length && memcmp(word, text, length) == 0;
}

/* The last component of the first `length` bytes; `dot` is where it begins, less one. */
static const char *last_component(const char *name, size_t length, const char **dot)
{
    *dot = memrchr(name, '.', length);
    return *dot ? *dot + 1 : name;
}

struct usual_split usual_split_find(const char *name, size_t name_length, size_t n_dimensions)
{
    const char *end, *dot, *before; /* "a.attn.q_proj.weight" */
    const char *parameter = last_component(name, name_length, &end);
    if (!end)
        return (struct usual_split){USUAL_SPLIT_NONE, USUAL_ROWS};
    const char *module = last_component(name, (size_t)(end - name), &dot);
    const char *parent = dot ? last_component(name, (size_t)(dot - name), &before) : name;
    size_t length = (size_t)(name + name_length - parameter), parent_length = dot ? (size_t)(dot - parent) : 0;
    bool is_attention = is_word("self_attn", parent, parent_length) || is_word("attention", parent, parent_length) ||
                        is_word("attn", parent, parent_length) || is_word("self_attention", parent, parent_length);
    for (size_t i = 0; i < sizeof usual_rows / sizeof usual_rows[0]; i++) {
        const struct usual_row *row = &usual_rows[i];
        if (is_word(row->module, module, (size_t)(end - module)) && (row->where != AT_TOP || !dot) &&
            (row->where != IN_ATTENTION || is_attention)) {
            bool is_bias = is_word("bias", parameter, length);
            bool is_weight = is_word("weight", parameter, length) || is_word("weight_scale", parameter, length) ||
                             is_word("weight_scale_inv", parameter, length); /* scales follow their weight */
            int dimension = is_bias ? row->bias_dimension : is_weight ? row->weight_dimension : USUAL_SPLIT_NONE;
            bool has_it =
                n_dimensions <= (is_bias ? 1 : 2) && dimension < (int)n_dimensions; /* else it only shares the name */
            return (struct usual_split){has_it ? dimension : USUAL_SPLIT_NONE, row->unit};
        }
    }
    return (struct usual_split){USUAL_SPLIT_NONE, USUAL_ROWS};
}
