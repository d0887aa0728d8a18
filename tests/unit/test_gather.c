/* Reads into a buffer and copies out of it: any strides on both sides, any alignment, whatever was there already. */
#include "tests/support/unit.h"

#include "base/memory.h"
#include "execute/clip.h"
#include "execute/extent.h"
#include "execute/gather.h"
#include "execute/in_place.h"
#include "tests/support/transfer_scene.h"

enum { BYTES = 20000 };

static struct window window;
static struct staging_buffer buffer;

static int collect(struct transfer_scene *scene, struct error *error)
{
    window.range = (struct range){0, BYTES};
    clip_collect(&window.clips, &scene->item, window.range);
    extent_collect(&window.extents, &scene->item, window.range);
    return gather_read(&scene->item, &window, &buffer, error);
}

TEST(any_strides_are_placed_right)
{
    struct error error;
    for (uint64_t seed = 1; seed < 60; seed++) {
        struct transfer_scene scene;
        transfer_scene_init(&scene, seed, BYTES);
        scene.source.base.caps.direct_reads = seed % 2;
        window.way = seed % 2 ? WAY_DIRECT : WAY_BUFFER;
        scene.source.base.caps.direct_offset_alignment = 512;
        for (uint64_t i = 0; i < 1 + seed % 3; i++)
            transfer_scene_add_run(&scene, 1 + seed * 9, (seed + i) % 2);
        assert_int_equal(collect(&scene, &error), 0);
        gather_place(&scene.item, &window, &buffer);
        for (size_t i = 0; i < scene.n_runs; i++) {
            assert_true(transfer_scene_is_right(&scene.runs[i]));
            assert_int_equal(scene.item.parts[i].placed_bytes, scene.runs[i].mapping.view_bytes);
            assert_int_equal(scene.item.parts[i].report.copied_bytes, scene.runs[i].mapping.view_bytes);
        }
        transfer_scene_fini(&scene);
    }
}

TEST(what_no_request_brought_is_not_placed)
{
    struct transfer_scene scene;
    struct error error;
    struct transfer columns = {
        .src_offset = 0, .dst_offset = 0, .row_bytes = 100, .n_rows = 10, .src_stride = 1000, .dst_stride = 150};
    window.way = WAY_BUFFER;
    transfer_scene_init(&scene, 3, BYTES);
    transfer_scene_add_transfers(&scene, &columns, 1, true);
    assert_int_equal(collect(&scene, &error), 0);
    window.requests.n = 0;
    extent_add_request(&window.requests, (struct range){1000, 2100}); /* rows 1 and 2 */
    gather_place(&scene.item, &window, &buffer);
    assert_int_equal(scene.item.parts[0].placed_bytes, 200);
    assert_memory_equal(scene.runs[0].heap->memory + 150, scene.image + 1000, 100);
    assert_memory_equal(scene.runs[0].heap->memory + 300, scene.image + 2000, 100);
    assert_int_equal(scene.runs[0].heap->memory[0], 0xA5);
    transfer_scene_fini(&scene);
}

TEST(a_read_that_fails_is_told)
{
    struct transfer_scene scene;
    struct error error;
    transfer_scene_init(&scene, 5, BYTES);
    struct scene_run *run = transfer_scene_add_run(&scene, 500, true);
    scene.source.fail_from = run->mapping.transfers[run->mapping.n_transfers - 1].src_offset;
    assert_int_equal(collect(&scene, &error), -1);
    assert_string_equal(error.reason, "BROKEN");
    transfer_scene_fini(&scene);
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
