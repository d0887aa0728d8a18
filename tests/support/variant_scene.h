/* A variant of an artifact in memory: files that a test writes, a recipe, and what its tensors hold. Elements are moved and
 * converted one transfer after the other, by transfer_apply(). One thread. */
#ifndef SUPPORT_VARIANT_SCENE_H
#define SUPPORT_VARIANT_SCENE_H

#include "resolve/mapping.h"

extern struct variant_scene {
    struct artifact *artifact; /* of the last variant */
    struct mapping *mapping;   /* of the last view */
    unsigned char *replica;
    struct error error;
} variant_scene;

int variant_scene_begin(void **state);
int variant_scene_end(void **state);

/* The file model.safetensors of the artifact. Byte i of the data is what `byte` says. */
void variant_scene_put(const char *header, uint64_t data_bytes, unsigned char (*byte)(uint64_t i));
/* -1 with variant_scene.error. */
int variant_scene_apply(const char *recipe);
/* All of the variant; or a slice of one tensor, with bounds for each dimension. -1 with variant_scene.error. */
int variant_scene_load(void);
int variant_scene_load_view(const struct view_spec *view); /* any; what is not written is zero */
int variant_scene_slice(const char *name, const struct slice *slices, uint32_t n_slices);
/* Where a tensor of the view begins. */
const unsigned char *variant_scene_bytes(const char *name);
const struct tensor_record *variant_scene_tensor(const char *name); /* NULL = there is none */
uint64_t variant_scene_read_bytes(void);                            /* that the view needs of the file */

#endif
