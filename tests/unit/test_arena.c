/* The arena hands out zeroed, aligned, separate pieces and never grows beyond its cap. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/arena.h"

static void pieces_are_zeroed_aligned_and_do_not_overlap(void **state)
{
    struct arena arena;
    unsigned char *pieces[500];
    (void)state;
    arena_init(&arena, 0);
    for (size_t i = 0; i < 500; i++) {
        size_t bytes = i * 37 % 3000;
        pieces[i] = arena_alloc(&arena, bytes);
        assert_int_equal((uintptr_t)pieces[i] % 16, 0);
        for (size_t at = 0; at < bytes; at++)
            assert_int_equal(pieces[i][at], 0);
        memset(pieces[i], (int)(i & 255), bytes);
    }
    for (size_t i = 0; i < 500; i++) {
        for (size_t at = 0; at < i * 37 % 3000; at++)
            assert_int_equal(pieces[i][at], i & 255);
    }
    arena_fini(&arena);
    assert_int_equal(arena.total_bytes, 0);
}

static void a_large_piece_fits_whole(void **state)
{
    struct arena arena;
    (void)state;
    arena_init(&arena, 0);
    arena_alloc(&arena, 10);
    memset(arena_alloc(&arena, 5 << 20), 1, 5 << 20);
    memset(arena_alloc(&arena, 10), 2, 10);
    assert_true(arena.total_bytes >= 5 << 20);
    arena_fini(&arena);
}

static void the_cap_is_reached_exactly_and_not_passed(void **state)
{
    static const size_t caps[] = {16, 1000, 4096, 6000, 100000};
    (void)state;
    for (size_t i = 0; i < sizeof caps / sizeof caps[0]; i++) {
        struct arena arena;
        size_t n_taken = 0;
        arena_init(&arena, caps[i]);
        while (arena_try(&arena, 16))
            n_taken++;
        assert_int_equal(n_taken, caps[i] / 16);
        assert_true(arena.total_bytes <= caps[i]);
        arena_fini(&arena);
    }
}

static void a_refused_piece_leaves_the_rest_usable(void **state)
{
    struct arena arena;
    (void)state;
    arena_init(&arena, 8192);
    assert_null(arena_try(&arena, 8193));
    assert_null(arena_try(&arena, SIZE_MAX));
    assert_null(arena_try(&arena, SIZE_MAX / 2));
    assert_non_null(arena_try(&arena, 8192));
    assert_null(arena_try(&arena, 1));
    arena_fini(&arena);
}

static void what_must_not_fail_ignores_the_cap(void **state)
{
    struct arena arena;
    (void)state;
    arena_init(&arena, 64);
    assert_non_null(arena_alloc(&arena, 1000));
    assert_null(arena_try(&arena, 1000));
    assert_non_null(arena_alloc(&arena, 1000));
    arena_fini(&arena);
}

static void text_is_copied_with_a_final_nul_and_may_hold_nuls(void **state)
{
    struct arena arena;
    (void)state;
    arena_init(&arena, 0);
    char *copy = arena_text(&arena, "a\0bXX", 3);
    assert_memory_equal(copy, "a\0b", 4);
    assert_string_equal(arena_text(&arena, "", 0), "");
    arena_fini(&arena);
}

static void a_zeroed_arena_can_be_finished_and_one_can_be_used_again(void **state)
{
    struct arena arena = {0};
    (void)state;
    arena_fini(&arena);
    arena_alloc(&arena, 100);
    arena_fini(&arena);
    memset(arena_array(&arena, 10, 10), 1, 100);
    arena_fini(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_are_zeroed_aligned_and_do_not_overlap),
        cmocka_unit_test(a_large_piece_fits_whole),
        cmocka_unit_test(the_cap_is_reached_exactly_and_not_passed),
        cmocka_unit_test(a_refused_piece_leaves_the_rest_usable),
        cmocka_unit_test(what_must_not_fail_ignores_the_cap),
        cmocka_unit_test(text_is_copied_with_a_final_nul_and_may_hold_nuls),
        cmocka_unit_test(a_zeroed_arena_can_be_finished_and_one_can_be_used_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
