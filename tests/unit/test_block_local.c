/* How windows of devices and mounts are read: which buffer, past the page cache or not, and what is kept. */
#include "tests/support/unit.h"

#include "execute/block.h"
#include "execute/clip.h"
#include "execute/extent.h"
#include "tests/support/transfer_scene.h"

#undef fail /* ours is in base/error.h */

enum { BUFFER = 64 << 10, BYTES = 2 * BUFFER };

static struct transfer_scene scene;
static struct worker worker;
static struct error error;

static int open_scene(void **state)
{
    (void)state;
    transfer_scene_init(&scene, 1, BYTES);
    scene.source.base.caps.direct_reads = true;
    scene.source.base.caps.direct_offset_alignment = scene.source.base.caps.direct_memory_alignment = 512;
    staging_init(&scene.engine.staging, BUFFER, 4 * BUFFER);
    worker =
        (struct worker){.engine = &scene.engine, .item = scene.item, .buffer = staging_take(&scene.engine.staging, NULL)};
    return 0;
}

static int close_scene(void **state)
{
    (void)state;
    free(worker.window.clips.list);
    free(worker.window.extents.list);
    scene.item = worker.item;
    staging_give(worker.buffer, 0);
    staging_fini(&scene.engine.staging);
    transfer_scene_fini(&scene);
    return 0;
}

/* A view of rows of so many bytes, the window at the second buffer. */
static void look_at(uint64_t row_bytes, uint64_t n_rows, bool has_address)
{
    struct transfer rows = {.src_offset = BUFFER,
                            .row_bytes = row_bytes,
                            .n_rows = n_rows,
                            .src_stride = n_rows > 1 ? BUFFER / n_rows : row_bytes,
                            .dst_stride = row_bytes};
    scene.item = worker.item;
    transfer_scene_add_transfers(&scene, &rows, 1, has_address);
    worker.item = scene.item;
    worker.window.range = (struct range){BUFFER, BYTES};
    worker.window.is_whole = true;
    clip_collect(&worker.window.clips, &worker.item, worker.window.range);
    extent_collect(&worker.window.extents, &worker.item, worker.window.range);
}

TEST_IN(what_is_not_cached_is_read_past_the_page_cache, open_scene, close_scene)
{
    look_at(BUFFER, 1, true);
    assert_int_equal(block_local.choose_buffer(&worker, &error), 0);
    assert_true(worker.window.way >= WAY_DIRECT);
    assert_int_equal(worker.buffer->start, BUFFER);
    worker.window.is_hot = true;
    assert_int_equal(block_local.choose_buffer(&worker, &error), 0);
    assert_int_equal(worker.window.way, WAY_STRAIGHT);
}

TEST_IN(a_device_block_larger_than_the_buffer_is_read_through_the_cache, open_scene, close_scene)
{
    look_at(BUFFER, 1, true);
    scene.source.base.caps.direct_offset_alignment = BUFFER;
    block_local.choose_buffer(&worker, &error);
    assert_true(worker.window.way >= WAY_DIRECT);
    scene.source.base.caps.direct_offset_alignment = 2 * BUFFER;
    block_local.choose_buffer(&worker, &error);
    assert_true(worker.window.way < WAY_DIRECT);
}

TEST_IN(short_rows_and_memory_without_an_address_go_through_the_buffer, open_scene, close_scene)
{
    look_at(1024, 32, true);
    worker.window.is_hot = true;
    block_local.choose_buffer(&worker, &error);
    assert_int_equal(worker.window.way, WAY_STRAIGHT);
    worker.item.n_parts = 0;
    transfer_scene_drop_run(&scene);
    look_at(1023, 32, true);
    block_local.choose_buffer(&worker, &error);
    assert_true(worker.window.way != WAY_STRAIGHT);
    look_at(BUFFER, 1, false);
    block_local.choose_buffer(&worker, &error);
    assert_true(worker.window.way != WAY_STRAIGHT);
}

/* Of 16 rows, every 4096 bytes, while other hosts are asked; extents are joined then. */
static enum window_way choose_way_of_hosts(uint64_t row_bytes, bool has_address)
{
    static struct block_holder hosts = {.name = "hosts"};
    look_at(row_bytes, 16, has_address);
    worker.item.parts[0].run->options.holders = &hosts;
    extent_join(&worker.window.extents, UINT64_MAX);
    assert_int_equal(block_local.choose_buffer(&worker, &error), 0);
    return worker.window.way;
}

TEST_IN(rows_that_other_hosts_give_are_read_into_place, open_scene, close_scene)
{
    assert_int_equal(choose_way_of_hosts(2048, true), WAY_STRAIGHT);
}

TEST_IN(rows_that_other_hosts_give_are_read_into_the_buffer_without_the_rest, open_scene, close_scene)
{
    assert_int_equal(choose_way_of_hosts(2048, false), WAY_WANTED);
}

TEST_IN(short_rows_of_other_hosts_are_read_with_the_rest, open_scene, close_scene)
{
    assert_int_equal(choose_way_of_hosts(511, true), WAY_DIRECT);
}

TEST_IN(a_window_that_was_kept_is_found_again_unless_it_is_hot, open_scene, close_scene)
{
    look_at(BUFFER, 1, true);
    block_local.choose_buffer(&worker, &error);
    const struct staging_buffer *kept = worker.buffer;
    worker.buffer->range = (struct range){BUFFER, BUFFER + 4096};
    block_local.put_back(&worker, true);
    assert_ptr_not_equal(worker.buffer, kept);
    worker.window.is_hot = true;
    block_local.choose_buffer(&worker, &error);
    assert_ptr_not_equal(worker.buffer, kept);
    worker.window.is_hot = false;
    block_local.choose_buffer(&worker, &error);
    assert_ptr_equal(worker.buffer, kept);
    assert_int_equal(range_bytes(worker.window.had), 4096);
    block_local.put_back(&worker, false);
    assert_ptr_equal(worker.buffer, kept); /* it stays the worker's */
}
