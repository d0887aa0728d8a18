/* Artifacts "memory:m" whose files are put there by the test, and a cache of headers. */
#ifndef TESTS_SUPPORT_ARTIFACT_SCENE_H
#define TESTS_SUPPORT_ARTIFACT_SCENE_H

#include "resolve/artifact.h"
#include "resolve/header_cache.h"

#define ARTIFACT_SCENE_INDEX "model.safetensors.index.json"
extern const struct source_options artifact_scene_options;
extern struct header_cache *artifact_scene_cache;
int artifact_scene_open(void **state);
int artifact_scene_close(void **state);
void artifact_scene_put_text(const char *file, const char *text);
/* A file with U8 tensors of 4 bytes, one per letter of `letters`. */
void artifact_scene_put_part(const char *file, const char *letters);
struct artifact *artifact_scene_resolve(bool fresh);
/* The names of the tensors, in order. */
void artifact_scene_holds(const struct artifact *artifact, const char *letters);

#endif
