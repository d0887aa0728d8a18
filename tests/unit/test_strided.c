/* Boxes of strided bytes, taken apart, still have the same bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/metadata.h"
#include "resolve/strided.h"

#include <cmocka.h>

enum { MEMORY_BYTES = 4096 };

static uint64_t random_state = 7;
static uint64_t below(uint64_t n)
{
    random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
    return (random_state >> 33) % n;
}

/* Counts the bytes of a box, `shift` further on. */
static void write_down(const struct strided_box *box, uint64_t shift, unsigned char *counts)
{
    if (box->n_loops == 0) {
        assert_int_equal(box->hi - box->lo, box->row);
        for (uint64_t i = 0; i < box->row; i++)
            counts[box->lo + shift + i]++;
        return;
    }
    const struct strided_loop *outer = &box->loops[box->n_loops - 1];
    struct strided_box inner = *box;
    inner.n_loops--;
    inner.hi -= (outer->size - 1) * outer->stride;
    for (uint64_t i = 0; i < outer->size; i++)
        write_down(&inner, shift + i * outer->stride, counts);
}

/* Nested, in at most 700 bytes from 500 on. */
static struct strided_box random_box(struct strided_loop *loops)
{
    uint64_t sizes[3], inner = 1 + below(4);
    int64_t strides[3];
    const uint64_t row = inner;
    for (int i = 0; i < 3; i++) {
        sizes[i] = 1 + below(4);
        uint64_t stride = inner + (below(2) ? 0 : below(5));
        strides[i] = below(2) ? (int64_t)stride : -(int64_t)stride;
        inner += (sizes[i] - 1) * stride;
    }
    return strided_make(1500 + below(40), row, 3, sizes, strides, loops);
}

static void a_box_is_split_at_any_address(void **state)
{
    struct strided_loop loops[3];
    struct error error;
    (void)state;
    for (int round = 0; round < 20000; round++) {
        static unsigned char whole[MEMORY_BYTES], sum[MEMORY_BYTES];
        const struct strided_box box = random_box(loops);
        struct strided_work work = {.steps_left = 10000, .error = &error};
        struct strided_list lower = {0}, upper = {0};
        uint64_t at = box.lo - 2 + below(box.hi - box.lo + 4);
        memset(whole, 0, sizeof whole);
        memset(sum, 0, sizeof sum);
        assert_true(strided_is_nested(&box));
        assert_false(strided_repeats(&box));
        write_down(&box, 0, whole);
        assert_int_equal(strided_split(&work, &box, at, &lower, &upper), 0);
        for (size_t i = 0; i < lower.n; i++) {
            assert_true(lower.boxes[i].hi <= at && (i == 0 || lower.boxes[i - 1].hi <= lower.boxes[i].lo));
            write_down(&lower.boxes[i], 0, sum);
        }
        for (size_t i = 0; i < upper.n; i++) {
            assert_true(upper.boxes[i].lo >= at && (i == 0 || upper.boxes[i - 1].hi <= upper.boxes[i].lo));
            write_down(&upper.boxes[i], 0, sum);
        }
        assert_memory_equal(whole, sum, sizeof sum);
        metadata_free(lower.boxes);
        metadata_free(upper.boxes);
        arena_fini(&work.arena);
    }
}

static void a_box_is_divided_into_periods(void **state)
{
    struct strided_loop loops[3];
    struct error error;
    (void)state;
    for (int round = 0; round < 20000; round++) {
        static unsigned char whole[MEMORY_BYTES], sum[MEMORY_BYTES];
        const struct strided_box box = random_box(loops);
        struct strided_work work = {.steps_left = 100000, .error = &error};
        struct strided_parts parts = {0};
        uint64_t largest = box.n_loops ? box.loops[box.n_loops - 1].stride : 1, origin = box.lo - below(30);
        uint64_t period = largest * (1 + below(3)) + (below(2) ? below(10) : 0);
        memset(whole, 0, sizeof whole);
        memset(sum, 0, sizeof sum);
        write_down(&box, 0, whole);
        assert_int_equal(strided_divide(&work, box, origin, period, &parts), 0);
        for (size_t i = 0; i < parts.n; i++) {
            assert_true(parts.list[i].box.hi <= period);
            for (uint64_t k = 0; k < parts.list[i].n; k++)
                write_down(&parts.list[i].box, origin + (parts.list[i].first + k) * period, sum);
        }
        assert_memory_equal(whole, sum, sizeof sum);
        metadata_free(parts.list);
        arena_fini(&work.arena);
    }
}

static void a_matrix_is_divided_in_as_many_steps_as_a_row(void **state)
{
    static const uint64_t sizes[] = {1 << 20, 1 << 10, 3};
    static const int64_t strides[] = {1 << 14, 1 << 4, 4};
    struct strided_loop loops[3];
    struct error error;
    struct strided_work work = {.steps_left = 64, .error = &error};
    struct strided_parts parts = {0};
    (void)state;
    const struct strided_box box = strided_make(4096, 4, 3, sizes, strides, loops);
    assert_int_equal(box.n_loops, 1); /* 12 of every 16 bytes */
    assert_int_equal(strided_divide(&work, box, 100, 1 << 16, &parts), 0);
    assert_true(parts.n < 8);
    work.steps_left = 3;
    assert_int_equal(strided_divide(&work, box, 100, (1 << 16) + 1, &parts), -1);
    assert_true(work.is_too_long);
    metadata_free(parts.list);
    arena_fini(&work.arena);
}

static void loops_that_cross_become_boxes_that_do_not(void **state)
{
    static const uint64_t sizes[] = {5, 3};
    static const int64_t strides[] = {2, 3};
    static unsigned char whole[MEMORY_BYTES], sum[MEMORY_BYTES];
    struct strided_loop loops[2];
    struct error error;
    struct strided_work work = {.steps_left = 64, .error = &error};
    struct strided_list list = {0};
    (void)state;
    const struct strided_box box = strided_make(10, 1, 2, sizes, strides, loops);
    assert_false(strided_is_nested(&box));
    assert_int_equal(strided_unnest(&work, &box, &list), 0);
    assert_int_equal(list.n, 3);
    write_down(&box, 0, whole);
    for (size_t i = 0; i < list.n; i++) {
        assert_true(strided_is_nested(&list.boxes[i]));
        write_down(&list.boxes[i], 0, sum);
    }
    assert_memory_equal(whole, sum, sizeof sum);
    metadata_free(list.boxes);
    arena_fini(&work.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_box_is_split_at_any_address),
        cmocka_unit_test(a_box_is_divided_into_periods),
        cmocka_unit_test(a_matrix_is_divided_in_as_many_steps_as_a_row),
        cmocka_unit_test(loops_that_cross_become_boxes_that_do_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
