/* Where regions lie in the destination space, how many there may be, and what a target must not be. */
#include "tests/support/unit.h"

#include "resolve/target.h"

enum { ALIGN = TARGET_REGION_ALIGN };

TEST(regions_lie_behind_each_other_with_a_gap_between_them)
{
    struct target_region regions[] = {{.bytes = 1}, {.bytes = ALIGN}, {.bytes = 0}, {.bytes = ALIGN + 1}, {.bytes = 7}};
    struct target_list list = {.regions = regions, .n_regions = 5};
    static const uint64_t bases[] = {0, 2, 4, 5, 8}; /* in units of 2 MiB */
    struct error error;
    assert_int_equal(target_place_regions(&list, &error), 0);
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(regions[i].base, bases[i] * ALIGN);
    assert_int_equal(list.space_bytes, 8ull * ALIGN + 7);
}

TEST(regions_are_limited_in_number_and_in_bytes)
{
    static struct target_region regions[TARGET_MAX_REGIONS + 1];
    struct target_list list = {.regions = regions, .n_regions = TARGET_MAX_REGIONS};
    struct error error;
    assert_int_equal(target_place_regions(&list, &error), 0);
    list.n_regions++;
    assert_int_equal(target_place_regions(&list, &error), -1);
    assert_int_equal(error.code, ERROR_INVALID_ARGUMENT);
    list.n_regions = 1;
    regions[0].bytes = TARGET_MAX_SPACE_BYTES;
    assert_int_equal(target_place_regions(&list, &error), 0);
    assert_int_equal(list.space_bytes, TARGET_MAX_SPACE_BYTES);
    regions[0].bytes++;
    assert_int_equal(target_place_regions(&list, &error), -1);
    assert_int_equal(error.code, ERROR_INVALID_ARGUMENT);
    list.n_regions = 2;
    regions[0].bytes = 5;
    regions[1].bytes = UINT64_MAX;
    assert_int_equal(target_place_regions(&list, &error), -1);
    assert_int_equal(error.code, ERROR_INVALID_ARGUMENT);
}

TEST(a_million_arrays_are_taken_and_one_more_is_not)
{
    struct target_list list = {.n_tensors = TARGET_MAX_ARRAYS - 3, .n_fills = 1, .n_covers = 2};
    struct error error;
    assert_int_equal(target_place_regions(&list, &error), 0);
    list.n_covers++;
    assert_int_equal(target_place_regions(&list, &error), -1);
    assert_int_equal(error.code, ERROR_INVALID_ARGUMENT);
}

static struct target_region memory = {.bytes = 100};
static const struct target_list one_region = {.regions = &memory, .n_regions = 1};

static void is(const char *reason, struct target target)
{
    struct error error = {0};
    int result = target_check(&one_region, &target, "w", 1, &error);
    assert_int_equal(result, reason ? -1 : 0);
    if (result && (strcmp(error.reason, reason) != 0 || !strstr(error.message, "target w ")))
        fail_msg("%s: %s", error.reason, error.message);
}

#define F32(at, n, ...)                                                                                                     \
    (struct target)                                                                                                         \
    {                                                                                                                       \
        .dtype = DTYPE_F32, .offset = at, .rank = n, __VA_ARGS__                                                            \
    }
#define DIMS(...)                                                                                                           \
    .dims = (const uint64_t[])                                                                                              \
    {                                                                                                                       \
        __VA_ARGS__                                                                                                         \
    }
#define STRIDES(...)                                                                                                        \
    .strides = (const int64_t[])                                                                                            \
    {                                                                                                                       \
        __VA_ARGS__                                                                                                         \
    }

TEST(a_target_lies_inside_its_region)
{
    is(NULL, F32(96, 0, .dims = NULL));
    is("TARGET_OUTSIDE", F32(97, 0, .dims = NULL));
    is("TARGET_OUTSIDE", F32(UINT64_MAX, 0, .dims = NULL));
    is("TARGET_OUTSIDE", F32(0, 0, .region = 1));
    is(NULL, F32(0, 2, DIMS(5, 5), STRIDES(20, 4)));
    is("TARGET_OUTSIDE", F32(1, 2, DIMS(5, 5), STRIDES(20, 4)));
    is(NULL, F32(96, 2, DIMS(5, 5), STRIDES(-20, -4)));
    is("TARGET_OUTSIDE", F32(95, 2, DIMS(5, 5), STRIDES(-20, -4)));
    is("TARGET_OUTSIDE", F32(0, 1, DIMS(3), STRIDES(INT64_MAX)));
    is("TARGET_OUTSIDE", F32(0, 1, DIMS(3), STRIDES(INT64_MIN)));
    is("TARGET_OUTSIDE", F32(0, 2, DIMS(1ull << 32, 1ull << 32), STRIDES(1ull << 40, 4)));
    is(NULL, F32(1000, 2, DIMS(UINT64_MAX, 0), STRIDES(INT64_MAX, INT64_MAX))); /* nothing is nowhere */
    is("TARGET_SHAPE", F32(0, 65, .dims = NULL));
}

TEST(a_stride_of_zero_repeats_elements)
{
    is("TARGET_REPEATS", F32(0, 2, DIMS(2, 2), STRIDES(0, 4)));
    is(NULL, F32(0, 2, DIMS(1, 2), STRIDES(0, 4)));
    is(NULL, F32(0, 2, DIMS(2, 0), STRIDES(0, 0)));
}

TEST(elements_smaller_than_a_byte_lie_packed_in_whole_bytes)
{
    uint32_t rank;
    struct target target = {.dtype = DTYPE_F4, .rank = 2, DIMS(3, 8), STRIDES(32, 0)};
    is(NULL, target);
    assert_int_equal(target_row(&target, &rank), 4);
    assert_int_equal(rank, 1);
    is("SUB_BYTE_TARGET", (struct target){.dtype = DTYPE_F4, .rank = 2, DIMS(3, 7), STRIDES(32, 0)});
    is("SUB_BYTE_TARGET", (struct target){.dtype = DTYPE_F4});
    is("SUB_BYTE_TARGET", (struct target){.dtype = DTYPE_F4, .rank = 1, DIMS(UINT64_MAX - 1), STRIDES(0)});
}
