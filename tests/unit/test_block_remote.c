/* How blocks of stores are read: through an image, straight into place, or in windows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "execute/block.h"
#include "execute/clip.h"
#include "execute/extent.h"
#include "tests/support/transfer_scene.h"

#include <cmocka.h>
#undef fail /* ours is in base/error.h */

enum { BLOCK = 256 << 10, WINDOW = 64 << 10, MAX_PIECES = 8 << 10 };

static struct transfer_scene scene;
static struct worker worker;
static struct error error;

static int open_scene(void **state)
{
    (void)state;
    transfer_scene_init(&scene, 1, BLOCK);
    scene.source.base.caps = (struct source_caps){.reads_are_requests = true, .request_bytes = BLOCK};
    remote_pool_init(&scene.engine.remote,
                     &(struct engine_options){.staging_budget_bytes = 2 * WINDOW, .extent_cache_bytes = 4 * BLOCK});
    staging_init(&scene.engine.staging, WINDOW, WINDOW);
    staging_init(&scene.engine.remote.images, BLOCK, 4 * BLOCK);
    staging_init(&scene.engine.remote.windows, WINDOW, 2 * WINDOW);
    worker = (struct worker){.engine = &scene.engine};
    item_init(&worker.item, &scene.engine, true);
    worker.item.scan = &scene.scan;
    return 0;
}

static int close_scene(void **state)
{
    (void)state;
    free(worker.window.clips.list);
    free(worker.window.extents.list);
    block_remote.put_back(&worker, false);
    remote_pool_fini(&scene.engine.remote);
    staging_fini(&scene.engine.staging);
    scene.item = worker.item;
    transfer_scene_fini(&scene);
    return 0;
}

/* Rows of so many bytes, every 32 bytes of the block; returns how long windows are. */
static uint64_t look_at(uint64_t row_bytes, uint64_t n_rows, bool has_address)
{
    struct transfer rows = {.row_bytes = row_bytes,
                            .n_rows = n_rows,
                            .src_stride = n_rows > 1 ? BLOCK / n_rows : row_bytes,
                            .dst_stride = row_bytes};
    struct range block = {0, BLOCK};
    scene.item = worker.item;
    transfer_scene_add_transfers(&scene, &rows, 1, has_address);
    worker.item = scene.item;
    scene.runs[0].plan.steps[0] = (struct plan_step){0, BLOCK, 1, BLOCK, 0};
    scene.scan.block_bytes = has_address ? BLOCK : WINDOW;
    uint64_t window_bytes = block_remote.choose_window_bytes(&worker, block);
    worker.window.range = (struct range){0, window_bytes};
    worker.window.is_whole = !worker.window.is_crumbled;
    clip_collect(&worker.window.clips, &worker.item, worker.window.range);
    extent_collect(&worker.window.extents, &worker.item, worker.window.range);
    return window_bytes;
}

static void what_is_wanted_whole_is_read_into_place(void **state)
{
    (void)state;
    assert_int_equal(look_at(BLOCK, 1, true), BLOCK);
    assert_int_equal(block_remote.choose_buffer(&worker, &error), 0);
    assert_int_equal(worker.window.way, WAY_STRAIGHT);
    assert_null(worker.buffer);
}

static void what_is_wanted_in_part_is_read_into_an_image_and_found_again(void **state)
{
    (void)state;
    look_at(BLOCK / 2, 1, true);
    block_remote.choose_buffer(&worker, &error);
    assert_true(worker.window.way != WAY_STRAIGHT);
    const struct staging_buffer *image = worker.buffer;
    assert_ptr_equal(image->home, &scene.engine.remote.images);
    worker.buffer->range = (struct range){0, BLOCK};
    block_remote.put_back(&worker, true);
    assert_null(worker.buffer);
    block_remote.choose_buffer(&worker, &error);
    assert_ptr_equal(worker.buffer, image);
    assert_int_equal(range_bytes(worker.window.had), BLOCK);
}

static void a_crumbled_block_is_an_image_or_else_windows(void **state)
{
    (void)state;
    assert_int_equal(look_at(1, 2 * MAX_PIECES, true), BLOCK);
    assert_false(worker.window.is_crumbled);
    assert_ptr_equal(worker.buffer->home, &scene.engine.remote.images);
    block_remote.put_back(&worker, false);
    scene.engine.remote.extent_cache_bytes = 0;
    scene.item.n_parts = worker.item.n_parts = 0;
    assert_int_equal(block_remote.choose_window_bytes(&worker, (struct range){0, BLOCK}), BLOCK); /* no pieces */
    worker.item.n_parts = 1;
    assert_int_equal(block_remote.choose_window_bytes(&worker, (struct range){0, BLOCK}), WINDOW);
    assert_true(worker.window.is_crumbled);
    worker.window.is_whole = false;
    block_remote.choose_buffer(&worker, &error);
    assert_true(worker.window.way != WAY_STRAIGHT);
    assert_ptr_equal(worker.buffer->home, &scene.engine.remote.windows);
}

static void as_many_pieces_as_a_socket_may_write_into_are_not_crumbled(void **state)
{
    (void)state;
    scene.engine.remote.extent_cache_bytes = 0;
    look_at(1, MAX_PIECES, true);
    assert_false(worker.window.is_crumbled);
}

static void memory_without_an_address_is_filled_through_windows(void **state)
{
    (void)state;
    assert_int_equal(look_at(WINDOW, 1, false), WINDOW);
    block_remote.choose_buffer(&worker, &error);
    assert_true(worker.window.way != WAY_STRAIGHT);
    assert_ptr_equal(worker.buffer->home, &scene.engine.remote.windows);
}

static void an_interrupted_item_gets_no_window(void **state)
{
    (void)state;
    look_at(WINDOW, 1, false);
    worker.item.should_stop = true;
    assert_int_equal(block_remote.choose_buffer(&worker, &error), -1);
    assert_string_equal(error.reason, "OUT_OF_MEMORY");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_scene, close_scene)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_is_wanted_whole_is_read_into_place),
        TEST(what_is_wanted_in_part_is_read_into_an_image_and_found_again),
        TEST(a_crumbled_block_is_an_image_or_else_windows),
        TEST(as_many_pieces_as_a_socket_may_write_into_are_not_crumbled),
        TEST(memory_without_an_address_is_filled_through_windows),
        TEST(an_interrupted_item_gets_no_window),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
