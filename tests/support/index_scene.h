/* For tests of index maps: an arena and a work area, and what a map says of single elements. One thread. */
#ifndef SUPPORT_INDEX_SCENE_H
#define SUPPORT_INDEX_SCENE_H

#include "resolve/index_map.h"

extern struct index_scene {
    struct arena arena;
    struct error error;
    struct index_work work;
} index_scene;

int index_scene_begin(void **state);
int index_scene_end(void **state);

/* A stored tensor, number `source`. */
struct index_array index_scene_identity(uint32_t source, uint32_t rank, const uint64_t *shape, bool is_flat);
/* The stored element, in C order, that an element of a flat array is; UINT64_MAX when no map or several have it. */
uint64_t index_scene_at(const struct index_array *array, const uint64_t *index, uint32_t *source);

#endif
