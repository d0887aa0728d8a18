#include "tests/support/variant_scene.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert/cast.h"
#include "tests/support/source_memory.h"
#include "tests/support/transfer_apply.h"
#include "variant/variant.h"

struct variant_scene variant_scene;

static unsigned char *file;
static uint64_t file_bytes;

static void drop_view(void)
{
    mapping_destroy(variant_scene.mapping);
    free(variant_scene.replica);
    variant_scene.mapping = NULL;
    variant_scene.replica = NULL;
}

int variant_scene_begin(void **state)
{
    (void)state;
    memset(&variant_scene, 0, sizeof variant_scene);
    return 0;
}

int variant_scene_end(void **state)
{
    (void)state;
    drop_view();
    artifact_unref(variant_scene.artifact);
    variant_scene.artifact = NULL;
    source_memory_clear();
    free(file);
    file = NULL;
    return 0;
}

void variant_scene_put(const char *header, uint64_t data_bytes, unsigned char (*byte)(uint64_t i))
{
    uint64_t length = strlen(header);
    file_bytes = 8 + length + data_bytes;
    free(file);
    file = malloc(file_bytes);
    memcpy(file, &length, 8);
    memcpy(file + 8, header, length);
    for (uint64_t i = 0; i < data_bytes; i++)
        file[8 + length + i] = byte(i);
    source_memory_put("model", "model.safetensors", file, file_bytes);
}

int variant_scene_apply(const char *recipe)
{
    drop_view();
    artifact_unref(variant_scene.artifact);
    variant_scene.artifact = NULL;
    if (artifact_resolve("memory:model", &(struct source_options){0}, NULL, 0, &variant_scene.artifact,
                         &variant_scene.error) < 0)
        return -1;
    return variant_apply(&variant_scene.artifact, recipe, strlen(recipe), NULL, NULL, &variant_scene.error);
}

static void read_scales(const struct mapping *mapping)
{
    const struct scales *scales = &mapping->scales;
    unsigned char *bytes = malloc(scales->bytes + 1);
    for (size_t i = 0; i < scales->n_transfers; i++)
        transfer_apply(&scales->transfers[i], NULL, file, bytes);
    for (size_t i = 0; i < scales->n_grids; i++) {
        struct scale_grid *grid = scales->grids[i];
        cast_find(grid->dtype, DTYPE_F32)(grid->values, bytes + grid->scales_offset, grid->grid_rows * grid->grid_columns);
    }
    free(bytes);
}

int variant_scene_load_view(const struct view_spec *view)
{
    drop_view();
    variant_scene.mapping = mapping_build(view, variant_scene.artifact, &variant_scene.error);
    if (!variant_scene.mapping)
        return -1;
    const struct mapping *mapping = variant_scene.mapping;
    variant_scene.replica = calloc(1, mapping->replica_bytes + 1);
    read_scales(mapping);
    for (size_t i = 0; i < mapping->n_transfers; i++)
        transfer_apply(&mapping->transfers[i], mapping_operation(mapping, &mapping->transfers[i]), file,
                       variant_scene.replica);
    return 0;
}

int variant_scene_load(void)
{
    return variant_scene_load_view(&(struct view_spec){.whole = true, .align_bytes = 64});
}

int variant_scene_slice(const char *name, const struct slice *slices, uint32_t n_slices)
{
    const struct view_item item = {name, strlen(name), n_slices, slices};
    return variant_scene_load_view(&(struct view_spec){.items = &item, .n_items = 1, .align_bytes = 64});
}

const unsigned char *variant_scene_bytes(const char *name)
{
    const struct mapping *mapping = variant_scene.mapping;
    for (size_t i = 0; i < mapping->n_tensors; i++) {
        if (strcmp(mapping->tensors[i].record->name, name) == 0)
            return variant_scene.replica + mapping->tensors[i].offset;
    }
    fprintf(stderr, "variant_scene: there is no %s\n", name);
    exit(2);
}

const struct tensor_record *variant_scene_tensor(const char *name)
{
    uint32_t found = map_find(&variant_scene.artifact->by_name, name, strlen(name));
    return found == MAP_NONE ? NULL : &variant_scene.artifact->tensors[found];
}

uint64_t variant_scene_read_bytes(void)
{
    return mapping_source_bytes(variant_scene.mapping);
}
