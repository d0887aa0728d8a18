#include "resolve/tp_part.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "resolve/usual_split.h"

enum { USUAL_BLOCK = 128 };

/* Puts the tensor before a complaint. */
static int of_tensor(const struct tp_tensor *tensor, struct error *error)
{
    error_prefix(error, "tensor '%s' %s", text_show_bytes(tensor->name, tensor->name_length),
                 text_show_shape(tensor->shape, tensor->rank));
    return error_note_tensor(error, tensor->name, tensor->name_length);
}

/* --- rows and heads --- */

static int deal_rows(const struct tp_group *group, uint64_t extent, struct tp_part *part, struct error *error)
{
    if (extent % group->size)
        return fail(error, ERROR_INVALID_ARGUMENT, "DOES_NOT_DIVIDE",
                    "dimension %" PRId64 " (%" PRIu64 ") does not divide by %" PRIu64 " ranks", part->dimension, extent,
                    group->size);
    part->start = extent / group->size * group->rank;
    part->stop = extent / group->size * (group->rank + 1);
    return 0;
}

static int deal_heads(const struct tp_group *group, uint64_t n_heads, bool is_kv, uint64_t extent, struct tp_part *part,
                      struct error *error)
{
    const char *what = is_kv ? "key and value heads" : "query heads";
    bool is_shared = is_kv && group->size > n_heads;
    if (extent % n_heads)
        return fail(error, ERROR_INVALID_ARGUMENT, "HEADS_DO_NOT_DIVIDE",
                    "dimension %" PRId64 " (%" PRIu64 ") is not a whole number of the %" PRIu64 " %s of config.json",
                    part->dimension, extent, n_heads, what);
    if (is_shared ? group->size % n_heads : n_heads % group->size)
        return fail(error, ERROR_INVALID_ARGUMENT, "HEADS_DO_NOT_DIVIDE",
                    "%" PRIu64 " %s cannot be dealt out whole to %" PRIu64 " ranks", n_heads, what, group->size);
    uint64_t rows = extent / n_heads, n = is_shared ? 1 : n_heads / group->size;
    uint64_t first = is_shared ? group->rank / (group->size / n_heads) : group->rank * n;
    part->start = rows * first;
    part->stop = rows * (first + n);
    return 0;
}

static int deal(const struct tp_group *group, const struct tp_tensor *tensor, enum usual_unit unit, struct tp_part *part,
                struct error *error)
{
    uint64_t extent = tensor->shape[part->dimension];
    const struct tp_heads *heads = tp_model_heads(group->model, tensor->name, tensor->name_length);
    bool is_kv = unit == USUAL_KV_HEADS;
    uint64_t n_heads = is_kv ? heads->kv : heads->query;
    if (unit == USUAL_FUSED)
        return fail(error, ERROR_INVALID_ARGUMENT, "FUSED_TENSOR",
                    "it is several matrices in one, of each of which vLLM gives a rank a part; those are no single range");
    if (unit == USUAL_UNCLEAR)
        return fail(error, ERROR_INVALID_ARGUMENT, "UNCLEAR_SPLIT",
                    "models differ in how they are split under this name; give a --tp-rule for it");
    if (unit == USUAL_ROWS || (!n_heads && !heads->is_list))
        return deal_rows(group, extent, part, error);
    if (heads->is_list)
        return fail(error, ERROR_INVALID_ARGUMENT, "HEADS_DO_NOT_DIVIDE",
                    "config.json has another number of heads for each layer, so no rule is known");
    return deal_heads(group, n_heads, is_kv, extent, part, error);
}

/* --- scales --- */

static uint64_t n_blocks(uint64_t extent, uint64_t block)
{
    return extent / block + (extent % block > 0);
}

/* What shares a scale along a dimension, told by the shapes: 128 where that fits, else the power of two that does; 0 = none. */
static uint64_t infer_block(uint64_t extent, uint64_t n_scales)
{
    uint64_t found = 0;
    if (n_scales == extent)
        return 1;
    if (n_blocks(extent, USUAL_BLOCK) == n_scales)
        return USUAL_BLOCK;
    for (uint64_t block = 2; block && !found && n_scales; block *= 2)
        found = n_blocks(extent, block) == n_scales ? block : 0;
    return found;
}

/* *block: how much of the weight shares a scale along the dimension; 0 = all of it. */
static int find_block(const struct tp_group *group, const struct tp_tensor *weight, const struct tp_tensor *scales,
                      int64_t dimension, uint64_t *block, struct error *error)
{
    bool is_grid = scales->rank == weight->rank && weight->rank == 2;
    *block = 0;
    if (!is_grid) { /* one for each row, or one for all */
        *block = scales->rank == 1 && dimension == 0 && scales->shape[0] == weight->shape[0] && scales->shape[0] > 1;
        return 0;
    }
    bool is_inverse = text_ends_with(scales->name, scales->name_length, "_inv");
    uint64_t extent = weight->shape[dimension], n_scales = scales->shape[dimension];
    const uint64_t *told = group->model->block;
    if (n_scales == 1 && !is_inverse)
        return 0;
    bool is_told = is_inverse && told[0];
    *block = is_told ? told[dimension] : infer_block(extent, n_scales);
    if (*block && (!is_told || n_blocks(extent, *block) == n_scales))
        return 0;
    return fail(error, ERROR_INVALID_ARGUMENT, "SPLITS_A_BLOCK",
                "its scales '%s' %s do not fit its blocks%s, so it is not known what may be cut",
                text_show_bytes(scales->name, scales->name_length), text_show_shape(scales->shape, scales->rank),
                is_told ? " by weight_block_size of config.json" : "");
}

/* The part of the weight, if it cuts no block; *block as find_block() has it. */
static int cut_weight(const struct tp_group *group, const struct tp_tensor *weight, const struct tp_tensor *scales,
                      struct tp_part *part, uint64_t *block, struct error *error)
{
    struct usual_split usual = usual_split_find(weight->name, weight->name_length, weight->rank);
    part->dimension = usual.dimension;
    *block = 0;
    if (usual.dimension == USUAL_SPLIT_NONE)
        return 0;
    uint64_t extent = weight->shape[usual.dimension];
    if (extent > INT64_MAX) { /* as above */
        part->dimension = USUAL_SPLIT_NONE;
        return 0;
    }
    if (deal(group, weight, usual.unit, part, error) < 0 ||
        (scales && find_block(group, weight, scales, part->dimension, block, error) < 0))
        return of_tensor(weight, error);
    uint64_t share = part->stop - part->start; /* all borders are multiples of it */
    if (*block < 2 || share == extent || share % *block == 0)
        return 0;
    fail(error, ERROR_INVALID_ARGUMENT, "SPLITS_A_BLOCK",
         "a share of %" PRIu64 " of dimension %" PRId64 " for each of %" PRIu64 " ranks ends within a block of %" PRIu64
         " that has one scale",
         share, part->dimension, group->size, *block);
    return of_tensor(weight, error);
}

static const char *const scale_endings[] = {"_scale_inv", "_scale"};
enum { N_SCALE_ENDINGS = sizeof scale_endings / sizeof *scale_endings };

int tp_part_of_dimension(const struct tp_group *group, const struct tp_tensor *tensor, int64_t dimension,
                         struct tp_part *part, struct error *error)
{
    *part = (struct tp_part){.dimension = dimension};
    if (group->size > 1 && tensor->shape[dimension] <= INT64_MAX) /* else it is empty: there is nothing to split */
        return deal_rows(group, tensor->shape[dimension], part, error) < 0 ? of_tensor(tensor, error) : 0;
    part->dimension = USUAL_SPLIT_NONE;
    return 0;
}

int tp_part_find(const struct tp_group *group, const struct tp_tensor *tensor, struct tp_part *part, struct error *error)
{
    struct tp_tensor other;
    uint64_t block;
    struct usual_split usual = usual_split_find(tensor->name, tensor->name_length, tensor->rank);
    size_t length = 0; /* of the name of the weight whose scales these are; 0 = they are none */
    for (size_t i = 0; i < N_SCALE_ENDINGS && !length; i++)
        if (text_ends_with(tensor->name, tensor->name_length, scale_endings[i]))
            length = tensor->name_length - strlen(scale_endings[i]);
    *part = (struct tp_part){.dimension = USUAL_SPLIT_NONE};
    if (group->size <= 1 || (usual.dimension == USUAL_SPLIT_NONE && !length))
        return 0;
    if (length && group->find(group->data, tensor->name, length, &other)) {
        if (cut_weight(group, &other, tensor, part, &block, error) < 0)
            return -1;
        /* scales go with their weight: whole where it is whole, and where all of it shares one */
        if (part->dimension != USUAL_SPLIT_NONE && block && (size_t)part->dimension < tensor->rank)
            *part = (struct tp_part){part->dimension, part->start / block, n_blocks(part->stop, block)};
        else
            part->dimension = USUAL_SPLIT_NONE;
        return 0;
    }
    if (length && !text_ends_with(tensor->name, tensor->name_length, "_inv"))
        return 0; /* the scales of an unknown tensor */
    bool has_scales = false;
    for (size_t i = 0; i < N_SCALE_ENDINGS && !has_scales; i++) {
        char *name = memory_print("%.*s%s", (int)tensor->name_length, tensor->name, scale_endings[i]);
        has_scales = group->find(group->data, name, strlen(name), &other);
        free(name);
    }
    return cut_weight(group, tensor, has_scales ? &other : NULL, part, &block, error);
}
