/* Slices mean what NumPy says. */
#include "tests/support/unit.h"

#include "resolve/view.h"

TEST(bounds_are_clipped_as_numpy_clips_them)
{
    static const struct {
        int64_t start, stop;
        uint64_t extent, first, size;
    } cases[] = {
        {0, INT64_MAX, 10, 0, 10},
        {0, 0, 10, 0, 0},
        {2, 2, 10, 0, 0},
        {5, 2, 10, 0, 0},
        {-3, INT64_MAX, 10, 7, 3},
        {0, -3, 10, 0, 7},
        {-100, 100, 10, 0, 10},
        {100, 200, 10, 0, 0},
        {-1, INT64_MAX, 10, 9, 1},
        {9, 10, 10, 9, 1},
        {10, 11, 10, 0, 0},
        {-10, -9, 10, 0, 1},
        {-11, -10, 10, 0, 0},
        {-3, -1, 10, 7, 2},
        {INT64_MIN, 3, 10, 0, 3},
        {INT64_MAX, INT64_MAX, 10, 0, 0},
        {0, INT64_MIN, 10, 0, 0},
        {0, INT64_MAX, 0, 0, 0},
        {-1, 1, 0, 0, 0},
        {0, INT64_MAX, UINT64_MAX, 0, UINT64_MAX},
        {-1, INT64_MAX, UINT64_MAX, UINT64_MAX - 1, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t first, size;
        view_slice(&(struct slice){cases[i].start, cases[i].stop}, cases[i].extent, &first, &size);
        if (first != cases[i].first || size != cases[i].size)
            fail_msg("[%lld:%lld] of %llu: %llu from %llu", (long long)cases[i].start, (long long)cases[i].stop,
                     (unsigned long long)cases[i].extent, (unsigned long long)size, (unsigned long long)first);
    }
}

static const uint64_t shape[] = {4, 6};
static const struct slice slices[] = {{1, 3}, {-2, INT64_MAX}, {0, 1}};
static const struct tensor_record record = {.name = "some.w", .name_length = 6, .rank = 2, .shape = shape};

TEST(there_is_one_slice_per_dimension)
{
    uint64_t start[3], size[3];
    struct error error;
    for (uint32_t n = 1; n <= 3; n++) {
        struct view_item item = {.name = "some.w", .name_length = 6, .n_slices = n, .slices = slices};
        int failed = view_slices(&item, false, &record, start, size, &error);
        assert_int_equal(failed, n == 2 ? 0 : -1);
        if (failed) {
            assert_int_equal(error.code, ERROR_INVALID_ARGUMENT);
            assert_non_null(strstr(error.message, "some.w"));
        }
    }
    struct view_item item = {.n_slices = 2, .slices = slices};
    assert_int_equal(view_slices(&item, false, &record, start, size, &error), 0);
    assert_true(start[0] == 1 && size[0] == 2 && start[1] == 4 && size[1] == 2);
}

TEST(a_leading_view_takes_the_other_dimensions_whole)
{
    uint64_t start[3], size[3];
    struct error error;
    struct view_item item = {.name = "some.w", .name_length = 6, .n_slices = 1, .slices = slices};
    assert_int_equal(view_slices(&item, true, &record, start, size, &error), 0);
    assert_true(start[0] == 1 && size[0] == 2 && start[1] == 0 && size[1] == 6);
    item.n_slices = 3;
    assert_int_equal(view_slices(&item, true, &record, start, size, &error), -1);
    assert_int_equal(error.code, ERROR_INVALID_ARGUMENT);
}
