/* Loads from a store of which REMOTE_SCENE_REQUEST bytes are asked at once. Blocks are as large, so a few MiB are several of them. */
#ifndef TESTS_SUPPORT_REMOTE_SCENE_H
#define TESTS_SUPPORT_REMOTE_SCENE_H

#include "tests/support/load_scene.h"

enum { REMOTE_SCENE_REQUEST = 2 << 20 };
struct source_remote *remote_scene_move_away(struct load_scene *scene);
struct load *remote_scene_load_columns(struct load_scene *scene, const char *name, int64_t from, int64_t to);
void remote_scene_release(struct source_remote *remote);

#endif
