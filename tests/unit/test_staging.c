/* Temporary memory: never more than the budget, kept windows give way, what is not used goes back to the kernel. */
#include "tests/support/unit.h"

#include <sys/mman.h>
#include <unistd.h>

#include "base/huge_pages.h"
#include "execute/staging.h"

#undef fail /* ours is in base/error.h */

enum { BUFFER = 64 << 10, BUFFERS = 3 };

static struct staging staging;
static int a_file, another_file; /* addresses that stand for scans */
#define SCAN(file) ((const struct scan *)(const void *)&(file))

static int open_staging(void **state)
{
    (void)state;
    staging_init(&staging, BUFFER, BUFFERS * BUFFER + BUFFER / 2);
    return 0;
}

static int close_staging(void **state)
{
    (void)state;
    assert_int_equal(staging.n_taken, 0);
    staging_fini(&staging);
    assert_int_equal(staging.n_buffers, 0);
    return 0;
}

static struct staging_buffer *keep(const struct scan *scan, uint64_t start, uint64_t now_ns)
{
    struct staging_buffer *buffer = staging_take(&staging, NULL);
    buffer->start = start;
    buffer->range = (struct range){start, start + BUFFER};
    staging_keep(buffer, scan, now_ns);
    return buffer;
}

TEST_IN(there_are_as_many_as_the_budget_has_room_for, open_staging, close_staging)
{
    struct staging_buffer *taken[BUFFERS];
    for (size_t i = 0; i < BUFFERS; i++) {
        assert_int_equal(staging_left(&staging), BUFFERS - i);
        taken[i] = staging_take(&staging, NULL);
        assert_int_equal((uintptr_t)taken[i]->memory % HUGE_PAGE_BYTES, 0);
        memset(taken[i]->memory, 1, BUFFER);
    }
    assert_null(staging_take(&staging, NULL));
    for (size_t i = 0; i < BUFFERS; i++)
        staging_give(taken[i], 0);
    staging_init(&staging, BUFFER, staging_expire(&staging, 1)); /* less than one: one all the same */
    staging_give(staging_take(&staging, NULL), 0);
}

TEST_IN(a_kept_window_is_found_by_file_and_offset_once, open_staging, close_staging)
{
    struct staging_buffer *kept = keep(SCAN(a_file), BUFFER, 0);
    assert_null(staging_find(&staging, SCAN(another_file), BUFFER));
    assert_null(staging_find(&staging, SCAN(a_file), 0));
    assert_ptr_equal(staging_find(&staging, SCAN(a_file), BUFFER), kept);
    assert_null(staging_find(&staging, SCAN(a_file), BUFFER));
    staging_give(kept, 0);
    keep(SCAN(a_file), BUFFER, 0);
    staging_forget(&staging, SCAN(a_file));
    assert_null(staging_find(&staging, SCAN(a_file), BUFFER));
}

static bool is_first(const struct staging_buffer *kept)
{
    return kept->start == 0;
}

static bool is_any(const struct staging_buffer *kept)
{
    (void)kept;
    return true;
}

TEST_IN(the_oldest_kept_window_gives_way_unless_it_is_needed, open_staging, close_staging)
{
    for (uint64_t i = 0; i < BUFFERS; i++)
        keep(SCAN(a_file), i * BUFFER, i);
    assert_null(staging_take(&staging, is_any));
    struct staging_buffer *second = staging_take(&staging, is_first);
    assert_int_equal(second->start, BUFFER);
    struct staging_buffer *first = staging_take(&staging, NULL);
    assert_int_equal(first->start, 0);
    staging_give(first, 9);
    staging_give(second, 9);
    struct staging_buffer *third = staging_find(&staging, SCAN(a_file), 2 * BUFFER);
    assert_non_null(third);
    staging_give(third, 9);
}

TEST_IN(a_smaller_budget_and_time_free_what_is_not_used, open_staging, close_staging)
{
    struct staging_buffer *taken = staging_take(&staging, NULL);
    staging_give(staging_take(&staging, NULL), 100);
    keep(SCAN(a_file), 0, 200);
    assert_int_equal(staging.n_buffers, 2);
    staging_give(taken, 50);
    assert_true(staging_expire(&staging, 100));
    assert_int_equal(staging.n_buffers, 1);
    assert_false(staging_expire(&staging, 201));
    staging_give(staging_take(&staging, NULL), 300);
    keep(SCAN(a_file), 0, 300);
    staging_resize(&staging, 0);
    assert_int_equal(staging.budget_buffers, 1);
    assert_int_equal(staging.n_buffers, 1);
}
