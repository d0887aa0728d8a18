/* The arena hands out zeroed, aligned, separate pieces, never grows beyond its cap, and says whose its memory is. */
#include "tests/support/unit.h"

#include "base/arena.h"
#include "base/metadata.h"

TEST(pieces_are_zeroed_aligned_and_do_not_overlap)
{
    struct arena arena;
    unsigned char *pieces[500];
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

TEST(a_large_piece_fits_whole)
{
    struct arena arena;
    arena_init(&arena, 0);
    arena_alloc(&arena, 10);
    memset(arena_alloc(&arena, 5 << 20), 1, 5 << 20);
    memset(arena_alloc(&arena, 10), 2, 10);
    assert_true(arena.total_bytes >= 5 << 20);
    arena_fini(&arena);
}

TEST(the_cap_is_reached_exactly_and_not_passed)
{
    static const size_t caps[] = {16, 1000, 4096, 6000, 100000};
    for (size_t i = 0; i < sizeof caps / sizeof caps[0]; i++) {
        struct arena arena;
        struct error error;
        size_t n_taken = 0;
        arena_init(&arena, caps[i]);
        while (arena_try(&arena, 16, &error))
            n_taken++;
        assert_int_equal(n_taken, caps[i] / 16);
        assert_true(arena.total_bytes <= caps[i]);
        arena_fini(&arena);
    }
}

TEST(a_refused_piece_leaves_the_rest_usable)
{
    struct arena arena;
    struct error error;
    arena_init(&arena, 8192);
    assert_null(arena_try(&arena, 8193, &error));
    assert_null(arena_try(&arena, SIZE_MAX, &error));
    assert_null(arena_try(&arena, SIZE_MAX / 2, &error));
    assert_non_null(arena_try(&arena, 8192, &error));
    assert_null(arena_try(&arena, 1, &error));
    arena_fini(&arena);
}

TEST(what_must_not_fail_ignores_the_cap)
{
    struct arena arena;
    struct error error;
    arena_init(&arena, 64);
    assert_non_null(arena_alloc(&arena, 1000));
    assert_null(arena_try(&arena, 1000, &error));
    assert_non_null(arena_alloc(&arena, 1000));
    arena_fini(&arena);
}

TEST(text_is_copied_with_a_final_nul_and_may_hold_nuls)
{
    struct arena arena;
    arena_init(&arena, 0);
    char *copy = arena_text(&arena, "a\0bXX", 3);
    assert_memory_equal(copy, "a\0b", 4);
    assert_string_equal(arena_text(&arena, "", 0), "");
    arena_fini(&arena);
}

TEST(a_zeroed_arena_can_be_finished_and_one_can_be_used_again)
{
    struct arena arena = {0};
    arena_fini(&arena);
    arena_alloc(&arena, 100);
    arena_fini(&arena);
    memset(arena_array(&arena, 10, 10), 1, 100);
    arena_fini(&arena);
}

/* --- charged to a user --- */

enum { USER = 12345, LIMIT = 10 << 20 };

static struct quota *quota;

static int enter_account(void **state)
{
    (void)state;
    quota = quota_create();
    quota_set_limits(quota, QUOTA_METADATA, LIMIT, 0);
    quota_set_kept(quota, 0);
    metadata_enter((struct metadata_account){quota, USER});
    return 0;
}

static int leave_account(void **state)
{
    (void)state;
    metadata_enter((struct metadata_account){0});
    quota_destroy(quota);
    return 0;
}

TEST_IN(what_may_fail_is_charged_as_it_grows_until_the_end, enter_account, leave_account)
{
    struct arena arena;
    struct error error;
    uint64_t before = 0;
    arena_init(&arena, 0);
    while (arena_try(&arena, 100000, &error)) {
        assert_true(quota_taken(quota, QUOTA_METADATA) >= before);
        before = quota_taken(quota, QUOTA_METADATA);
        assert_int_equal(before, arena.total_bytes);
    }
    assert_string_equal(error.reason, "METADATA_EXCEEDED");
    assert_int_equal(error.code, ERROR_RESOURCE_EXHAUSTED);
    assert_true(before <= LIMIT && before > LIMIT - (2 << 20));
    arena_fini(&arena);
    assert_int_equal(quota_taken(quota, QUOTA_METADATA), 0);
}

TEST_IN(what_must_not_fail_is_charged_to_nobody, enter_account, leave_account)
{
    struct arena arena;
    arena_init(&arena, 0);
    arena_alloc(&arena, LIMIT + 1);
    assert_int_equal(quota_taken(quota, QUOTA_METADATA), 0);
    arena_fini(&arena);
}

TEST_IN(a_large_piece_can_be_given_back_before_the_end, enter_account, leave_account)
{
    struct arena arena;
    struct error error;
    arena_init(&arena, 0);
    char *small = arena_try(&arena, 100, &error), *large = arena_try(&arena, 4 << 20, &error);
    uint64_t with_both = quota_taken(quota, QUOTA_METADATA);
    arena_give_back(&arena, small); /* stays */
    assert_int_equal(quota_taken(quota, QUOTA_METADATA), with_both);
    arena_give_back(&arena, large);
    assert_int_equal(quota_taken(quota, QUOTA_METADATA), with_both - (4 << 20));
    assert_int_equal(arena.total_bytes, with_both - (4 << 20));
    memset(arena_try(&arena, 100, &error), 1, 100);
    memset(small, 2, 100);
    arena_fini(&arena);
    assert_int_equal(quota_taken(quota, QUOTA_METADATA), 0);
}

TEST_IN(a_charge_stays_with_the_account_of_the_first_piece, enter_account, leave_account)
{
    struct arena arena;
    struct error error;
    arena_init(&arena, 0);
    arena_try(&arena, 100, &error);
    metadata_enter((struct metadata_account){0});
    arena_try(&arena, 2 << 20, &error);
    assert_int_equal(quota_taken(quota, QUOTA_METADATA), arena.total_bytes);
    arena_fini(&arena);
    assert_int_equal(quota_taken(quota, QUOTA_METADATA), 0);
}

TEST(packed_pieces_are_aligned_as_their_size_demands)
{
    struct arena arena;
    struct error error;
    arena_init(&arena, 0);
    for (size_t bytes = 1; bytes < 200; bytes++) {
        unsigned char *piece = arena_try_packed(&arena, bytes, &error);
        size_t alignment = bytes & -bytes;
        assert_int_equal((uintptr_t)piece % (alignment > 16 ? 16 : alignment), 0);
        for (size_t i = 0; i < bytes; i++)
            assert_int_equal(piece[i], 0);
        memset(piece, 0xFF, bytes);
    }
    size_t used = arena.used;
    for (int i = 0; i < 100; i++)
        arena_try_packed(&arena, 1, &error);
    assert_int_equal(arena.used, used + 100);
    arena_fini(&arena);
}
