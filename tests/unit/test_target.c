/* Where regions lie in the destination space, and how many there may be. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "resolve/target.h"

#include <cmocka.h>

enum { ALIGN = TARGET_REGION_ALIGN };

static void regions_lie_behind_each_other_with_a_gap_between_them(void **state)
{
    struct target_region regions[] = {{.bytes = 1}, {.bytes = ALIGN}, {.bytes = 0}, {.bytes = ALIGN + 1}, {.bytes = 7}};
    struct target_list list = {.regions = regions, .n_regions = 5};
    static const uint64_t bases[] = {0, 2, 4, 5, 8}; /* in units of 2 MiB */
    struct error error;
    (void)state;
    assert_int_equal(target_place_regions(&list, &error), 0);
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(regions[i].base, bases[i] * ALIGN);
    assert_int_equal(list.space_bytes, 8ull * ALIGN + 7);
}

static void regions_are_limited_in_number_and_in_bytes(void **state)
{
    static struct target_region regions[TARGET_MAX_REGIONS + 1];
    struct target_list list = {.regions = regions, .n_regions = TARGET_MAX_REGIONS};
    struct error error;
    (void)state;
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

static void a_million_arrays_are_taken_and_one_more_is_not(void **state)
{
    struct target_list list = {.n_tensors = TARGET_MAX_ARRAYS - 3, .n_fills = 1, .n_covers = 2};
    struct error error;
    (void)state;
    assert_int_equal(target_place_regions(&list, &error), 0);
    list.n_covers++;
    assert_int_equal(target_place_regions(&list, &error), -1);
    assert_int_equal(error.code, ERROR_INVALID_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(regions_lie_behind_each_other_with_a_gap_between_them),
        cmocka_unit_test(regions_are_limited_in_number_and_in_bytes),
        cmocka_unit_test(a_million_arrays_are_taken_and_one_more_is_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
