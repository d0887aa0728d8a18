/* Reaches recipe_yaml.c, recipe_node.c, recipe.c and substitute.c, and with what JSON was taken, the steps of
 * daemon/variant and mapping_derived.c on a small model. What is accepted has one canonical text; a mapping stays within the
 * file and fills exactly its tensors. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "client/recipe_yaml.h"
#include "recipe/recipe.h"
#include "recipe/substitute.h"
#include "resolve/mapping.h"
#include "tests/support/source_memory.h"
#include "variant/variant.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_VIEW_BYTES = 1 << 16 };

static int find(void *data, const char *key, struct recipe_node *value, struct error *error)
{
    (void)data;
    (void)error;
    recipe_value(strchr(key, 'n') ? "2" : "text", value);
    return key[0] != 'x';
}

static void check_error(const struct error *error)
{
    if (!error->code || !error->message[0])
        abort();
}

/* The same text again and again. */
static void check_canonical(const struct recipe *recipe)
{
    struct arena arena = {0};
    struct recipe again;
    struct error error = {0};
    char *json = recipe_json(recipe, &error), *same;
    if (!json)
        return;
    if (recipe_parse(json, strlen(json), &arena, &again, &error) < 0 || !(same = recipe_json(&again, &error)) ||
        strcmp(json, same) != 0)
        abort();
    free(json);
    free(same);
    arena_fini(&arena);
}

static void check_mapping(const struct mapping *mapping)
{
    uint64_t bytes = 0, file_bytes = mapping->artifact->source->files[0].size_bytes;
    for (size_t i = 0; i < mapping->n_transfers; i++) {
        const struct transfer *transfer = &mapping->transfers[i];
        const struct operation *operation = mapping_operation(mapping, transfer);
        uint64_t row = operation ? operation_dst_bytes(operation, transfer->row_bytes) : transfer->row_bytes;
        if (!transfer->n_rows || !row || transfer_end(transfer) > file_bytes ||
            transfer_dst_end(transfer, row) > mapping->replica_bytes)
            abort();
        bytes += transfer->n_rows * row;
    }
    if (bytes != mapping->view_bytes)
        abort();
}

static void apply(const uint8_t *data, size_t size)
{
    static const char header[] = "{\"w1\":{\"dtype\":\"F32\",\"shape\":[4,6],\"data_offsets\":[0,96]},"
                                 "\"a.0\":{\"dtype\":\"BF16\",\"shape\":[2,3,4],\"data_offsets\":[96,144]},"
                                 "\"a.1\":{\"dtype\":\"BF16\",\"shape\":[2,3,4],\"data_offsets\":[144,192]},"
                                 "\"q\":{\"dtype\":\"F8_E4M3\",\"shape\":[3,5],\"data_offsets\":[192,207]},"
                                 "\"q_s\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[207,209]},"
                                 "\"q_scale\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[209,225]},"
                                 "\"f4\":{\"dtype\":\"F4\",\"shape\":[2,4],\"data_offsets\":[225,229]}}";
    static unsigned char file[8 + sizeof header - 1 + 229];
    struct artifact *artifact;
    struct error error = {0};
    uint64_t length = sizeof header - 1;
    memcpy(file, &length, 8);
    memcpy(file + 8, header, length);
    source_memory_put("fuzz", "model.safetensors", file, sizeof file);
    if (artifact_resolve("memory:fuzz", &(struct source_options){0}, NULL, 0, &artifact, &error) < 0)
        abort();
    if (variant_apply(&artifact, (const char *)data, size, NULL, NULL, &error) < 0) {
        check_error(&error);
        return;
    }
    struct mapping *mapping = artifact->total_bytes > MAX_VIEW_BYTES
                                  ? NULL
                                  : mapping_build(&(struct view_spec){.whole = true, .align_bytes = 1}, artifact, &error);
    if (mapping)
        check_mapping(mapping);
    mapping_destroy(mapping);
    artifact_unref(artifact);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct recipe_lookup lookup = {find, NULL};
    struct arena arena = {0};
    struct recipe recipe;
    struct error error = {0};
    struct recipe_node document;
    if (recipe_parse((const char *)data, size, &arena, &recipe, &error) == 0) {
        check_canonical(&recipe);
        apply(data, size);
    } else {
        check_error(&error);
    }
    error = (struct error){0};
    if (recipe_yaml_parse((const char *)data, size, "fuzz.yaml", &arena, &document, &error) == 0 &&
        recipe_substitute(&document, "fuzz.yaml", &lookup, &arena, &error) == 0 &&
        recipe_build(&document, "fuzz.yaml", &arena, &recipe, &error) == 0)
        check_canonical(&recipe);
    else
        check_error(&error);
    arena_fini(&arena);
    return 0;
}
