/* The box of a cover that is named grows until something written is in its way. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "resolve/target_lack.h"

#include <cmocka.h>

struct ranges { /* that are written; two of them */
    uint64_t lo[2], hi[2];
};

/* Rows of one loop at most, which is what the covers here are. */
static bool meets(void *data, const struct strided_box *box)
{
    const struct ranges *ranges = data;
    uint64_t n = box->n_loops ? box->loops[0].size : 1, stride = box->n_loops ? box->loops[0].stride : 0;
    for (uint64_t i = 0; i < n; i++)
        for (int k = 0; k < 2; k++)
            if (box->lo + i * stride < ranges->hi[k] && box->lo + i * stride + box->row > ranges->lo[k])
                return true;
    return false;
}

static void the_box_around_a_byte_is_as_large_as_it_can_be(void **state)
{
    static const uint64_t dims[] = {10, 6};
    static const int64_t down[] = {6, 1}, up[] = {-6, -1}, turned[] = {1, 10};
    struct target cover = {.dtype = DTYPE_U8, .rank = 2, .dims = dims, .strides = down};
    struct ranges ranges = {{100, 130}, {124, 160}};
    char box[TARGET_LACK_CHARS];
    (void)state;
    target_find_lack(&cover, 100, 126, meets, &ranges, box);
    assert_string_equal(box, "4:5, 0:6");
    cover.strides = up;
    target_find_lack(&cover, 159, 126, meets, &ranges, box);
    assert_string_equal(box, "5:6, 0:6");
    cover.strides = turned;
    target_find_lack(&cover, 100, 126, meets, &ranges, box);
    assert_string_equal(box, "4:10, 2:3");
    ranges = (struct ranges){{0, 0}, {0, 0}};
    target_find_lack(&cover, 100, 126, meets, &ranges, box);
    assert_string_equal(box, "0:10, 0:6");
}

static void a_scalar_has_no_indexes_and_packed_elements_are_named_by_row(void **state)
{
    static const uint64_t dims[] = {3, 8};
    static const int64_t strides[] = {8, 0};
    struct target cover = {.dtype = DTYPE_U8};
    struct ranges ranges = {{0, 16}, {4, 20}};
    char box[TARGET_LACK_CHARS];
    (void)state;
    target_find_lack(&cover, 7, 7, meets, &ranges, box);
    assert_string_equal(box, "");
    cover = (struct target){.dtype = DTYPE_F4, .rank = 2, .dims = dims, .strides = strides};
    target_find_lack(&cover, 0, 9, meets, &ranges, box);
    assert_string_equal(box, "1:2, 0:8");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_box_around_a_byte_is_as_large_as_it_can_be),
        cmocka_unit_test(a_scalar_has_no_indexes_and_packed_elements_are_named_by_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
