#include "recipe/builtin_recipes.h"

#include <string.h>

/* A step that names everything a model of this kind has stands before or behind the renames: what it does not name would
 * keep its name, or its rotary pairs their order, unnoticed. */
const struct builtin_recipe builtin_recipes[] = {
    {"hf-llama-to-torchtitan", "Llama as on Hugging Face to torchtitan's names and order of rotary pairs",
     "version: 1\n"
     "steps:\n"
     "  - drop: ['*.rotary_emb.inv_freq']\n"
     "    optional: true\n"
     "  - only: [model.embed_tokens.weight, model.norm.weight, lm_head.weight,\n"
     "           'model.layers.{}.self_attn.q_proj.weight', 'model.layers.{}.self_attn.k_proj.weight',\n"
     "           'model.layers.{}.self_attn.v_proj.weight', 'model.layers.{}.self_attn.o_proj.weight',\n"
     "           'model.layers.{}.mlp.gate_proj.weight', 'model.layers.{}.mlp.up_proj.weight',\n"
     "           'model.layers.{}.mlp.down_proj.weight', 'model.layers.{}.input_layernorm.weight',\n"
     "           'model.layers.{}.post_attention_layernorm.weight']\n"
     "    optional: true\n"
     "  - rename:\n"
     "      model.embed_tokens.weight: tok_embeddings.weight\n"
     "      'model.layers.{}.self_attn.q_proj.weight': 'layers.{}.attention.wq.weight'\n"
     "      'model.layers.{}.self_attn.k_proj.weight': 'layers.{}.attention.wk.weight'\n"
     "      'model.layers.{}.self_attn.v_proj.weight': 'layers.{}.attention.wv.weight'\n"
     "      'model.layers.{}.self_attn.o_proj.weight': 'layers.{}.attention.wo.weight'\n"
     "      'model.layers.{}.mlp.gate_proj.weight': 'layers.{}.feed_forward.w1.weight'\n"
     "      'model.layers.{}.mlp.up_proj.weight': 'layers.{}.feed_forward.w3.weight'\n"
     "      'model.layers.{}.mlp.down_proj.weight': 'layers.{}.feed_forward.w2.weight'\n"
     "      'model.layers.{}.input_layernorm.weight': 'layers.{}.attention_norm.weight'\n"
     "      'model.layers.{}.post_attention_layernorm.weight': 'layers.{}.ffn_norm.weight'\n"
     "      model.norm.weight: norm.weight\n"
     "  - rename: {lm_head.weight: output.weight}\n"
     "    optional: true\n"
     "  - permute_rope: {tensors: ['layers.{}.attention.wq.weight'], heads: '${num_attention_heads}', to: interleaved}\n"
     "  - permute_rope: {tensors: ['layers.{}.attention.wk.weight'], heads: '${num_key_value_heads}', to: interleaved}\n"},
    {"torchtitan-to-hf-llama", "torchtitan's Llama back to what Hugging Face has",
     "version: 1\n"
     "steps:\n"
     "  - drop: [freqs_cis]\n"
     "    optional: true\n"
     "  - only: [tok_embeddings.weight, norm.weight, output.weight, lm_head.weight,\n"
     "           'layers.{}.attention.wq.weight', 'layers.{}.attention.wk.weight', 'layers.{}.attention.wv.weight',\n"
     "           'layers.{}.attention.wo.weight', 'layers.{}.feed_forward.w1.weight',\n"
     "           'layers.{}.feed_forward.w3.weight', 'layers.{}.feed_forward.w2.weight',\n"
     "           'layers.{}.attention_norm.weight', 'layers.{}.ffn_norm.weight']\n"
     "    optional: true\n"
     "  - permute_rope: {tensors: ['layers.{}.attention.wq.weight'], heads: '${num_attention_heads}', to: halves}\n"
     "  - permute_rope: {tensors: ['layers.{}.attention.wk.weight'], heads: '${num_key_value_heads}', to: halves}\n"
     "  - rename:\n"
     "      tok_embeddings.weight: model.embed_tokens.weight\n"
     "      'layers.{}.attention.wq.weight': 'model.layers.{}.self_attn.q_proj.weight'\n"
     "      'layers.{}.attention.wk.weight': 'model.layers.{}.self_attn.k_proj.weight'\n"
     "      'layers.{}.attention.wv.weight': 'model.layers.{}.self_attn.v_proj.weight'\n"
     "      'layers.{}.attention.wo.weight': 'model.layers.{}.self_attn.o_proj.weight'\n"
     "      'layers.{}.feed_forward.w1.weight': 'model.layers.{}.mlp.gate_proj.weight'\n"
     "      'layers.{}.feed_forward.w3.weight': 'model.layers.{}.mlp.up_proj.weight'\n"
     "      'layers.{}.feed_forward.w2.weight': 'model.layers.{}.mlp.down_proj.weight'\n"
     "      'layers.{}.attention_norm.weight': 'model.layers.{}.input_layernorm.weight'\n"
     "      'layers.{}.ffn_norm.weight': 'model.layers.{}.post_attention_layernorm.weight'\n"
     "      norm.weight: model.norm.weight\n"
     "  - rename: {output.weight: lm_head.weight}\n"
     "    optional: true\n"},
    {"moe-upcycle",
     "dense feed-forward layers to experts: --set experts=N, --set inter_dim=M, --set shuffle_seed=S to shuffle them",
     "version: 1\n"
     "steps:\n"
     "  - replicate_experts: {tensors: ['*moe.experts.w*'], experts: '${experts}', inter_dim: '${inter_dim}',\n"
     "                        shuffle_seed: '${shuffle_seed:-null}'}\n"},
    {"fp8-block-to-bf16", "weights of 8 bits with a scale for every 128x128 of them (X.weight_scale_inv) to BF16",
     "version: 1\n"
     "steps:\n"
     "  - rename: {'*_scale_inv': '*_scale_inv'} # there have to be some\n"
     "  - dequantize: {tensors: ['*'], scale: '{tensor}_scale_inv', block: [128, 128], dtype: BF16}\n"},
};
const size_t n_builtin_recipes = sizeof builtin_recipes / sizeof builtin_recipes[0];

const struct builtin_recipe *builtin_recipe_find(const char *name)
{
    for (size_t i = 0; i < n_builtin_recipes; i++) {
        if (strcmp(builtin_recipes[i].name, name) == 0)
            return &builtin_recipes[i];
    }
    return NULL;
}
