/* One step after the other makes a set of tensors of the one before; the last set becomes the derivation's tables. */
#include "variant/variant.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "base/metadata.h"
#include "recipe/recipe.h"
#include "resolve/artifact_table.h"
#include "resolve/derivation.h"
#include "resolve/header_cache.h"
#include "variant/steps.h"
#include "variant/tensor_set.h"

static int (*const apply_step[STEP_COUNT])(struct tensor_set *set) = {
    [STEP_SELECT] = step_select,
    [STEP_DROP] = step_select,
    [STEP_ONLY] = step_select,
    [STEP_RENAME] = step_rename,
    [STEP_ALIAS] = step_alias,
    [STEP_SLICE] = step_slice,
    [STEP_TRANSPOSE] = step_transpose,
    [STEP_RESHAPE] = step_reshape,
    [STEP_CONCAT] = step_concat,
    [STEP_SPLIT] = step_split,
    [STEP_STACK] = step_stack,
    [STEP_UNSTACK] = step_unstack,
    [STEP_PERMUTE_ROPE] = step_permute_rope,
    [STEP_REPLICATE_EXPERTS] = step_replicate_experts,
    [STEP_CAST] = step_cast,
    [STEP_DEQUANTIZE] = step_dequantize,
    [STEP_EXPECT] = step_expect,
};

/* --- tables --------------------------------------------------------------------------------------------------------- */

/* One array after the other in the arena; the first that fails stays failed. */
static void *keep(struct tensor_set *set, const void *items, size_t n, size_t size, bool *failed)
{
    void *kept = *failed ? NULL : arena_try_array(set->arena, n, size, set->error);
    *failed = *failed || !kept;
    if (kept && items && n)
        memcpy(kept, items, n * size);
    return kept;
}

static int fill_record(const struct tensor_set *set, const struct set_tensor *tensor, struct tensor_record *record)
{
    const struct tensor_record *source = &set->artifact->tensors[tensor->source];
    uint64_t bytes;
    if (tensor->name_length > UINT32_MAX)
        return fail(set->error, ERROR_INVALID_ARGUMENT, "NAME_TOO_LONG", "a tensor's name has more than 4 GiB");
    if (!set_bytes(tensor->array.rank, tensor->array.shape, tensor->dtype, &bytes))
        return set_fail(set, tensor, "it would be too large, or its elements no whole bytes");
    *record = (struct tensor_record){.name = tensor->name,
                                     .shape = tensor->array.shape,
                                     .bytes = bytes,
                                     .name_length = (uint32_t)tensor->name_length,
                                     .first_piece = source->first_piece,
                                     .n_pieces = tensor->is_stored ? source->n_pieces : 1,
                                     .dtype = tensor->dtype,
                                     .rank = tensor->array.rank & 0xFFFFFF};
    return 0;
}

static int fill_tables(struct tensor_set *set, struct derivation *derivation)
{
    bool failed = false;
    struct tensor_record *records = keep(set, NULL, set->n, sizeof *records, &failed);
    struct derived_tensor *tensors = keep(set, NULL, set->n, sizeof *tensors, &failed);
    const struct element_chain none = {.n_steps = 0};
    derivation->n_chains = set->n_chains ? set->n_chains : 1;
    derivation->chains =
        keep(set, set->n_chains ? set->chains : &none, derivation->n_chains, sizeof *derivation->chains, &failed);
    derivation->n_scalings = set->n_scalings;
    derivation->scalings = keep(set, set->scalings, set->n_scalings, sizeof *derivation->scalings, &failed);
    if (failed || map_init_charged(&derivation->by_name, set->n, set->error) < 0)
        return -1;
    derivation->records = records;
    derivation->tensors = tensors;
    derivation->n_tensors = set->n;
    for (size_t i = 0; i < set->n; i++) {
        const struct set_tensor *tensor = &set->tensors[i];
        if (fill_record(set, tensor, &records[i]) < 0)
            return -1;
        tensors[i] = (struct derived_tensor){tensor->is_stored, tensor->source, tensor->array.maps, tensor->array.n_maps};
        map_add(&derivation->by_name, tensor->name, tensor->name_length, (uint32_t)i);
        if (!checked_add(derivation->total_bytes, records[i].bytes, &derivation->total_bytes))
            return fail(set->error, ERROR_INVALID_ARGUMENT, "VARIANT_TOO_LARGE", "the variant is larger than any memory");
    }
    return 0;
}

static struct derivation *derive(const struct artifact *artifact, const struct recipe *recipe, const char *digest,
                                 const struct cancel *cancel, struct error *error)
{
    struct derivation *derivation = memory_alloc(sizeof *derivation);
    struct tensor_set set;
    derivation->references = 1;
    memcpy(derivation->digest, digest, sizeof derivation->digest);
    derivation->table = artifact->table ? artifact_table_ref(artifact->table) : NULL;
    arena_init(&derivation->arena, 0);
    int failed = set_init(&set, artifact, &derivation->arena, cancel, error);
    for (size_t i = 0; i < recipe->n_steps && !failed; i++) {
        set.step = &recipe->steps[i];
        failed = apply_step[set.step->kind](&set);
        if (failed && (error->code == ERROR_INVALID_ARGUMENT || error->code == ERROR_UNIMPLEMENTED))
            recipe_error_prefix(set.step, NULL, error);
    }
    failed = failed ? failed : fill_tables(&set, derivation);
    set_fini(&set);
    if (!failed)
        return derivation;
    derivation_unref(derivation);
    return NULL;
}

/* --- the whole ------------------------------------------------------------------------------------------------------ */

static struct derivation *find_or_derive(const struct artifact *artifact, const struct recipe *recipe,
                                         struct header_cache *cache, const struct cancel *cancel, struct error *error)
{
    char key[2 * DIGEST_HEX_CHARS + 1], digest[DIGEST_HEX_CHARS + 1];
    char *canonical = recipe_json(recipe, error);
    if (!canonical)
        return NULL;
    unsigned char out[DIGEST_BYTES];
    struct digest *of_recipe = digest_create();
    digest_add_text(of_recipe, canonical);
    digest_finish(of_recipe, out);
    digest_hex(out, sizeof out, digest);
    free(canonical);
    /* What the derivation follows from: the tensors, where they lie, and the steps. Any change of the files is another key. */
    memcpy(key, artifact->source_key, DIGEST_HEX_CHARS);
    memcpy(key + DIGEST_HEX_CHARS, digest, DIGEST_HEX_CHARS + 1);
    cache = artifact_is_racy(artifact) ? NULL : cache;
    struct derivation *derivation = cache ? header_cache_find_value(cache, HEADER_CACHE_DERIVATIONS, key, sizeof key) : NULL;
    if (derivation)
        return derivation;
    derivation = derive(artifact, recipe, digest, cancel, error);
    if (derivation && cache)
        header_cache_add_value(cache, HEADER_CACHE_DERIVATIONS, key, sizeof key, derivation,
                               derivation_memory_bytes(derivation));
    return derivation;
}

int variant_apply(struct artifact **artifact, const char *json, size_t length, struct header_cache *cache,
                  const struct cancel *cancel, struct error *error)
{
    struct artifact *stored = *artifact;
    struct derivation *derivation = NULL;
    struct recipe recipe;
    struct arena arena;
    arena_init(&arena, 0);
    if (recipe_parse(json, length, &arena, &recipe, error) == 0)
        derivation = find_or_derive(stored, &recipe, cache, cancel, error);
    *artifact = derivation ? derivation_artifact(stored, derivation) : NULL;
    arena_fini(&arena);
    artifact_unref(stored);
    return derivation ? 0 : -1;
}
