/* Devices that are read from: each has as many workers as every other, and leaves staging buffers to others. */
#include "tests/support/unit.h"

#include "execute/engine_private.h"
#include "execute/io_device.h"
#include "tests/support/transfer_scene.h"

#undef fail /* ours is in base/error.h */

static struct transfer_scene scene;
static struct engine *engine = &scene.engine;
static struct worker workers[4];
static struct run *runs[3];

static int open_scene(void **state)
{
    struct transfer byte = {.row_bytes = 1, .n_rows = 1, .src_stride = 1, .dst_stride = 1};
    (void)state;
    transfer_scene_init(&scene, 1, 100);
    engine->n_workers = 2;
    staging_init(&engine->staging, 4096, 4 * 4096);
    pthread_cond_init(&engine->crew.work, NULL);
    for (size_t i = 0; i < 3; i++) { /* two from device 1, one from device 2 */
        runs[i] = &transfer_scene_add_transfers(&scene, &byte, 1, true)->run;
        scene.source.base.caps.device_set = i / 2 + 1;
        io_device_attach(runs[i]);
    }
    for (size_t i = 0; i < 4; i++)
        workers[i] = (struct worker){.engine = engine};
    return 0;
}

static int close_scene(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++)
        io_device_detach(runs[i]);
    assert_int_equal(engine->n_devices, 0);
    assert_null(engine->devices);
    pthread_cond_destroy(&engine->crew.work);
    staging_fini(&engine->staging);
    transfer_scene_fini(&scene);
    return 0;
}

TEST_IN(runs_from_the_same_device_share_its_workers, open_scene, close_scene)
{
    assert_int_equal(engine->n_devices, 2);
    assert_ptr_equal(runs[0]->device, runs[1]->device);
    for (size_t i = 0; i < 2; i++) {
        assert_true(io_device_may_take(&workers[i], runs[i]));
        io_device_begin(&workers[i], runs[i]);
    }
    assert_false(io_device_may_take(&workers[2], runs[0]));
    assert_true(io_device_may_take(&workers[2], runs[2]));
    io_device_end(&workers[0]);
    assert_true(io_device_may_take(&workers[2], runs[1]));
    io_device_end(&workers[1]);
}

TEST_IN(a_device_has_fewer_buffers_than_are_left_for_others, open_scene, close_scene)
{
    struct staging_buffer *taken[3];
    for (size_t i = 0; i < 3; i++)
        taken[i] = staging_take(&engine->staging, NULL);
    assert_true(io_device_may_take(&workers[0], runs[0]));
    io_device_begin(&workers[0], runs[0]);
    assert_false(io_device_may_take(&workers[1], runs[0]));
    assert_true(engine->wants_buffers);
    assert_true(io_device_may_take(&workers[1], runs[2]));
    workers[1].buffer = taken[0]; /* a worker that has one takes none from the others */
    assert_true(io_device_may_take(&workers[1], runs[0]));
    io_device_end(&workers[0]);
    for (size_t i = 0; i < 3; i++)
        staging_give(taken[i], 0);
}

TEST_IN(a_device_with_a_read_in_flight_is_not_forgotten, open_scene, close_scene)
{
    io_device_begin(&workers[0], runs[2]);
    io_device_detach(runs[2]);
    assert_int_equal(engine->n_devices, 2);
    io_device_end(&workers[0]);
    assert_int_equal(engine->n_devices, 1);
    io_device_attach(runs[2]);
}
