/* See remote_scene.h. */
#include "tests/support/remote_scene.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/support/load_scene.h"

#include <cmocka.h> /* last: it makes a macro of fail */

struct source_remote *remote_scene_move_away(struct load_scene *scene)
{
    struct source_remote *remote = scene_move_away(scene);
    remote->base.caps.request_bytes = REMOTE_SCENE_REQUEST;
    return remote;
}

struct load *remote_scene_load_columns(struct load_scene *scene, const char *name, int64_t from, int64_t to)
{
    return scene_load_create_item(scene, name, 2, (struct slice[2]){{0, INT64_MAX}, {from, to}}, EXECUTOR_PREFERENCE_AUTO);
}

void remote_scene_release(struct source_remote *remote)
{
    __atomic_store_n(&remote->is_released, true, __ATOMIC_RELAXED);
}
