"""The recipes that come with the client: those of daemon/recipe/builtin_recipes.c, word for word, which tests compare."""

RECIPES = {
    "hf-llama-to-torchtitan": """\
version: 1
steps:
  - drop: ['*.rotary_emb.inv_freq']
    optional: true
  - only: [model.embed_tokens.weight, model.norm.weight, lm_head.weight,
           'model.layers.{}.self_attn.q_proj.weight', 'model.layers.{}.self_attn.k_proj.weight',
           'model.layers.{}.self_attn.v_proj.weight', 'model.layers.{}.self_attn.o_proj.weight',
           'model.layers.{}.mlp.gate_proj.weight', 'model.layers.{}.mlp.up_proj.weight',
           'model.layers.{}.mlp.down_proj.weight', 'model.layers.{}.input_layernorm.weight',
           'model.layers.{}.post_attention_layernorm.weight']
    optional: true
  - rename:
      model.embed_tokens.weight: tok_embeddings.weight
      'model.layers.{}.self_attn.q_proj.weight': 'layers.{}.attention.wq.weight'
      'model.layers.{}.self_attn.k_proj.weight': 'layers.{}.attention.wk.weight'
      'model.layers.{}.self_attn.v_proj.weight': 'layers.{}.attention.wv.weight'
      'model.layers.{}.self_attn.o_proj.weight': 'layers.{}.attention.wo.weight'
      'model.layers.{}.mlp.gate_proj.weight': 'layers.{}.feed_forward.w1.weight'
      'model.layers.{}.mlp.up_proj.weight': 'layers.{}.feed_forward.w3.weight'
      'model.layers.{}.mlp.down_proj.weight': 'layers.{}.feed_forward.w2.weight'
      'model.layers.{}.input_layernorm.weight': 'layers.{}.attention_norm.weight'
      'model.layers.{}.post_attention_layernorm.weight': 'layers.{}.ffn_norm.weight'
      model.norm.weight: norm.weight
  - rename: {lm_head.weight: output.weight}
    optional: true
  - permute_rope: {tensors: ['layers.{}.attention.wq.weight'], heads: '${num_attention_heads}', to: interleaved}
  - permute_rope: {tensors: ['layers.{}.attention.wk.weight'], heads: '${num_key_value_heads}', to: interleaved}
""",
    "torchtitan-to-hf-llama": """\
version: 1
steps:
  - drop: [freqs_cis]
    optional: true
  - only: [tok_embeddings.weight, norm.weight, output.weight, lm_head.weight,
           'layers.{}.attention.wq.weight', 'layers.{}.attention.wk.weight', 'layers.{}.attention.wv.weight',
           'layers.{}.attention.wo.weight', 'layers.{}.feed_forward.w1.weight',
           'layers.{}.feed_forward.w3.weight', 'layers.{}.feed_forward.w2.weight',
           'layers.{}.attention_norm.weight', 'layers.{}.ffn_norm.weight']
    optional: true
  - permute_rope: {tensors: ['layers.{}.attention.wq.weight'], heads: '${num_attention_heads}', to: halves}
  - permute_rope: {tensors: ['layers.{}.attention.wk.weight'], heads: '${num_key_value_heads}', to: halves}
  - rename:
      tok_embeddings.weight: model.embed_tokens.weight
      'layers.{}.attention.wq.weight': 'model.layers.{}.self_attn.q_proj.weight'
      'layers.{}.attention.wk.weight': 'model.layers.{}.self_attn.k_proj.weight'
      'layers.{}.attention.wv.weight': 'model.layers.{}.self_attn.v_proj.weight'
      'layers.{}.attention.wo.weight': 'model.layers.{}.self_attn.o_proj.weight'
      'layers.{}.feed_forward.w1.weight': 'model.layers.{}.mlp.gate_proj.weight'
      'layers.{}.feed_forward.w3.weight': 'model.layers.{}.mlp.up_proj.weight'
      'layers.{}.feed_forward.w2.weight': 'model.layers.{}.mlp.down_proj.weight'
      'layers.{}.attention_norm.weight': 'model.layers.{}.input_layernorm.weight'
      'layers.{}.ffn_norm.weight': 'model.layers.{}.post_attention_layernorm.weight'
      norm.weight: model.norm.weight
  - rename: {output.weight: lm_head.weight}
    optional: true
""",
    "moe-upcycle": """\
version: 1
steps:
  - replicate_experts: {tensors: ['*moe.experts.w*'], experts: '${experts}', inter_dim: '${inter_dim}',
                        shuffle_seed: '${shuffle_seed:-null}'}
""",
    "fp8-block-to-bf16": """\
version: 1
steps:
  - rename: {'*_scale_inv': '*_scale_inv'} # there have to be some
  - dequantize: {tensors: ['*'], scale: '{tensor}_scale_inv', block: [128, 128], dtype: BF16}
""",
}
