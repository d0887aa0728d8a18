/* Which rows or columns of a tensor a tensor-parallel rank gets. */
#include "tests/support/unit.h"

#include "resolve/tp_part.h" /* before cmocka.h, whose macro fail() would hide base/error.h's function */
#include "resolve/usual_split.h"

enum { MOST = 4 };
static struct tp_tensor tensors[MOST];
static uint64_t shapes[MOST][3];
static size_t n_tensors;
static struct tp_model model;
static struct tp_part part;
static struct error error;

static int start_over(void **state)
{
    (void)state;
    n_tensors = 0;
    model = (struct tp_model){0};
    return 0;
}

static const struct tp_tensor *add(const char *name, uint64_t rows, uint64_t columns)
{
    uint64_t *shape = shapes[n_tensors];
    shape[0] = rows;
    shape[1] = columns;
    tensors[n_tensors] = (struct tp_tensor){name, strlen(name), shape, columns ? 2 : 1};
    return &tensors[n_tensors++];
}

static bool find(const void *data, const char *name, size_t length, struct tp_tensor *found)
{
    (void)data;
    for (size_t i = 0; i < n_tensors; i++) {
        *found = tensors[i];
        if (found->name_length == length && memcmp(found->name, name, length) == 0)
            return true;
    }
    return false;
}

static void gets(const struct tp_tensor *tensor, uint64_t size, uint64_t rank, int64_t dimension, uint64_t start,
                 uint64_t stop)
{
    const struct tp_group group = {&model, size, rank, find, NULL};
    if (tp_part_find(&group, tensor, &part, &error) < 0)
        fail_msg("%s", error.message);
    if (part.dimension != dimension || (dimension >= 0 && (part.start != start || part.stop != stop)))
        fail_msg("%s, rank %d: %d, %d to %d", tensor->name, (int)rank, (int)part.dimension, (int)part.start, (int)part.stop);
}

static void is_refused(const struct tp_tensor *tensor, uint64_t size, const char *reason, const char *words)
{
    for (uint64_t rank = 0; rank < size; rank++) {
        const struct tp_group group = {&model, size, rank, find, NULL};
        if (tp_part_find(&group, tensor, &part, &error) == 0)
            fail_msg("%s on %d ranks: taken", tensor->name, (int)size);
        assert_string_equal(error.reason, reason);
        if (!strstr(error.message, tensor->name) || !strstr(error.message, words))
            fail_msg("%s", error.message);
    }
}

TEST_IN(keys_and_values_are_replicated_where_ranks_are_more_than_heads, start_over, NULL)
{
    model.heads[TP_TEXT] = (struct tp_heads){12, 3, false};
    const struct tp_tensor *k = add("a.k_proj.weight", 15, 7), *bias = add("a.v_proj.bias", 15, 0);
    for (uint64_t rank = 0; rank < 12; rank++) {
        gets(k, 12, rank, 0, 5 * (rank / 4), 5 * (rank / 4) + 5);
        gets(bias, 6, rank / 2, 0, 5 * (rank / 4), 5 * (rank / 4) + 5);
    }
    for (uint64_t rank = 0; rank < 3; rank++)
        gets(k, 3, rank, 0, 5 * rank, 5 * rank + 5);
    gets(k, 1, 0, USUAL_SPLIT_NONE, 0, 0);
    is_refused(k, 2, "HEADS_DO_NOT_DIVIDE", "3 key and value heads");
    is_refused(k, 4, "HEADS_DO_NOT_DIVIDE", "4 ranks");
}

TEST_IN(query_heads_stay_whole, start_over, NULL)
{
    model.heads[TP_TEXT] = (struct tp_heads){6, 6, false};
    const struct tp_tensor *q = add("q_proj.weight", 24, 5), *o = add("self_attn.o_proj.weight", 5, 24),
                           *other = add("up_proj.weight", 24, 5);
    gets(q, 3, 2, 0, 16, 24);
    gets(o, 3, 1, 1, 8, 16);
    gets(other, 4, 3, 0, 18, 24);
    is_refused(q, 4, "HEADS_DO_NOT_DIVIDE", "6 query heads");
    is_refused(o, 12, "HEADS_DO_NOT_DIVIDE", "6 query heads");
    model.heads[TP_TEXT].query = 5;
    is_refused(q, 5, "HEADS_DO_NOT_DIVIDE", "not a whole number");
    model.heads[TP_TEXT] = (struct tp_heads){.is_list = true};
    is_refused(q, 2, "HEADS_DO_NOT_DIVIDE", "each layer");
    model.heads[TP_TEXT] = (struct tp_heads){0};
    gets(q, 4, 1, 0, 6, 12);
}

TEST_IN(several_matrices_in_one_are_refused, start_over, NULL)
{
    is_refused(add("h.0.attn.c_attn.weight", 8, 24), 2, "FUSED_TENSOR", "several matrices");
    is_refused(add("mlp.gate_up_proj.weight", 8, 24), 2, "FUSED_TENSOR", "several matrices");
    is_refused(add("x.query_key_value.bias", 24, 0), 2, "FUSED_TENSOR", "several matrices");
}

TEST_IN(names_that_models_use_differently_are_refused, start_over, NULL)
{
    is_refused(add("model.layers.0.mlp.c_fc.weight", 32, 8), 2, "UNCLEAR_SPLIT", "models differ");
    is_refused(add("h.0.mlp.c_proj.weight", 32, 8), 2, "UNCLEAR_SPLIT", "--tp-rule");
    gets(add("h.0.mlp.c_proj.bias", 8, 0), 2, 1, USUAL_SPLIT_NONE, 0, 0);
}

TEST_IN(a_share_that_ends_within_a_block_is_refused_for_every_rank, start_over, NULL)
{
    const struct tp_tensor *w = add("a.up_proj.weight", 320, 256), *s = add("a.up_proj.weight_scale_inv", 3, 2);
    is_refused(w, 4, "SPLITS_A_BLOCK", "128");
    const struct tp_group group = {&model, 2, 1, find, NULL};
    assert_int_equal(tp_part_find(&group, s, &part, &error), -1);
    assert_non_null(strstr(error.message, "'a.up_proj.weight'"));
    model.block[0] = model.block[1] = 80; /* which these scales do not fit */
    is_refused(w, 4, "SPLITS_A_BLOCK", "weight_block_size");
}

TEST_IN(scales_follow_the_blocks_of_their_weight, start_over, NULL)
{
    const struct tp_tensor *w = add("a.down_proj.weight", 100, 512), *s = add("a.down_proj.weight_scale_inv", 1, 4);
    gets(w, 2, 1, 1, 256, 512);
    gets(s, 2, 1, 1, 2, 4);
    start_over(NULL);
    w = add("a.w1.weight", 192, 64); /* blocks of 32 by the shapes alone */
    s = add("a.w1.weight_scale_inv", 6, 2);
    gets(w, 3, 2, 0, 128, 192);
    gets(s, 3, 2, 0, 4, 6);
    is_refused(w, 4, "SPLITS_A_BLOCK", "32");
}

TEST_IN(one_head_of_keys_has_its_own_blocks, start_over, NULL)
{
    model.heads[TP_TEXT] = (struct tp_heads){8, 2, false};
    const struct tp_tensor *w = add("k_proj.weight", 256, 128), *s = add("k_proj.weight_scale_inv", 2, 1);
    for (uint64_t rank = 0; rank < 8; rank++) {
        gets(w, 8, rank, 0, rank < 4 ? 0 : 128, rank < 4 ? 128 : 256);
        gets(s, 8, rank, 0, rank / 4, rank / 4 + 1);
    }
}

TEST_IN(scales_of_rows_are_cut_as_the_rows_and_one_for_all_is_whole, start_over, NULL)
{
    const struct tp_tensor *w = add("a.up_proj.weight", 6, 8), *s = add("a.up_proj.weight_scale", 6, 1);
    gets(w, 3, 1, 0, 2, 4);
    gets(s, 3, 1, 0, 2, 4);
    start_over(NULL);
    w = add("a.down_proj.weight", 6, 8);
    s = add("a.down_proj.weight_scale", 6, 1);
    gets(w, 4, 1, 1, 2, 4);
    gets(s, 4, 1, USUAL_SPLIT_NONE, 0, 0);
    start_over(NULL);
    w = add("a.gate_proj.weight", 6, 8);
    s = add("a.gate_proj.weight_scale", 1, 0);
    gets(w, 2, 1, 0, 3, 6);
    gets(s, 2, 1, USUAL_SPLIT_NONE, 0, 0);
    start_over(NULL);
    gets(add("a.gate_proj.weight_scale", 6, 2), 2, 0, USUAL_SPLIT_NONE, 0, 0); /* without a weight */
    gets(add("b.gate_proj.weight_scale_inv", 6, 2), 2, 1, 0, 3, 6);
}

TEST_IN(an_empty_tensor_of_any_extent_is_no_obstacle, start_over, NULL)
{
    gets(add("q_proj.weight", 0, 5), 8, 7, 0, 0, 0);
    gets(add("lm_head.weight", UINT64_MAX - 1, 5), 2, 1, USUAL_SPLIT_NONE, 0, 0);
}
