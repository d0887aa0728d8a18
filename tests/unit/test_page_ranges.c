/* What of the files is worth reading ahead. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "base/metadata.h"
#include "plan/page_ranges.h"

#include <cmocka.h>

enum { KiB = 1 << 10, MAX_RANGES = 1 << 16 };

static struct page_ranges ranges;

static void build(const struct plan_step *steps, size_t n)
{
    struct plan_step copy[8];
    for (size_t i = 0; i < n; i++)
        copy[i] = steps[i];
    struct plan plan = {.steps = copy, .n_steps = n};
    struct error error;
    metadata_free(ranges.list);
    assert_int_equal(page_ranges_build(&plan, &ranges, &error), 0);
}

static void is_range(size_t i, uint32_t file, uint64_t offset, uint64_t bytes)
{
    assert_true(i < ranges.n);
    assert_int_equal(ranges.list[i].file, file);
    assert_int_equal(ranges.list[i].offset, offset);
    assert_int_equal(ranges.list[i].bytes, bytes);
}

static void neighbours_are_one_range_and_files_are_apart(void **state)
{
    const struct plan_step steps[] = {{.offset = 100, .bytes = 200 * KiB, .count = 1, .file = 0},
                                      {.offset = 100 + 300 * KiB, .bytes = 100 * KiB, .count = 1, .file = 0},
                                      {.offset = 0, .bytes = 70 * KiB, .count = 1, .file = 1}};
    (void)state;
    build(steps, 3);
    assert_int_equal(ranges.n, 2);
    is_range(0, 0, 100, 400 * KiB);
    is_range(1, 1, 0, 70 * KiB);
    assert_int_equal(ranges.bytes, 470 * KiB);
}

static void rows_that_are_close_are_one_piece(void **state)
{
    const struct plan_step steps[] = {{.offset = 0, .bytes = 4 * KiB, .count = 100, .stride = 32 * KiB}};
    (void)state;
    build(steps, 1);
    assert_int_equal(ranges.n, 1);
    is_range(0, 0, 0, 99 * 32 * KiB + 4 * KiB);
}

static void small_rows_far_apart_are_left_to_faults(void **state)
{
    const struct plan_step steps[] = {{.offset = 0, .bytes = 4 * KiB, .count = 100, .stride = 1024 * KiB},
                                      {.offset = 200 * 1024 * KiB, .bytes = 60 * KiB, .count = 1}};
    (void)state;
    build(steps, 2);
    assert_int_equal(ranges.n, 0);
    assert_int_equal(ranges.bytes, 0);
}

static void large_rows_far_apart_are_ranges_each(void **state)
{
    const struct plan_step steps[] = {{.offset = 7, .bytes = 64 * KiB, .count = 3, .stride = 1024 * KiB}};
    (void)state;
    build(steps, 1);
    assert_int_equal(ranges.n, 3);
    is_range(2, 0, 7 + 2 * 1024 * KiB, 64 * KiB);
}

static void ranges_without_end_are_left_to_faults(void **state)
{
    struct plan_step step = {.bytes = 64 * KiB, .count = MAX_RANGES, .stride = 1024 * KiB};
    (void)state;
    build(&step, 1);
    assert_int_equal(ranges.n, MAX_RANGES);
    step.count++;
    build(&step, 1);
    assert_int_equal(ranges.n, MAX_RANGES);
}

static void a_user_who_has_too_much_metadata_gets_none(void **state)
{
    const struct plan_step step = {.bytes = 64 * KiB, .count = MAX_RANGES, .stride = 1024 * KiB};
    struct plan_step copy = step;
    struct plan plan = {.steps = &copy, .n_steps = 1};
    struct quota *quota = quota_create();
    struct error error;
    (void)state;
    quota_set_limits(quota, QUOTA_METADATA, 8 * KiB, 0);
    metadata_enter((struct metadata_account){.quota = quota, .uid = 7});
    metadata_free(ranges.list);
    assert_int_equal(page_ranges_build(&plan, &ranges, &error), -1);
    assert_int_equal(error.code, ERROR_RESOURCE_EXHAUSTED);
    assert_null(ranges.list);
    assert_int_equal(quota_taken(quota, QUOTA_METADATA), 0);
    metadata_enter((struct metadata_account){0});
    quota_destroy(quota);
}

static int tear_down(void **state)
{
    (void)state;
    metadata_free(ranges.list);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(neighbours_are_one_range_and_files_are_apart),
        cmocka_unit_test(rows_that_are_close_are_one_piece),
        cmocka_unit_test(small_rows_far_apart_are_left_to_faults),
        cmocka_unit_test(large_rows_far_apart_are_ranges_each),
        cmocka_unit_test(ranges_without_end_are_left_to_faults),
        cmocka_unit_test(a_user_who_has_too_much_metadata_gets_none),
    };
    return cmocka_run_group_tests(tests, NULL, tear_down);
}
