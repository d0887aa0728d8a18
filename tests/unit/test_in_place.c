/* What lands where it belongs, and what goes through the buffer: every byte is right either way, and counted once. */
#include "tests/support/unit.h"

#include "base/memory.h"
#include "execute/clip.h"
#include "execute/extent.h"
#include "execute/gather.h"
#include "execute/in_place.h"
#include "tests/support/transfer_scene.h"

enum { BYTES = 1 << 20, BLOCK = 4096 };

static struct window window;
static struct staging_buffer buffer;
static struct transfer_scene scene;

static void open_scene(uint64_t seed)
{
    transfer_scene_init(&scene, seed, BYTES);
    scene.source.base.caps.direct_reads = true;
    scene.source.base.caps.direct_offset_alignment = scene.source.base.caps.direct_memory_alignment = 512;
}

static void load(uint64_t lo, uint64_t hi)
{
    struct error error;
    window.range = (struct range){lo, hi};
    window.way = WAY_IN_PLACE;
    buffer.start = lo & ~(uint64_t)511;
    clip_collect(&window.clips, &scene.item, window.range);
    extent_collect(&window.extents, &scene.item, window.range);
    assert_int_equal(gather_read(&scene.item, &window, &buffer, &error), 0);
    gather_place(&scene.item, &window, &buffer);
}

static struct transfer span(uint64_t src, uint64_t dst, uint64_t bytes)
{
    return (struct transfer){
        .src_offset = src, .dst_offset = dst, .row_bytes = bytes, .n_rows = 1, .src_stride = bytes, .dst_stride = bytes};
}

TEST(blocks_land_and_edges_are_copied)
{
    const struct transfer one = span(1000, 1000, 500000);
    open_scene(1);
    struct scene_run *run = transfer_scene_add_transfers(&scene, &one, 1, true);
    load(0, BYTES);
    const struct part *part = &scene.item.parts[0];
    assert_true(transfer_scene_is_right(run));
    assert_int_equal(part->placed_bytes, 500000);
    assert_int_equal(part->report.direct_bytes, (501000 / BLOCK - 1) * BLOCK);
    assert_int_equal(part->report.direct_bytes + part->report.copied_bytes, part->placed_bytes);
    transfer_scene_fini(&scene);
}

TEST(neighbours_land_together)
{
    const struct transfer many[] = {span(1000, 1000, 10000), span(11000, 11000, 20000), span(31000, 31000, 30001)};
    open_scene(2);
    struct scene_run *run = transfer_scene_add_transfers(&scene, many, 3, true);
    load(0, BYTES);
    assert_true(transfer_scene_is_right(run));
    assert_int_equal(window.in_place.n, 1);
    assert_int_equal(scene.item.parts[0].report.direct_bytes, (61001 / BLOCK - 1) * BLOCK);
    transfer_scene_fini(&scene);
}

TEST(what_is_aligned_otherwise_is_copied)
{
    const struct transfer one = span(1000, 1008, 500000);
    open_scene(3);
    struct scene_run *run = transfer_scene_add_transfers(&scene, &one, 1, true);
    load(0, BYTES);
    assert_true(transfer_scene_is_right(run));
    assert_int_equal(scene.item.parts[0].report.direct_bytes, 0);
    transfer_scene_fini(&scene);
}

TEST(long_rows_land_one_by_one)
{
    const struct transfer rows = {
        .src_offset = 8192, .dst_offset = 8192, .row_bytes = 65536, .n_rows = 4, .src_stride = 131072, .dst_stride = 65536};
    open_scene(4);
    struct scene_run *run = transfer_scene_add_transfers(&scene, &rows, 1, true);
    load(0, BYTES);
    assert_true(transfer_scene_is_right(run));
    assert_int_equal(window.in_place.n, 4);
    assert_int_equal(scene.item.parts[0].report.direct_bytes, 4 * 65536);
    assert_int_equal(scene.item.parts[0].report.copied_bytes, 0);
    transfer_scene_fini(&scene);
}

TEST(bytes_that_two_runs_want_are_copied_to_both)
{
    const struct transfer whole = span(0, 0, 400000), part = span(204800, 204800, 100000);
    open_scene(5);
    struct scene_run *one = transfer_scene_add_transfers(&scene, &whole, 1, true),
                     *other = transfer_scene_add_transfers(&scene, &part, 1, true);
    load(0, BYTES);
    assert_true(transfer_scene_is_right(one) && transfer_scene_is_right(other));
    assert_int_equal(scene.item.parts[0].report.direct_bytes + scene.item.parts[1].report.direct_bytes, 0);
    transfer_scene_fini(&scene);
}

TEST(runs_beside_each_other_both_land)
{
    const struct transfer low = span(100, 100, 400000), high = span(400100, 400100, 400000);
    open_scene(6);
    struct scene_run *one = transfer_scene_add_transfers(&scene, &low, 1, true);
    struct scene_run *other = transfer_scene_add_transfers(&scene, &high, 1, true);
    load(0, BYTES);
    assert_true(transfer_scene_is_right(one) && transfer_scene_is_right(other));
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(scene.item.parts[i].placed_bytes, 400000);
        assert_true(scene.item.parts[i].report.copied_bytes < 2 * BLOCK);
    }
    transfer_scene_fini(&scene);
}

TEST(memory_without_address_gets_copies)
{
    const struct transfer one = span(4096, 4096, 500000);
    open_scene(7);
    struct scene_run *run = transfer_scene_add_transfers(&scene, &one, 1, false);
    load(0, BYTES);
    assert_true(transfer_scene_is_right(run));
    assert_int_equal(scene.item.parts[0].report.direct_bytes, 0);
    assert_int_equal(scene.item.parts[0].report.copied_bytes, 500000);
    transfer_scene_fini(&scene);
}

TEST(what_no_request_brings_does_not_land)
{
    const struct transfer one = span(0, 0, 500000);
    open_scene(8);
    transfer_scene_add_transfers(&scene, &one, 1, true);
    window.range = (struct range){0, BYTES};
    clip_collect(&window.clips, &scene.item, window.range);
    window.requests.n = 0;
    extent_add_request(&window.requests, (struct range){100352, 200192});
    in_place_find(&scene.item, &window);
    assert_int_equal(window.in_place.n, 1);
    assert_int_equal(window.in_place.list[0].range.lo, 102400);
    assert_int_equal(window.in_place.list[0].range.hi, 196608);
    transfer_scene_fini(&scene);
}

/* Of three rows, and of one that lies in two of them, with what begins before the range and ends behind it. */
TEST(what_no_clip_wants_has_no_buffer)
{
    const struct transfer many[] = {
        {.src_offset = 1000, .row_bytes = 600, .n_rows = 3, .src_stride = 1000, .dst_stride = 600}, span(2500, 4000, 600)};
    open_scene(9);
    transfer_scene_add_transfers(&scene, many, 2, false);
    window.range = (struct range){0, BYTES};
    clip_collect(&window.clips, &scene.item, window.range);
    buffer.start = 0;
    assert_int_equal(in_place_wanted_buffers(&window, &buffer, (struct range){1100, 3400}), 3);
    const struct iovec *buffers = window.in_place.buffers;
    assert_true(buffers[0].iov_base == buffer.memory + 1100 && buffers[0].iov_len == 500);
    assert_true(buffers[1].iov_base == NULL && buffers[1].iov_len == 400);
    assert_true(buffers[2].iov_base == buffer.memory + 2000 && buffers[2].iov_len == 1400);
    assert_int_equal(in_place_wanted_buffers(&window, &buffer, (struct range){1600, 2000}), 1);
    assert_null(window.in_place.buffers[0].iov_base);
    transfer_scene_fini(&scene);
}

TEST(any_transfers_are_placed_right)
{
    size_t n_landed = 0;
    for (uint64_t seed = 10; seed < 60; seed++) {
        open_scene(seed);
        for (uint64_t i = 0; i < 1 + seed % 3; i++)
            transfer_scene_add_run(&scene, seed * 9973 % 120000 + 1, (seed + i) % 3);
        scene.source.base.caps.direct_memory_alignment = 1;
        load(0, BYTES);
        for (size_t i = 0; i < scene.n_runs; i++) {
            const struct part *part = &scene.item.parts[i];
            assert_true(transfer_scene_is_right(&scene.runs[i]));
            assert_int_equal(part->placed_bytes, scene.runs[i].mapping.view_bytes);
            assert_int_equal(part->report.direct_bytes + part->report.copied_bytes, part->placed_bytes);
            n_landed += part->report.direct_bytes > 0;
        }
        transfer_scene_fini(&scene);
    }
    assert_true(n_landed > 0);
}

static int make_buffer(void **state)
{
    (void)state;
    buffer.memory = memory_alloc(BYTES + 4096);
    return 0;
}

static int free_lists(void **state)
{
    (void)state;
    free(buffer.memory);
    free(window.clips.list);
    free(window.extents.list);
    free(window.requests.list);
    in_place_fini(&window.in_place);
    return 0;
}

TESTS_IN(make_buffer, free_lists)
