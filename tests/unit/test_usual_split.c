/* Which dimension ranks split, by the name alone. */
#include "tests/support/unit.h"

#include "resolve/usual_split.h"

TEST(names_are_split_as_vllm_splits_them)
{
    enum { ANY = -2 };
    static const struct {
        const char *name;
        size_t n_dimensions;
        int64_t dimension;
        int unit; /* ANY = not looked at, as of dimension */
    } cases[] = {
        /* names are split as vllm splits them */
        {"model.layers.0.self_attn.q_proj.weight", 2, 0, ANY},
        {"model.layers.0.self_attn.q_proj.bias", 1, 0, ANY},
        {"model.layers.0.self_attn.o_proj.weight", 2, 1, ANY},
        {"model.layers.0.self_attn.o_proj.bias", 1, USUAL_SPLIT_NONE, ANY},
        {"lm_head.weight", 2, 0, ANY},
        {"model.norm.weight", 1, USUAL_SPLIT_NONE, ANY},
        {"weight", 2, USUAL_SPLIT_NONE, ANY},
        /* names of other families are split with those beside them */
        {"model.layers.0.self_attn.dense.weight", 2, 1, ANY},
        {"model.layers.0.self_attn.dense.bias", 1, USUAL_SPLIT_NONE, ANY},
        {"layers.0.attention.wq.weight", 2, 0, ANY},
        {"layers.0.attention.wk.weight", 2, 0, ANY},
        {"layers.0.attention.wo.weight", 2, 1, ANY},
        {"tok_embeddings.weight", 2, 0, ANY},
        {"output.weight", 2, 0, ANY},
        {"transformer.wte.weight", 2, 0, ANY},
        {"transformer.h.0.mlp.fc_out.weight", 2, 1, ANY},
        /* common words mean a split in their place alone */
        {"bert.pooler.dense.weight", 2, USUAL_SPLIT_NONE, ANY},
        {"encoder.layer.0.attention.output.dense.weight", 2, USUAL_SPLIT_NONE, ANY},
        {"decoder.block.0.layer.2.DenseReluDense.wo.weight", 2, USUAL_SPLIT_NONE, ANY},
        {"head.output.weight", 2, USUAL_SPLIT_NONE, ANY},
        /* a dimension that the tensor has not is none */
        {"x.down_proj.weight", 1, USUAL_SPLIT_NONE, ANY},
        {"x.up_proj.weight", 0, USUAL_SPLIT_NONE, ANY},
        /* what has more dimensions than one layer is whole */
        {"experts.gate_proj.weight", 3, USUAL_SPLIT_NONE, ANY},
        {"experts.down_proj.weight", 3, USUAL_SPLIT_NONE, ANY},
        {"experts.gate_proj.bias", 2, USUAL_SPLIT_NONE, ANY},
        {"patch.fc2.weight", 4, USUAL_SPLIT_NONE, ANY},
        /* scales are named after their weight */
        {"a.w2.weight_scale_inv", 2, 1, ANY},
        {"a.w1.weight_scale", 2, 0, ANY},
        {"a.w1.scale", 2, USUAL_SPLIT_NONE, ANY},
        /* what a rank gets a whole number of */
        {"l.0.self_attn.q_proj.weight", 2, ANY, USUAL_HEADS},
        {"l.0.self_attn.v_proj.weight", 2, ANY, USUAL_KV_HEADS},
        {"l.0.self_attn.out_proj.weight", 2, ANY, USUAL_HEADS},
        {"attn.out_proj.weight", 2, ANY, USUAL_HEADS},
        {"l.0.linear_attn.out_proj.weight", 2, ANY, USUAL_ROWS},
        {"out_proj.weight", 2, ANY, USUAL_ROWS},
        {"l.0.mlp.up_proj.weight", 2, ANY, USUAL_ROWS},
        {"l.0.attn.c_attn.weight", 2, ANY, USUAL_FUSED},
        {"l.0.attention.wqkv.weight", 2, ANY, USUAL_FUSED},
        {"l.0.linear_attn.in_proj_qkvz.weight", 2, ANY, USUAL_FUSED},
        {"l.0.mlp.c_fc.weight", 2, ANY, USUAL_UNCLEAR},
        {"l.0.mlp.c_proj.weight", 2, ANY, USUAL_UNCLEAR},
        {"l.0.attention.wv.weight", 2, ANY, USUAL_KV_HEADS},
        {"l.0.attention.wo.weight", 2, ANY, USUAL_HEADS},
        {"l.0.self_attn.dense.weight", 2, ANY, USUAL_HEADS},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct usual_split found = usual_split_find(cases[i].name, strlen(cases[i].name), cases[i].n_dimensions);
        if ((cases[i].dimension != ANY && found.dimension != cases[i].dimension) ||
            (cases[i].unit != ANY && (int)found.unit != cases[i].unit))
            fail_msg("%s: dimension %d, unit %d", cases[i].name, (int)found.dimension, (int)found.unit);
    }
}
