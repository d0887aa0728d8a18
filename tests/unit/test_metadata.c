/* Metadata: who pays, what happens when it is too much, and that everything is given back. */
#include "tests/support/unit.h"

#include <pthread.h>

#include "base/metadata.h"

enum { USER = 12345, LIMIT = 1 << 20 };

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
    assert_int_equal(quota_taken(quota, QUOTA_METADATA), 0);
    metadata_enter((struct metadata_account){0});
    quota_destroy(quota);
    return 0;
}

TEST_IN(the_limit_is_reached_exactly, enter_account, leave_account)
{
    struct error error;
    char *piece = metadata_alloc(LIMIT, &error);
    assert_non_null(piece);
    for (size_t i = 0; i < LIMIT; i++)
        assert_int_equal(piece[i], 0);
    assert_null(metadata_alloc(1, &error));
    assert_string_equal(error.reason, "METADATA_EXCEEDED");
    metadata_free(piece);
    assert_null(metadata_alloc(LIMIT + 1, &error));
    metadata_free(metadata_alloc(0, &error));
    metadata_free(NULL);
}

TEST_IN(sizes_that_no_memory_has_fail, enter_account, leave_account)
{
    struct error error;
    metadata_enter((struct metadata_account){0});
    assert_null(metadata_alloc(SIZE_MAX, &error));
    assert_string_equal(error.reason, "OUT_OF_MEMORY");
    assert_null(metadata_array(SIZE_MAX / 2, 3, &error));
    assert_string_equal(error.reason, "OUT_OF_MEMORY");
    char *piece = metadata_alloc(10, &error);
    assert_null(metadata_grow(piece, SIZE_MAX, &error));
    metadata_free(piece);
}

TEST_IN(an_array_that_cannot_grow_stays_as_it_was, enter_account, leave_account)
{
    struct error error;
    uint64_t *items = NULL;
    size_t count = 0, capacity = 0;
    while (METADATA_RESERVE(items, count, capacity, &error) == 0) {
        items[count] = count;
        count++;
    }
    assert_string_equal(error.reason, "METADATA_EXCEEDED");
    assert_int_equal(count, LIMIT / sizeof *items);
    assert_int_equal(quota_taken(quota, QUOTA_METADATA), LIMIT);
    for (size_t i = 0; i < count; i++)
        assert_true(items[i] == i);
    metadata_free(items);
}

static void *free_elsewhere(void *piece)
{
    assert_null(metadata_current().quota);
    metadata_free(piece);
    return NULL;
}

TEST_IN(any_thread_may_free_and_starts_without_an_account, enter_account, leave_account)
{
    struct error error;
    pthread_t thread;
    void *piece = metadata_alloc(1000, &error);
    assert_int_equal(quota_taken(quota, QUOTA_METADATA), 1000);
    pthread_create(&thread, NULL, free_elsewhere, piece);
    pthread_join(thread, NULL);
    assert_int_equal(quota_taken(quota, QUOTA_METADATA), 0);
}

TEST_IN(who_paid_is_remembered_when_the_account_is_left, enter_account, leave_account)
{
    struct error error;
    void *piece = metadata_alloc(1000, &error);
    struct metadata_account before = metadata_enter((struct metadata_account){0});
    assert_ptr_equal(before.quota, quota);
    assert_int_equal(before.uid, USER);
    piece = metadata_grow(piece, 3000, &error);
    void *free_of_charge = metadata_alloc(2 * LIMIT, &error);
    assert_int_equal(quota_taken(quota, QUOTA_METADATA), 3000);
    metadata_free(free_of_charge);
    metadata_free(piece);
}
