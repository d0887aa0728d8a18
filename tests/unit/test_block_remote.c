/* How blocks of stores are read: through an image, straight into place, or in windows. */
#include "tests/support/unit.h"

#include "execute/block.h"
#include "execute/clip.h"
#include "execute/extent.h"
#include "tests/support/transfer_scene.h"

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

TEST_IN(what_is_wanted_whole_is_read_into_place, open_scene, close_scene)
{
    assert_int_equal(look_at(BLOCK, 1, true), BLOCK);
    assert_int_equal(block_remote.choose_buffer(&worker, &error), 0);
    assert_int_equal(worker.window.way, WAY_STRAIGHT);
    assert_null(worker.buffer);
}

TEST_IN(what_is_wanted_in_part_is_read_into_an_image_and_found_again, open_scene, close_scene)
{
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

static bool is_shared;

static bool tell_shared(const struct source *source, size_t file)
{
    (void)source, (void)file;
    return is_shared;
}

/* Of rows of which each is so long, one every 1024 bytes, while other hosts are asked. */
static enum window_way choose_way_of_hosts(uint64_t row_bytes, bool has_address)
{
    static struct block_holder hosts = {.name = "hosts", .serves = tell_shared};
    is_shared = true;
    look_at(row_bytes, BLOCK / 1024, has_address);
    worker.item.parts[0].run->options.holders = &hosts;
    assert_int_equal(block_remote.choose_buffer(&worker, &error), 0);
    return worker.window.way;
}

TEST_IN(rows_that_other_hosts_give_are_read_into_place, open_scene, close_scene)
{
    assert_int_equal(choose_way_of_hosts(512, true), WAY_STRAIGHT);
}

TEST_IN(rows_that_other_hosts_give_are_read_into_a_window_without_the_rest, open_scene, close_scene)
{
    assert_int_equal(choose_way_of_hosts(512, false), WAY_WANTED);
}

TEST_IN(short_rows_of_other_hosts_are_read_with_the_rest, open_scene, close_scene)
{
    assert_int_equal(choose_way_of_hosts(511, true), WAY_BUFFER);
}

TEST_IN(a_file_that_hosts_do_not_share_is_read_as_without_them, open_scene, close_scene)
{
    choose_way_of_hosts(512, true);
    is_shared = false;
    assert_int_equal(block_remote.choose_buffer(&worker, &error), 0);
    assert_int_equal(worker.window.way, WAY_BUFFER); /* into an image, for ranks that come later */
    assert_non_null(worker.buffer);
}

TEST_IN(a_crumbled_block_is_an_image_or_else_windows, open_scene, close_scene)
{
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

TEST_IN(as_many_pieces_as_a_socket_may_write_into_are_not_crumbled, open_scene, close_scene)
{
    scene.engine.remote.extent_cache_bytes = 0;
    look_at(1, MAX_PIECES, true);
    assert_false(worker.window.is_crumbled);
}

TEST_IN(memory_without_an_address_is_filled_through_windows, open_scene, close_scene)
{
    assert_int_equal(look_at(WINDOW, 1, false), WINDOW);
    block_remote.choose_buffer(&worker, &error);
    assert_true(worker.window.way != WAY_STRAIGHT);
    assert_ptr_equal(worker.buffer->home, &scene.engine.remote.windows);
}

TEST_IN(an_interrupted_item_gets_no_window, open_scene, close_scene)
{
    look_at(WINDOW, 1, false);
    worker.item.should_stop = true;
    assert_int_equal(block_remote.choose_buffer(&worker, &error), -1);
    assert_string_equal(error.reason, "OUT_OF_MEMORY");
}
