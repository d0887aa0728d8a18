#include "tests/support/index_scene.h"

#include <string.h>

struct index_scene index_scene;

int index_scene_begin(void **state)
{
    (void)state;
    arena_init(&index_scene.arena, 0);
    index_scene.work = (struct index_work){&index_scene.arena, 0, &index_scene.error};
    return 0;
}

int index_scene_end(void **state)
{
    (void)state;
    arena_fini(&index_scene.arena);
    return 0;
}

struct index_array index_scene_identity(uint32_t source, uint32_t rank, const uint64_t *shape, bool is_flat)
{
    struct index_array array;
    if (index_identity(&index_scene.work, source, rank, shape, is_flat, &array) < 0)
        memset(&array, 0, sizeof array);
    return array;
}

struct found {
    uint64_t n, at;
    uint32_t source;
};

static int take_element(void *data, const struct index_draft *part)
{
    struct found *found = data;
    found->n++;
    found->at = part->src_start[0];
    found->source = part->source;
    return 0;
}

uint64_t index_scene_at(const struct index_array *array, const uint64_t *index, uint32_t *source)
{
    uint64_t ones[TENSOR_MAX_RANK];
    struct found found = {0};
    for (uint32_t i = 0; i < array->rank; i++)
        ones[i] = 1;
    for (size_t m = 0; m < array->n_maps; m++) {
        struct index_draft draft;
        index_draft(&array->maps[m], array->rank, &draft);
        index_clip(&draft, INDEX_DST, array->rank, index, ones, &(struct index_taker){take_element, &found});
    }
    *source = found.source;
    return found.n == 1 ? found.at : UINT64_MAX;
}
