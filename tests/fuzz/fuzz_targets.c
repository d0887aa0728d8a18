/* Targets of a client as input: any regions, offsets, strides, fills and covers, for a small model or a variant of it. Reaches
 * target.c, target_proof.c, strided.c, mapping_target.c, mapping_derived.c and box.c. What is accepted writes no byte of any memory
 * twice and none outside of its regions, and writes every element of its covers.
 *
 * A byte each: for two regions bytes / 8, inode % 3, offset in the memory; numbers of fills % 3 and covers % 3, of which
 * the upper three bits say whether it is the variant, and how many rows of its first tensor are left out; then for every
 * array 1 byte of what is odd about it, region, and 2 bytes of offset and of each stride. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "resolve/mapping.h"
#include "tests/support/source_memory.h"
#include "variant/variant.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { N_REGIONS = 2, N_TENSORS = 4, N_ARRAYS = N_TENSORS + 4, MEMORY_BYTES = 2048 + 256, N_MEMORIES = N_REGIONS + 3 };

struct input {
    const uint8_t *data;
    size_t size;
};

static struct scene {
    struct target_region regions[N_REGIONS];
    struct target_list list;
    struct target tensors[N_TENSORS], covers[2];
    struct target_fill fills[2];
    struct view_item items[N_TENSORS];
    struct slice slices[3]; /* of the first */
    uint64_t dims[N_ARRAYS][3];
    int64_t strides[N_ARRAYS][3];
    unsigned char written[N_MEMORIES][MEMORY_BYTES];
} scene;

static uint64_t take(struct input *input, unsigned n_bytes)
{
    uint64_t value = 0;
    for (; n_bytes > 0; n_bytes--) {
        value = value << 8 | (input->size ? *input->data : 0);
        input->data += input->size > 0;
        input->size -= input->size > 0;
    }
    return value;
}

static struct artifact *resolve(bool is_variant)
{
    static const char recipe[] = "[{\"transpose\":{\"tensors\":[\"a\"],\"dims\":[0,2,1]}}]";
    static const char header[] = "{\"a\":{\"dtype\":\"U8\",\"shape\":[3,4,5],\"data_offsets\":[0,60]},"
                                 "\"b\":{\"dtype\":\"F32\",\"shape\":[3,4],\"data_offsets\":[60,108]},"
                                 "\"c\":{\"dtype\":\"BF16\",\"shape\":[7],\"data_offsets\":[108,122]},"
                                 "\"d\":{\"dtype\":\"F4\",\"shape\":[2,4],\"data_offsets\":[122,126]}}";
    static unsigned char file[8 + sizeof header - 1 + 126];
    static struct artifact *artifacts[2];
    struct artifact **artifact = &artifacts[is_variant];
    struct error error;
    uint64_t length = sizeof header - 1;
    if (*artifact)
        return *artifact;
    memcpy(file, &length, 8);
    memcpy(file + 8, header, length);
    source_memory_put("fuzz", "model.safetensors", file, sizeof file);
    if (artifact_resolve("memory:fuzz", &(struct source_options){0}, NULL, 0, artifact, &error) < 0 ||
        (is_variant && variant_apply(artifact, recipe, sizeof recipe - 1, NULL, NULL, &error) < 0))
        abort();
    return *artifact;
}

static struct target take_target(struct input *input, const struct tensor_record *like, size_t array)
{
    uint64_t odd = take(input, 1), *dims = scene.dims[array];
    struct target target = {.name = "x",
                            .name_length = 1,
                            .dtype = odd & 1 ? (enum dtype)(odd >> 3) % DTYPE_COUNT : like->dtype,
                            .rank = odd & 2 ? odd >> 3 & 3 : like->rank,
                            .dims = dims,
                            .strides = scene.strides[array]};
    target.region = (uint32_t)take(input, 1) % 3;
    target.offset = take(input, odd & 4 ? 8 : 2);
    for (uint32_t d = 0; d < 3; d++) {
        dims[d] = odd & 2 ? take(input, 1) % 16 : d < like->rank ? like->shape[d] : 0;
        scene.strides[array][d] = odd & 4 ? (int64_t)take(input, 8) : (int16_t)take(input, 2);
    }
    return target;
}

static struct artifact *make_scene(struct input *input)
{
    static const unsigned char value[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    size_t array = 0;
    memset(&scene, 0, sizeof scene);
    for (size_t i = 0; i < N_REGIONS; i++)
        scene.regions[i] = (struct target_region){
            .bytes = take(input, 1) * 8, .inode = take(input, 1) % 3, .memory_offset = take(input, 1)};
    scene.list = (struct target_list){.regions = scene.regions,
                                      .n_regions = N_REGIONS,
                                      .tensors = scene.tensors,
                                      .n_tensors = N_TENSORS,
                                      .fills = scene.fills,
                                      .n_fills = take(input, 1) % 3,
                                      .covers = scene.covers};
    uint64_t last = take(input, 1), n_left_out = last >> 5 & 3;
    struct artifact *artifact = resolve(last >> 7);
    scene.list.n_covers = last % 32 % 3;
    for (size_t i = 0; i < N_TENSORS; i++)
        scene.items[i] =
            (struct view_item){.name = artifact->tensors[i].name, .name_length = artifact->tensors[i].name_length};
    for (size_t d = 0; d < 3; d++)
        scene.slices[d] = (struct slice){d ? 0 : (int64_t)n_left_out, INT64_MAX};
    scene.items[0].slices = scene.slices;
    scene.items[0].n_slices = n_left_out ? 3 : 0;
    for (; array < N_TENSORS; array++)
        scene.tensors[array] = take_target(input, &artifact->tensors[array], array);
    for (size_t i = 0; i < scene.list.n_fills; i++, array++) {
        scene.fills[i].target = take_target(input, &artifact->tensors[i], array);
        scene.fills[i].value = value;
        scene.fills[i].value_bytes = dtype_bits(scene.fills[i].target.dtype) / 8;
    }
    for (size_t i = 0; i < scene.list.n_covers; i++, array++)
        scene.covers[i] = take_target(input, &artifact->tensors[i], array);
    return artifact;
}

/* Where a byte of the destination space is. */
static unsigned char *find(uint64_t at)
{
    for (size_t i = 0; i < N_REGIONS; i++) {
        const struct target_region *region = &scene.regions[i];
        if (at >= region->base && at - region->base < region->bytes)
            return &scene.written[region->inode ? N_REGIONS + region->inode : i][region->memory_offset + at - region->base];
    }
    abort();
}

static void write_rows(uint64_t at, uint64_t bytes, uint64_t n_rows, int64_t stride)
{
    for (uint64_t row = 0; row < n_rows; row++)
        for (uint64_t i = 0; i < bytes; i++)
            if ((*find(at + row * (uint64_t)stride + i))++)
                abort();
}

static void check_cover(const struct target *cover)
{
    uint32_t rank;
    uint64_t row = target_row(cover, &rank), n = 1;
    for (uint32_t d = 0; d < cover->rank; d++)
        if (!cover->dims[d])
            return;
    for (uint32_t d = 0; d < rank; d++)
        n *= cover->dims[d];
    for (uint64_t i = 0; i < n; i++) {
        uint64_t at = scene.regions[cover->region].base + cover->offset, rest = i;
        for (uint32_t d = 0; d < rank; rest /= cover->dims[d++])
            at += rest % cover->dims[d] * (uint64_t)cover->strides[d];
        for (uint64_t k = 0; k < row; k++)
            if (!*find(at + k))
                abort();
    }
}

static void check_mapping(const struct mapping *mapping)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < mapping->n_transfers; i++) {
        const struct transfer *transfer = &mapping->transfers[i];
        write_rows(transfer->dst_offset, transfer->row_bytes, transfer->n_rows, transfer->dst_stride);
        bytes += transfer_bytes(transfer);
    }
    if (bytes != mapping->view_bytes)
        abort();
    for (size_t i = 0; i < mapping->n_fills; i++) {
        const struct mapping_fill *fill = &mapping->fills[i];
        write_rows(fill->dst_offset, fill->row_bytes, fill->n_rows, (int64_t)fill->dst_stride);
        bytes += fill->row_bytes * fill->n_rows;
    }
    if (bytes != mapping->view_bytes + mapping->fill_bytes)
        abort();
    for (size_t i = 0; i < scene.list.n_covers; i++)
        check_cover(&scene.covers[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    struct error error = {0};
    struct artifact *artifact = make_scene(&input);
    if (target_place_regions(&scene.list, &error))
        abort();
    const struct view_spec view = {.items = scene.items, .n_items = N_TENSORS, .align_bytes = 64, .targets = &scene.list};
    struct mapping *mapping = mapping_build(&view, artifact, &error);
    if (mapping)
        check_mapping(mapping);
    else if ((error.code != ERROR_INVALID_ARGUMENT && error.code != ERROR_UNIMPLEMENTED) || !error.message[0])
        abort();
    mapping_destroy(mapping);
    return 0;
}
