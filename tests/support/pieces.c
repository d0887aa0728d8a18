/* Tensors in the order of their first pieces; piece i is stored tensor i. */
#include "tests/support/pieces.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/memory.h"

struct joined {
    struct artifact artifact;
    struct arena arena;
};

static struct tensor_record *find_or_add(struct joined *joined, struct tensor_record *tensors,
                                         const struct tensor_record *stored, size_t length)
{
    struct artifact *artifact = &joined->artifact;
    uint32_t found = map_add(&artifact->by_name, stored->name, length, (uint32_t)artifact->n_tensors);
    if (found != MAP_NONE)
        return &tensors[found];
    struct tensor_record *tensor = &tensors[artifact->n_tensors++];
    *tensor = *stored;
    tensor->name = arena_text(&joined->arena, stored->name, length);
    tensor->name_length = (uint32_t)length;
    tensor->shape = arena_array(&joined->arena, stored->rank, sizeof *tensor->shape);
    tensor->n_pieces = 0;
    return tensor;
}

static uint64_t *read_box(struct joined *joined, const struct tensor_record *stored, const char *offsets)
{
    uint64_t *box = arena_array(&joined->arena, 2 * (size_t)stored->rank, sizeof *box);
    char *next = (char *)(uintptr_t)offsets;
    for (uint32_t d = 0; d < stored->rank; d++) {
        box[d] = strtoull(next + 1, &next, 10);
        box[stored->rank + d] = stored->shape[d];
    }
    return box;
}

static void grow(struct tensor_record *tensor, const struct tensor_record *stored, const uint64_t *box)
{
    uint64_t *shape = (uint64_t *)(uintptr_t)tensor->shape, bits = dtype_bits(tensor->dtype);
    for (uint32_t d = 0; d < tensor->rank; d++) {
        uint64_t end = (box ? box[d] : 0) + stored->shape[d];
        shape[d] = end > shape[d] ? end : shape[d];
        bits *= shape[d];
    }
    tensor->bytes = bits / 8;
}

static void list_by_tensor(struct joined *joined, struct tensor_record *tensors, const struct tensor_piece *pieces)
{
    struct artifact *artifact = &joined->artifact;
    uint32_t *lists = arena_array(&joined->arena, artifact->n_pieces, sizeof *lists), n = 0;
    for (size_t t = 0; t < artifact->n_tensors; t++) {
        tensors[t].first_piece = n;
        for (size_t i = 0; i < artifact->n_pieces; i++)
            if (pieces[i].tensor == t)
                lists[n++] = (uint32_t)i;
    }
    artifact->piece_lists = lists;
}

struct artifact *pieces_join(struct artifact *stored)
{
    struct joined *joined = memory_alloc(sizeof *joined);
    struct artifact *artifact = &joined->artifact;
    arena_init(&joined->arena, 0);
    struct tensor_record *tensors = arena_array(&joined->arena, stored->n_tensors, sizeof *tensors);
    struct tensor_piece *pieces = arena_array(&joined->arena, stored->n_tensors, sizeof *pieces);
    *artifact = (struct artifact){
        .source = stored->source, .reference = stored->reference, .tensors = tensors, .pieces = pieces, .references = 1};
    map_init(&artifact->by_name, stored->n_tensors);
    for (size_t i = 0; i < stored->n_tensors; i++) {
        const struct tensor_record *record = &stored->tensors[i];
        const char *at = memchr(record->name, '@', record->name_length);
        struct tensor_record *tensor =
            find_or_add(joined, tensors, record, at ? (size_t)(at - record->name) : record->name_length);
        struct tensor_piece *piece = &pieces[artifact->n_pieces++];
        *piece = stored->pieces[i];
        piece->box = at ? read_box(joined, record, at) : NULL;
        piece->tensor = (uint32_t)(tensor - tensors);
        tensor->n_pieces++;
        grow(tensor, record, piece->box);
    }
    list_by_tensor(joined, tensors, pieces);
    return artifact;
}

void pieces_free(struct artifact *artifact)
{
    struct joined *joined = (struct joined *)artifact;
    if (!joined)
        return;
    map_fini(&joined->artifact.by_name);
    arena_fini(&joined->arena);
    free(joined);
}
