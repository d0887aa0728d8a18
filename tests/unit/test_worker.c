/* What an idle worker takes next of a run: its set-up, its blocks, then the ending of its destination. No thread runs. */
#include "tests/support/unit.h"

#include "base/loop.h"
#include "execute/io_device.h"
#include "execute/turns.h"
#include "tests/support/transfer_scene.h"

#undef fail /* ours is in base/error.h */

enum { BLOCK = 4096, BLOCKS = 3 };

static struct transfer_scene scene;
static struct engine *engine = &scene.engine;
static struct worker worker;
static struct run *run;

static void stop(struct loop_task *task)
{
    (void)task;
    loop_stop(scene.loop);
}

static int open_scene(void **state)
{
    struct transfer all = {
        .row_bytes = BLOCKS * BLOCK, .n_rows = 1, .src_stride = BLOCKS * BLOCK, .dst_stride = BLOCKS * BLOCK};
    (void)state;
    transfer_scene_init(&scene, 1, BLOCKS * BLOCK);
    engine->loop = scene.loop = loop_create();
    engine->n_workers = 1;
    engine->crew.workers = &worker;
    engine->crew.n = 1;
    engine->block_bytes = BLOCK;
    pthread_cond_init(&engine->crew.work, NULL);
    staging_init(&engine->staging, BLOCK, 4 * BLOCK);
    worker = (struct worker){.engine = engine, .crew = &engine->crew};
    item_init(&worker.item, engine, false);
    run = &transfer_scene_add_transfers(&scene, &all, 1, true)->run;
    destination_fini(run->destination);
    run->task.run = stop;
    run->stage = RUN_NEW;
    run->n_taken = 0;
    run->block_bytes = BLOCK;
    io_device_attach(run);
    turns_add(run);
    return 0;
}

static int close_scene(void **state)
{
    (void)state;
    if (worker.buffer)
        staging_give(worker.buffer, 0);
    scan_detach(engine, run);
    free(run->members);
    free(run->needs.deferred);
    free(worker.window.clips.list);
    free(worker.window.extents.list);
    free(worker.window.requests.list);
    scatter_fini(&worker.scatter);
    item_fini(&worker.item);
    staging_fini(&engine->staging);
    pthread_cond_destroy(&engine->crew.work);
    loop_destroy(scene.loop);
    transfer_scene_fini(&scene);
    return 0;
}

/* Takes the next item, which is of this kind, and does it. */
static void take_and_do(enum item_kind kind)
{
    pthread_mutex_lock(&engine->lock);
    assert_true(worker_take_item(&worker));
    assert_int_equal(worker.item.kind, kind);
    worker_run_item(&worker);
    assert_int_equal(worker.item.kind, ITEM_NONE);
    pthread_mutex_unlock(&engine->lock);
}

TEST_IN(a_run_is_set_up_then_read_then_ended, open_scene, close_scene)
{
    take_and_do(ITEM_SETUP);
    assert_int_equal(run->needs.n_pending, BLOCKS);
    for (int i = 0; i < BLOCKS; i++)
        take_and_do(ITEM_BLOCK);
    assert_int_equal(run->stage, RUN_ACTIVE);
    assert_int_equal(scene.runs[0].heap->n_finished, 0);
    take_and_do(ITEM_ENDING);
    assert_int_equal(run->stage, RUN_FINISHED);
    loop_run(scene.loop);
    assert_int_equal(scene.runs[0].heap->n_finished, 1);
    assert_false(run->has_failed);
    assert_int_equal(run_done_bytes(run), BLOCKS * BLOCK);
    assert_true(transfer_scene_is_right(&scene.runs[0]));
    assert_false(worker_take_item(&worker));
}

TEST_IN(a_run_that_was_cancelled_is_only_abandoned, open_scene, close_scene)
{
    struct error error;
    take_and_do(ITEM_SETUP);
    take_and_do(ITEM_BLOCK);
    fail(&error, ERROR_CANCELLED, "LOAD_CANCELLED", "the load was cancelled");
    run_fail(run, &error);
    take_and_do(ITEM_ENDING);
    loop_run(scene.loop);
    assert_int_equal(scene.runs[0].heap->n_abandoned, 1);
    assert_int_equal(scene.source.n_reads, 1);
}

TEST_IN(a_block_without_a_buffer_fails, open_scene, close_scene)
{
    struct staging_buffer *others[4];
    take_and_do(ITEM_SETUP);
    pthread_mutex_lock(&engine->lock);
    assert_true(worker_take_item(&worker));
    for (size_t i = 0; i < 4; i++)
        others[i] = staging_take(&engine->staging, NULL);
    worker_run_item(&worker);
    pthread_mutex_unlock(&engine->lock);
    for (size_t i = 0; i < 4; i++)
        staging_give(others[i], 0);
    assert_string_equal(run->error.reason, "OUT_OF_MEMORY");
    take_and_do(ITEM_ENDING);
    loop_run(scene.loop);
}
