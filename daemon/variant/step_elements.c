/* cast, dequantize: nothing moves, elements change on their way. Each map gets a chain of operations. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/metadata.h"
#include "base/text.h"
#include "convert/cast.h"
#include "convert/dequantize.h"
#include "variant/quantized.h"
#include "variant/steps.h"

/* --- chains --------------------------------------------------------------------------------------------------------- */

static int fail_chain(const struct tensor_set *set, const struct set_tensor *tensor, const char *why)
{
    fail(set->error, ERROR_UNIMPLEMENTED, "UNIMPLEMENTED_CONVERSION", "tensor %s: %s",
         text_show_bytes(tensor->name, tensor->name_length), why);
    return error_note_tensor(set->error, tensor->name, tensor->name_length);
}

/* The last ones are compared: chains come tensor by tensor, and most of them are one of a few. */
enum { COMPARED_CHAINS = 64 };

static int find_chain(struct tensor_set *set, const struct element_chain *chain, uint32_t *index)
{
    if (set->n_chains == 0) {
        if (METADATA_RESERVE(set->chains, set->n_chains, set->chain_capacity, set->error) < 0)
            return -1;
        set->chains[set->n_chains++] = (struct element_chain){.n_steps = 0};
    }
    size_t oldest = set->n_chains > COMPARED_CHAINS ? set->n_chains - COMPARED_CHAINS : 1;
    for (size_t i = set->n_chains; i-- > oldest;) {
        const struct element_chain *known = &set->chains[i];
        bool is_same = known->from == chain->from && known->n_steps == chain->n_steps;
        for (uint32_t k = 0; k < chain->n_steps && is_same; k++)
            is_same = known->steps[k].to == chain->steps[k].to && known->steps[k].scaling == chain->steps[k].scaling;
        *index = (uint32_t)i;
        if (is_same)
            return 0;
    }
    if (METADATA_RESERVE(set->chains, set->n_chains, set->chain_capacity, set->error) < 0)
        return -1;
    *index = (uint32_t)set->n_chains;
    set->chains[set->n_chains++] = *chain;
    return 0;
}

/* The chain of a map and one step more. */
static int extend_chain(struct tensor_set *set, const struct set_tensor *tensor, const struct index_map *map,
                        const struct chain_step *step, uint32_t *index)
{
    struct element_chain chain = {.from = set->artifact->tensors[map->source].dtype};
    if (map->operation)
        chain = set->chains[map->operation];
    if (chain.n_steps == OPERATION_MAX_STEPS)
        return fail_chain(set, tensor, "its elements are converted too often");
    chain.steps[chain.n_steps++] = *step;
    return find_chain(set, &chain, index);
}

/* --- cast ----------------------------------------------------------------------------------------------------------- */

static int cast_tensor(struct tensor_set *set, const struct set_tensor *tensor)
{
    const struct recipe_step *step = set->step;
    bool is_small_float = tensor->dtype == DTYPE_F4 || tensor->dtype == DTYPE_F6_E2M3 || tensor->dtype == DTYPE_F6_E3M2;
    bool is_wanted = !step->has_only || step->only & 1u << tensor->dtype;
    if (is_wanted && is_small_float)
        return fail_chain(set, tensor, "elements of less than a byte cannot be cast");
    if (!is_wanted || tensor->dtype == step->dtype || !dtype_is_float(tensor->dtype))
        return set_add(set, tensor) ? 0 : -1;
    struct set_tensor cast = *tensor;
    struct index_array array;
    uint64_t bytes;
    cast.dtype = step->dtype;
    if (!set_bytes(tensor->array.rank, tensor->array.shape, step->dtype, &bytes))
        return set_fail(set, tensor, "it would be too large");
    if (set_maps(set, tensor, &array) < 0)
        return -1;
    struct index_map *maps = arena_try_array(set->arena, array.n_maps, sizeof *maps, set->error);
    for (size_t i = 0; maps && i < array.n_maps; i++) {
        maps[i] = array.maps[i];
        if (extend_chain(set, tensor, &array.maps[i], &(struct chain_step){step->dtype, NO_SCALING}, &maps[i].operation) < 0)
            return -1;
    }
    array.maps = maps;
    return maps ? set_add_array(set, &cast, &array) : -1;
}

/* --- dequantize ----------------------------------------------------------------------------------------------------- */

static bool is_quantized(const struct set_tensor *tensor)
{
    return tensor->dtype == DTYPE_F8_E4M3 || tensor->dtype == DTYPE_F8_E5M2 || tensor->dtype == DTYPE_F8_E4M3FNUZ ||
           tensor->dtype == DTYPE_F8_E5M2FNUZ;
}

/* Whether a map is a matrix that lies in its stored tensor as one: rows from one to the next at the same distance, and the
 * elements of a row side by side. row_dim: which of its dimensions are the stored rows; the other one if it was transposed.
 * Fills in where. */
static bool is_stored_matrix(const struct tensor_set *set, const struct index_map *map, uint32_t row_dim,
                             struct scaling *scaling)
{
    const struct tensor_record *stored = &set->artifact->tensors[map->source];
    const struct index_loop *loops[2] = {NULL, NULL};
    for (uint32_t i = 0; i < map->n_loops; i++) {
        const struct index_loop *loop = &map->loops[i];
        if (loops[loop->dst_dim] || loop->table || loop->dst_step != 1)
            return false;
        loops[loop->dst_dim] = loop;
    }
    const struct index_loop *rows = loops[row_dim], *columns = loops[1 - row_dim];
    bool is_flat = stored->n_pieces == 1 && !artifact_piece(set->artifact, stored, 0)->box;
    uint64_t n_columns = columns ? columns->size : 1;
    if (columns && columns->src_step != 1)
        return false;
    scaling->src_start = map->src_start;
    scaling->row_step = rows ? rows->src_step : n_columns;
    scaling->first_row = map->dst_start[row_dim];
    scaling->first_column = map->dst_start[1 - row_dim];
    if (is_flat)
        return scaling->row_step >= n_columns;
    return map->src_rank >= 2 && (!rows || (rows->src_dim == map->src_rank - 2 && rows->src_step == 1)) &&
           (!columns || columns->src_dim == map->src_rank - 1);
}

/* Blocks and scales of a matrix that was transposed are those of the stored one, transposed. */
static int find_scaling(struct tensor_set *set, const struct set_tensor *tensor, const struct index_map *map,
                        const struct set_tensor *scale, const struct index_array *scales, struct scaling *scaling)
{
    static const uint32_t transposed[] = {1, 0};
    const int64_t *block = set->step->numbers.list;
    *scaling = (struct scaling){.block_rows = (uint64_t)block[0],
                                .block_columns = (uint64_t)block[1],
                                .scales = *scales,
                                .scales_dtype = scale->dtype};
    if (is_stored_matrix(set, map, 0, scaling))
        return 0;
    if (!is_stored_matrix(set, map, 1, scaling))
        return fail_chain(set, tensor, "its elements were rearranged before they are scaled; dequantize it first");
    scaling->block_rows = (uint64_t)block[1];
    scaling->block_columns = (uint64_t)block[0];
    return index_transpose(&set->work, scales, transposed, &scaling->scales);
}

static int check_scale(struct tensor_set *set, const struct set_tensor *tensor, const struct set_tensor *scale)
{
    const int64_t *block = set->step->numbers.list;
    const uint64_t *shape = tensor->array.shape, *grid = scale->array.shape;
    char one[SET_SHAPE_CHARS], two[SET_SHAPE_CHARS];
    if (!dtype_is_float(scale->dtype))
        return set_fail(set, scale, "scales are floats, not %s", dtype_name(scale->dtype));
    if (scale->array.rank == 2 && shape[0] / (uint64_t)block[0] + (shape[0] % (uint64_t)block[0] > 0) == grid[0] &&
        shape[1] / (uint64_t)block[1] + (shape[1] % (uint64_t)block[1] > 0) == grid[1])
        return 0;
    return set_fail(set, scale, "its shape %s is not one scale for each block of %" PRId64 "x%" PRId64 " of %s",
                    set_show_shape(scale->array.rank, grid, one), block[0], block[1], set_show_shape(2, shape, two));
}

static int scale_maps(struct tensor_set *set, const struct set_tensor *tensor, const struct set_tensor *scale,
                      struct index_array *array)
{
    struct index_array scales;
    struct index_map *maps = arena_try_array(set->arena, array->n_maps, sizeof *maps, set->error);
    if (!maps || set_maps(set, scale, &scales) < 0)
        return -1;
    for (size_t i = 0; i < scales.n_maps; i++) {
        if (scales.maps[i].operation)
            return fail_chain(set, scale, "scales are used as they are stored; convert nothing but the weights");
    }
    for (size_t i = 0; i < array->n_maps; i++) {
        const struct index_map *map = &array->maps[i];
        struct scaling scaling;
        if (find_scaling(set, tensor, map, scale, &scales, &scaling) < 0)
            return -1;
        if (METADATA_RESERVE(set->scalings, set->n_scalings, set->scaling_capacity, set->error) < 0)
            return -1;
        set->scalings[set->n_scalings] = scaling;
        maps[i] = *map;
        if (extend_chain(set, tensor, map, &(struct chain_step){set->step->dtype, (uint32_t)set->n_scalings++},
                         &maps[i].operation) < 0)
            return -1;
    }
    array->maps = maps;
    return 0;
}

static int dequantize_tensor(struct tensor_set *set, const struct set_tensor *tensor, const struct set_tensor *scale)
{
    struct set_tensor scaled = *tensor;
    struct index_array array;
    uint64_t bytes;
    char shape[SET_SHAPE_CHARS];
    scaled.dtype = set->step->dtype;
    if (tensor->array.rank != 2)
        return set_fail(set, tensor, "its shape is %s; blocks are scaled in matrices",
                        set_show_shape(tensor->array.rank, tensor->array.shape, shape));
    if (!set_bytes(2, tensor->array.shape, scaled.dtype, &bytes))
        return set_fail(set, tensor, "it would be too large");
    if (check_scale(set, tensor, scale) < 0 || set_maps(set, tensor, &array) < 0 ||
        scale_maps(set, tensor, scale, &array) < 0)
        return -1;
    return set_add_array(set, &scaled, &array);
}

/* The name of a tensor's scales: the template, with each {tensor} replaced. */
static char *name_scale(struct tensor_set *set, const struct set_tensor *tensor, size_t *length)
{
    static const char variable[] = "{tensor}";
    const char *text = set->step->scale.text;
    size_t n = 0;
    for (const char *at = strstr(text, variable); at; at = strstr(at + 1, variable))
        n++;
    *length = strlen(text) + n * tensor->name_length - n * (sizeof variable - 1);
    char *name = arena_try_bytes(set->arena, *length + 1, set->error), *out = name;
    while (name && *text) {
        bool is_variable = strncmp(text, variable, sizeof variable - 1) == 0;
        size_t count = is_variable ? tensor->name_length : 1;
        memcpy(out, is_variable ? tensor->name : text, count);
        out += count;
        text += is_variable ? sizeof variable - 1 : 1;
    }
    if (name)
        *out = 0;
    return name;
}

enum role { ROLE_NONE, ROLE_WEIGHT, ROLE_SCALE };

struct roles {
    struct map by_name;
    unsigned char *role; /* of each tensor */
    size_t *scale_of;    /* of weights */
};

/* Which tensors are scales of which others. What is a scale is no weight itself. */
static int find_scales(struct tensor_set *set, struct roles *roles)
{
    for (size_t i = 0; i < set->n; i++) {
        const struct set_tensor *tensor = &set->tensors[i];
        size_t length;
        if (roles->role[i] == ROLE_NONE || !is_quantized(tensor))
            continue;
        char *name = name_scale(set, tensor, &length);
        if (!name)
            return -1;
        uint32_t scale = map_find(&roles->by_name, name, length);
        if (scale == MAP_NONE || scale == i)
            return set_fail(set, tensor, "its scales %s are missing", text_show_bytes(name, length));
        roles->scale_of[i] = scale;
    }
    for (size_t i = 0; i < set->n; i++) {
        if (roles->role[i] == ROLE_WEIGHT && is_quantized(&set->tensors[i]))
            roles->role[roles->scale_of[i]] = ROLE_SCALE;
    }
    return 0;
}

static int find_weights(struct tensor_set *set, struct roles *roles)
{
    struct set_patterns found;
    struct pattern_match match;
    int failed = set_patterns_init(set, &set->step->tensors, &found);
    for (size_t i = 0; i < set->n && !failed; i++) {
        size_t pattern;
        failed = set_find(set, &found, &set->tensors[i], &pattern, &match);
        roles->role[i] = pattern < found.patterns->n ? ROLE_WEIGHT : ROLE_NONE;
    }
    failed = failed ? failed : set_check_seen(set, &found);
    set_patterns_fini(&found);
    return failed;
}

static int index_set(struct tensor_set *set, struct roles *roles)
{
    roles->role = metadata_array(set->n, sizeof *roles->role, set->error);
    roles->scale_of = metadata_array(set->n, sizeof *roles->scale_of, set->error);
    if (!roles->role || !roles->scale_of || map_init_charged(&roles->by_name, set->n, set->error) < 0)
        return -1;
    for (size_t i = 0; i < set->n; i++)
        map_add(&roles->by_name, set->tensors[i].name, set->tensors[i].name_length, (uint32_t)i);
    return 0;
}

static void forget_set(struct roles *roles)
{
    map_fini(&roles->by_name);
    metadata_free(roles->role);
    metadata_free(roles->scale_of);
}

int step_dequantize(struct tensor_set *set)
{
    struct roles roles = {0};
    int failed = index_set(set, &roles) < 0 || find_weights(set, &roles) < 0 || find_scales(set, &roles) < 0 ? -1 : 0;
    for (size_t i = 0; i < set->n && !failed; i++) {
        const struct set_tensor *tensor = &set->tensors[i];
        if (roles.role[i] == ROLE_WEIGHT && is_quantized(tensor))
            failed = dequantize_tensor(set, tensor, &set->tensors[roles.scale_of[i]]);
        else if (roles.role[i] != ROLE_SCALE)
            failed = set_add(set, tensor) ? 0 : -1;
    }
    forget_set(&roles);
    return failed ? failed : set_next(set);
}

/* --- cast of what is quantized -------------------------------------------------------------------------------------- */

struct partner { /* of a tensor that the same step casts */
    const struct tensor_set *set;
    const struct roles *roles;
    bool is_weight; /* that is looked for, else scales */
    size_t *found;
};

static bool take_partner(const void *data, const char *name, size_t length)
{
    const struct partner *partner = data;
    uint32_t at = map_find(&partner->roles->by_name, name, length);
    if (at == MAP_NONE || partner->roles->role[at] == ROLE_NONE)
        return false;
    if (partner->is_weight && !quantized_type(partner->set->tensors[at].dtype))
        return false;
    *partner->found = at;
    return true;
}

/* Weights would lose their scales, or scales be rounded, in a step that is about both of them, as a cast of everything is. A
 * step that names only one of them is deliberate. */
static int check_quantized(const struct tensor_set *set, const struct roles *roles, size_t at)
{
    const struct set_tensor *tensor = &set->tensors[at];
    enum dtype to = set->step->dtype;
    size_t weight = at, scale = at;
    if (roles->role[at] == ROLE_NONE || (set->step->has_only && !(set->step->only & 1u << tensor->dtype)) ||
        tensor->dtype == to || !dtype_is_float(tensor->dtype))
        return 0;
    const struct partner of_weight = {set, roles, false, &scale}, of_scale = {set, roles, true, &weight};
    /* Not when every value of the one is a value of the other. */
    bool is_found =
        is_quantized(tensor)
            ? quantized_each_scale(tensor->name, tensor->name_length, &(struct quantized_taker){take_partner, &of_weight})
            : (tensor->dtype != to &&
               (dtype_bits(to) <= dtype_bits(tensor->dtype) || (tensor->dtype == DTYPE_F8_E8M0 && to == DTYPE_F16))) &&
                  quantized_each_weight(tensor->name, tensor->name_length,
                                        &(struct quantized_taker){take_partner, &of_scale});
    if (!is_found)
        return 0;
    return set_fail(
        set, &set->tensors[weight],
        "it is %s with scales %s, and a cast to %s would %s; make it plain first, as the recipe fp8-block-to-bf16 "
        "does with blocks of FP8 (--variant fp8-block-to-bf16), or name what else is to be cast in a recipe",
        dtype_name(set->tensors[weight].dtype), text_show_bytes(set->tensors[scale].name, set->tensors[scale].name_length),
        dtype_name(to), weight == at ? "leave them out" : "round them");
}

int step_cast(struct tensor_set *set)
{
    struct roles roles = {0};
    bool has_quantized = false;
    for (size_t i = 0; i < set->n; i++)
        has_quantized = has_quantized || quantized_type(set->tensors[i].dtype);
    int failed = has_quantized && (index_set(set, &roles) < 0 || find_weights(set, &roles) < 0) ? -1 : 0;
    for (size_t i = 0; i < set->n && roles.role && !failed; i++)
        failed = check_quantized(set, &roles, i);
    forget_set(&roles);
    return failed ? failed : set_each(set, &set->step->tensors, cast_tensor);
}
