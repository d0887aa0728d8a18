/* Items: taken once, done once; what is read, used and spent is told to the right parts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "execute/clip.h"
#include "execute/item.h"
#include "tests/support/transfer_scene.h"

#include <cmocka.h>
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

static void a_part_is_fresh_and_counted_by_its_run(void **state)
{
    (void)state;
    scene.item.parts[0].placed_bytes = 17;
    scene.item.n_parts = 0;
    const struct part *part = item_add_part(&scene.item, &scene.runs[1].run);
    assert_ptr_equal(part->run, &scene.runs[1].run);
    assert_int_equal(part->placed_bytes, 0);
    assert_false(part->has_failed);
    assert_int_equal(scene.runs[1].run.n_taken, 2);
}

static void reading_counts_time_and_asks_as_the_run_is(void **state)
{
    unsigned char bytes[100];
    struct iovec iov = {bytes, sizeof bytes};
    struct source_read read = {.offset = 50, .iov = &iov, .n_iov = 1};
    struct error error;
    (void)state;
    scene.runs[0].run.options.uid = 77;
    assert_int_equal(item_read(&scene.item, &read, sizeof bytes, &error), 0);
    assert_memory_equal(bytes, scene.image + 50, sizeof bytes);
    assert_int_equal(read.uid, 77);
    assert_true(scene.item.read_ns > 0);
    assert_false(read.cancel->is_set(read.cancel->data));
    scene.item.should_stop = true;
    assert_true(read.cancel->is_set(read.cancel->data));
}

static void temporary_memory_peaks_where_it_was_used(void **state)
{
    (void)state;
    item_use_temporary(&scene.item, 100, true);
    item_use_temporary(&scene.item, 50, true);
    item_use_temporary(&scene.item, 150, false);
    item_use_temporary(&scene.item, 20, true);
    assert_int_equal(scene.runs[0].run.account.temporary_bytes, 20);
    assert_int_equal(scene.item.parts[1].report.peak_temporary_bytes, 150);
}

static void an_error_fails_the_parts_that_clips_are_left_of_and_keeps_the_first(void **state)
{
    struct clips clips = {0};
    struct error first, second;
    (void)state;
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

static void time_is_shared_by_what_was_done_for_each(void **state)
{
    struct run_report *reports[] = {&scene.item.parts[0].report, &scene.item.parts[1].report};
    (void)state;
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

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_scene, close_scene)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_part_is_fresh_and_counted_by_its_run),
        TEST(reading_counts_time_and_asks_as_the_run_is),
        TEST(temporary_memory_peaks_where_it_was_used),
        TEST(an_error_fails_the_parts_that_clips_are_left_of_and_keeps_the_first),
        TEST(time_is_shared_by_what_was_done_for_each),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
