/* Transfers cut at the edges of windows: together the clips are every byte once, at its place on both sides. */
#include "tests/support/unit.h"

#include "execute/clip.h"
#include "execute/extent.h"
#include "tests/support/transfer_scene.h"

#undef fail /* ours is in base/error.h */

static void place_naively(const struct transfer_scene *scene, const struct clips *clips)
{
    for (size_t i = 0; i < clips->n; i++) {
        const struct clip *clip = &clips->list[i];
        for (uint64_t row = 0; row < clip->src.count; row++)
            memcpy(scene->runs[clip->part].heap->memory + clip->dst_offset + row * clip->dst_stride,
                   scene->image + clip->src.offset + row * clip->src.stride, clip->src.bytes);
    }
}

static size_t count_clips(const struct clips *clips, size_t part)
{
    size_t n = 0;
    for (size_t i = 0; i < clips->n; i++)
        n += clips->list[i].part == part;
    return n;
}

/* Transfers that begin before the range and reach into it. */
static size_t count_begun(const struct part *part, struct range range)
{
    const struct mapping *mapping = part->run->options.mapping;
    size_t n = 0;
    for (size_t i = 0; i < mapping->n_transfers; i++)
        n += mapping->transfers[i].src_offset < range.lo && transfer_end(&mapping->transfers[i]) > range.lo;
    return n;
}

/* Returns how many bytes the clips of all windows have. */
static uint64_t cut_into_windows(struct transfer_scene *scene, uint64_t most_window_bytes)
{
    struct clips clips = {0};
    struct range range = {0, 0};
    uint64_t bytes = 0;
    for (; range.lo < scene->image_bytes; range.lo = range.hi) {
        range.hi = range.lo + 1 + transfer_scene_random(scene, most_window_bytes);
        clip_collect(&clips, &scene->item, range);
        for (size_t p = 0; p < scene->n_runs; p++)
            assert_true(count_clips(&clips, p) <= clip_count_new(&scene->item.parts[p], range, UINT64_MAX) +
                                                      3 * count_begun(&scene->item.parts[p], range));
        for (size_t i = 0; i < clips.n; i++) {
            assert_true(clips.list[i].src.offset >= range.lo && rows_end(&clips.list[i].src) <= range.hi);
            if (i > 0 && clips.list[i].part == clips.list[i - 1].part)
                assert_true(clips.list[i].src.offset > clips.list[i - 1].src.offset);
        }
        place_naively(scene, &clips);
        bytes += clip_sum_bytes(&clips);
    }
    free(clips.list);
    return bytes;
}

TEST(windows_of_any_size_have_every_byte_once_at_its_place)
{
    for (uint64_t seed = 1; seed < 60; seed++) {
        struct transfer_scene scene;
        transfer_scene_init(&scene, seed, 20000);
        uint64_t wanted = 0;
        for (int i = 0; i < 2; i++)
            wanted += transfer_scene_add_run(&scene, 1 + seed * 7, true)->mapping.view_bytes;
        assert_int_equal(cut_into_windows(&scene, seed % 3 ? 50 : 3000), wanted);
        assert_true(transfer_scene_is_right(&scene.runs[0]) && transfer_scene_is_right(&scene.runs[1]));
        transfer_scene_fini(&scene);
    }
}

TEST(a_part_that_failed_gets_no_clips)
{
    struct transfer_scene scene;
    struct clips clips = {0};
    transfer_scene_init(&scene, 7, 5000);
    transfer_scene_add_run(&scene, 100, true);
    transfer_scene_add_run(&scene, 100, true);
    scene.item.parts[0].has_failed = true;
    clip_collect(&clips, &scene.item, (struct range){0, 5000});
    assert_int_equal(clip_sum_bytes(&clips), scene.runs[1].mapping.view_bytes);
    for (size_t i = 0; i < clips.n; i++)
        assert_int_equal(clips.list[i].part, 1);
    free(clips.list);
    transfer_scene_fini(&scene);
}

TEST(a_smaller_window_spares_what_begins_in_it)
{
    enum { COLUMNS = 20, ROWS = 100 };
    struct transfer_scene scene;
    struct transfer columns[COLUMNS];
    for (uint64_t i = 0; i < COLUMNS; i++)
        columns[i] = (struct transfer){.src_offset = 2 * i,
                                       .dst_offset = i * ROWS,
                                       .row_bytes = 1,
                                       .n_rows = ROWS,
                                       .src_stride = 2 * COLUMNS,
                                       .dst_stride = 1};
    transfer_scene_init(&scene, 7, 5000);
    transfer_scene_add_transfers(&scene, columns, COLUMNS, true);
    const struct part *part = &scene.item.parts[0];
    assert_true(clip_count_new(part, (struct range){0, 4000}, UINT64_MAX) >= COLUMNS);
    uint64_t enough = clip_count_new(part, (struct range){0, 4000}, 10);
    assert_true(enough >= 10 && enough < COLUMNS);
    /* each column is in any part of it; the plan has one step */
    assert_true(clip_count_new(part, (struct range){2 * COLUMNS, 400}, UINT64_MAX) <= 1);
    assert_int_equal(mapping_find(&scene.runs[0].mapping, 0, 3998), COLUMNS - 1);
    assert_int_equal(mapping_find(&scene.runs[0].mapping, 0, 3999), COLUMNS);
    transfer_scene_fini(&scene);
}
