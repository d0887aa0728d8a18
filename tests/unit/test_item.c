/* Items: taken once, done once; what is read, used and spent is told to the right parts. */
#include "tests/support/unit.h"

#include "execute/clip.h"
#include "execute/item.h"
#include "tests/support/transfer_scene.h"

#undef fail /* ours is in base/error.h */

static struct transfer_scene scene;

static int open_scene(void **state)
{
    (void)state;
    transfer_scene_init(&scene, 1, 20000);
    transfer_scene_add_run(&scene, 300, true);
    transfer_scene_add_run(&scene, 300, true);
    return 0;
}

static int close_scene(void **state)
{
    (void)state;
    transfer_scene_fini(&scene);
    return 0;
}

TEST_IN(a_part_is_fresh_and_counted_by_its_run, open_scene, close_scene)
{
    scene.item.parts[0].placed_bytes = 17;
    scene.item.n_parts = 0;
    const struct part *part = item_add_part(&scene.item, &scene.runs[1].run);
    assert_ptr_equal(part->run, &scene.runs[1].run);
    assert_int_equal(part->placed_bytes, 0);
    assert_false(part->has_failed);
    assert_int_equal(scene.runs[1].run.n_taken, 2);
}

TEST_IN(reading_counts_time_and_asks_as_the_run_is, open_scene, close_scene)
{
    unsigned char bytes[100];
    struct iovec iov = {bytes, sizeof bytes};
    struct source_read read = {.offset = 50, .iov = &iov, .n_iov = 1};
    struct error error;
    scene.runs[0].run.options.uid = 77;
    assert_int_equal(item_read(&scene.item, &read, sizeof bytes, &error), 0);
    assert_memory_equal(bytes, scene.image + 50, sizeof bytes);
    assert_int_equal(read.uid, 77);
    assert_true(scene.item.read_ns > 0);
    assert_false(read.cancel->is_set(read.cancel->data));
    scene.item.should_stop = true;
    assert_true(read.cancel->is_set(read.cancel->data));
}

TEST_IN(temporary_memory_peaks_where_it_was_used, open_scene, close_scene)
{
    item_use_temporary(&scene.item, 100, true);
    item_use_temporary(&scene.item, 50, true);
    item_use_temporary(&scene.item, 150, false);
    item_use_temporary(&scene.item, 20, true);
    assert_int_equal(scene.runs[0].run.account.temporary_bytes, 20);
    assert_int_equal(scene.item.parts[1].report.peak_temporary_bytes, 150);
}

TEST_IN(an_error_fails_the_parts_that_clips_are_left_of_and_keeps_the_first, open_scene, close_scene)
{
    struct clips clips = {0};
    struct error first, second;
    fail(&first, ERROR_UNAVAILABLE, "FIRST", "the first");
    fail(&second, ERROR_UNAVAILABLE, "SECOND", "the second");
    clip_add(&clips, (struct clip){.part = 1});
    item_fail_clips(&scene.item, &clips, &first);
    item_fail_clips(&scene.item, &clips, &second);
    assert_false(scene.item.parts[0].has_failed);
    assert_true(scene.item.parts[1].has_failed);
    assert_string_equal(scene.item.parts[1].error.reason, "FIRST");
    free(clips.list);
}

TEST_IN(time_is_shared_by_what_was_done_for_each, open_scene, close_scene)
{
    struct run_report *reports[] = {&scene.item.parts[0].report, &scene.item.parts[1].report};
    reports[0]->read_bytes = 3 << 20;
    reports[1]->read_bytes = 1 << 20;
    reports[1]->copied_bytes = 1 << 20;
    scene.item.read_ns = 4000;
    scene.item.copy_ns = 1000;
    item_share_time(&scene.item);
    assert_in_range(reports[0]->read_ns, 2998, 3000);
    assert_in_range(reports[1]->read_ns, 998, 1000);
    assert_int_equal(reports[0]->copy_ns, 0);
    assert_in_range(reports[1]->copy_ns, 998, 1000);
    assert_int_equal(item_sum_reports(&scene.item, offsetof(struct run_report, read_bytes)), 4 << 20);
}

/* --- what holders did --- */

static void charge(uint64_t first, uint64_t second)
{
    scene.item.parts[0].report.read_bytes = first;
    scene.item.parts[1].report.read_bytes = second;
}

static void tell(enum block_way way, const char *host, uint64_t bytes)
{
    scene.item.ways.count.add(&scene.item.ways.count, way, host, bytes);
}

TEST_IN(without_holders_each_part_has_read_what_it_was_charged_with, open_scene, close_scene)
{
    charge(333, 100);
    item_share_ways(&scene.item);
    assert_int_equal(scene.item.parts[0].report.read_bytes, 333);
    assert_int_equal(scene.item.parts[1].report.read_bytes, 100);
    assert_int_equal(item_sum_reports(&scene.item, offsetof(struct run_report, shared_bytes)), 0);
}

static uint64_t from(const struct run *run, const char *host)
{
    for (size_t i = 0; i < run->account.from.n; i++)
        if (strcmp(run->account.from.list[i].name, host) == 0)
            return run->account.from.list[i].bytes;
    return 0;
}

TEST_IN(what_holders_did_is_divided_by_charge_and_every_byte_is_in_one_share, open_scene, close_scene)
{
    const struct run *runs[] = {&scene.runs[0].run, &scene.runs[1].run};
    charge(700, 301);
    tell(BLOCK_ASKED, NULL, 900); /* the other 101 came from the source */
    tell(BLOCK_FROM_SOURCE, NULL, 500);
    tell(BLOCK_HEDGED, NULL, 7);
    tell(BLOCK_KEPT, NULL, 99);
    tell(BLOCK_FROM_HOST, "b", 101);
    tell(BLOCK_FROM_HOST, "a", 200);
    tell(BLOCK_FROM_HOST, "b", 100);
    item_share_ways(&scene.item);
    static const struct {
        size_t member;
        uint64_t first, all;
    } sums[] = {{offsetof(struct run_report, read_bytes), 420, 601},
                {offsetof(struct run_report, hedged_bytes), 4, 7},
                {offsetof(struct run_report, shared_bytes), 69, 99},
                {offsetof(struct run_report, peer_bytes), 139 + 140, 401}};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(*(uint64_t *)((char *)&scene.item.parts[0].report + sums[i].member), sums[i].first);
        assert_int_equal(item_sum_reports(&scene.item, sums[i].member), sums[i].all);
    }
    for (size_t p = 0; p < 2; p++) {
        item_add_from_hosts(&scene.item, &scene.item.parts[p]);
        assert_int_equal(from(runs[p], "a") + from(runs[p], "b"), scene.item.parts[p].report.peer_bytes);
    }
    assert_int_equal(from(runs[0], "a") + from(runs[1], "a"), 200);
    assert_int_equal(from(runs[0], "b") + from(runs[1], "b"), 201);
    free(scene.runs[0].run.account.from.list);
    free(scene.runs[1].run.account.from.list);
}

TEST_IN(widened_reads_and_those_without_a_charge_are_no_negative_numbers, open_scene, close_scene)
{
    charge(0, 0);
    tell(BLOCK_ASKED, NULL, 512);
    tell(BLOCK_FROM_HOST, "a", 512);
    item_share_ways(&scene.item);
    assert_int_equal(scene.item.parts[0].report.peer_bytes, 512);
    assert_int_equal(item_sum_reports(&scene.item, offsetof(struct run_report, read_bytes)), 0);
    item_begin(&scene.item);
    item_add_part(&scene.item, &scene.runs[0].run);
    item_share_ways(&scene.item);
    assert_int_equal(scene.item.parts[0].report.peer_bytes, 0);
}
