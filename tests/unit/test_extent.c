/* What has to be read of a window: every wanted byte once, and charged to one part. */
#include "tests/support/unit.h"

#include "base/memory.h"
#include "execute/clip.h"
#include "execute/extent.h"
#include "tests/support/transfer_scene.h"

#undef fail /* ours is in base/error.h */

enum { BYTES = 20000 };

static struct transfer_scene scene;
static struct extents extents, requests;
static struct clips clips;

static void add_range(struct extents *list, uint64_t lo, uint64_t hi, uint32_t part)
{
    list->list = memory_grow(list->list, list->n + 1, sizeof *list->list);
    list->room = list->n + 1;
    list->list[list->n++] = (struct extent){{lo, hi}, part};
}

static void assert_ranges(const struct extents *list, size_t n, const uint64_t (*ranges)[2])
{
    assert_int_equal(list->n, n);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(list->list[i].range.lo, ranges[i][0]);
        assert_int_equal(list->list[i].range.hi, ranges[i][1]);
    }
}
#define ASSERT_RANGES(list, ...)                                                                                            \
    assert_ranges(list, sizeof((const uint64_t[][2]){__VA_ARGS__}) / 16, (const uint64_t[][2]){__VA_ARGS__})

static int clear_lists(void **state)
{
    (void)state;
    extents.n = requests.n = clips.n = 0;
    return 0;
}

static void assert_sorted(const struct extents *list)
{
    for (size_t i = 0; i < list->n; i++) {
        assert_true(list->list[i].range.lo < list->list[i].range.hi);
        assert_true(i == 0 || list->list[i - 1].range.hi <= list->list[i].range.lo);
    }
}

static bool has_bytes(const struct extents *list, uint64_t lo, uint64_t hi)
{
    for (size_t i = 0; i < list->n && lo < hi; i++)
        if (list->list[i].range.lo <= lo && lo < list->list[i].range.hi)
            lo = list->list[i].range.hi;
    return lo >= hi;
}

static void assert_covers_clips(const struct extents *list)
{
    for (size_t i = 0; i < clips.n; i++)
        for (uint64_t row = 0; row < clips.list[i].src.count; row++) {
            uint64_t lo = clips.list[i].src.offset + row * clips.list[i].src.stride;
            assert_true(has_bytes(list, lo, lo + clips.list[i].src.bytes));
        }
}

TEST(extents_of_any_parts_are_disjoint_and_have_what_is_wanted)
{
    for (uint64_t seed = 1; seed < 60; seed++) {
        transfer_scene_init(&scene, seed, BYTES);
        for (uint64_t i = 0; i < 1 + seed % 3; i++)
            transfer_scene_add_run(&scene, 1 + seed * 9, true);
        struct range range = {transfer_scene_random(&scene, BYTES / 2), 0};
        range.hi = range.lo + 1 + transfer_scene_random(&scene, BYTES / 2);
        clip_collect(&clips, &scene.item, range);
        extent_collect(&extents, &scene.item, range);
        assert_sorted(&extents);
        assert_covers_clips(&extents);
        extent_charge(&scene.item, &extents, &clips, 0.5);
        uint64_t read = item_sum_reports(&scene.item, offsetof(struct run_report, read_bytes));
        uint64_t shared = item_sum_reports(&scene.item, offsetof(struct run_report, shared_bytes));
        assert_int_equal(read, extent_sum_bytes(&extents));
        assert_int_equal(item_sum_reports(&scene.item, offsetof(struct run_report, requests)), extents.n);
        assert_true(read + shared >= clip_sum_bytes(&clips));
        assert_true(scene.n_runs > 1 || shared == 0);
        clips.n = clips.n / 2; /* the others came from elsewhere */
        extent_keep_wanted(&extents, &clips, &requests);
        assert_sorted(&extents);
        assert_covers_clips(&extents);
        assert_true(extent_sum_bytes(&extents) <= read);
        extent_plan_requests(&requests, &extents, 64, seed % 2 ? 4096 : 0);
        assert_sorted(&requests);
        assert_covers_clips(&requests);
        transfer_scene_fini(&scene);
    }
}

TEST_IN(what_is_here_already_is_cut_out, clear_lists, NULL)
{
    add_range(&extents, 0, 100, 0);
    add_range(&extents, 200, 300, 1);
    add_range(&extents, 400, 500, 0);
    extent_subtract(&extents, (struct range){50, 220});
    ASSERT_RANGES(&extents, {0, 50}, {220, 300}, {400, 500});
    extent_subtract(&extents, (struct range){430, 440});
    ASSERT_RANGES(&extents, {0, 50}, {220, 300}, {400, 430}, {440, 500});
    assert_int_equal(extents.list[1].part, 1);
    extent_subtract(&extents, (struct range){0, 1000});
    assert_int_equal(extents.n, 0);
}

TEST_IN(gaps_smaller_than_the_limit_are_read_over, clear_lists, NULL)
{
    add_range(&extents, 0, 10, 0);
    add_range(&extents, 19, 20, 1);
    add_range(&extents, 30, 40, 0);
    add_range(&extents, 40, 50, 0);
    extent_join(&extents, 10);
    ASSERT_RANGES(&extents, {0, 20}, {30, 50});
    extent_join(&extents, 11);
    ASSERT_RANGES(&extents, {0, 50});
}

TEST_IN(requests_are_widened_to_the_alignment, clear_lists, NULL)
{
    add_range(&extents, 5, 10, 0);
    add_range(&extents, 600, 700, 0);
    add_range(&extents, 2000, 2048, 0);
    extent_plan_requests(&requests, &extents, 512, 0);
    ASSERT_RANGES(&requests, {0, 1024}, {1536, 2048});
    extent_plan_requests(&requests, &extents, 512, 512);
    ASSERT_RANGES(&requests, {0, 2048});
    assert_int_equal(range_bytes(extent_longest(&requests)), 2048);
}

TEST_IN(a_range_that_was_kept_joins_the_requests, clear_lists, NULL)
{
    add_range(&requests, 0, 100, 0);
    add_range(&requests, 300, 400, 0);
    extent_add_request(&requests, (struct range){100, 200});
    ASSERT_RANGES(&requests, {0, 200}, {300, 400});
    extent_add_request(&requests, (struct range){50, 350});
    ASSERT_RANGES(&requests, {0, 400});
    extent_add_request(&requests, (struct range){500, 600});
    ASSERT_RANGES(&requests, {0, 400}, {500, 600});
}

static int free_lists(void **state)
{
    (void)state;
    free(extents.list);
    free(requests.list);
    free(clips.list);
    return 0;
}

TESTS_IN(NULL, free_lists)
