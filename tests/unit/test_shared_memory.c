/* What is found by an address, and by whom it is lost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "base/shared_memory.h"

#include <cmocka.h> /* last: its macro fail() would hide ours */

static unsigned char bytes[300];

static struct shared_memory piece(size_t first, size_t n, int fd)
{
    return (struct shared_memory){.address = bytes + first, .bytes = n, .fd = fd};
}

static void a_buffer_is_found_when_all_of_it_lies_inside(void **state)
{
    struct shared_memory a = piece(0, 100, 1), b = piece(100, 100, 2), c = piece(200, 100, 3);
    (void)state;
    assert_null(shared_memory_find(bytes, 1));
    shared_memory_add(&a);
    shared_memory_add(&b);
    shared_memory_add(&c);
    assert_ptr_equal(shared_memory_find(bytes, 100), &a);
    assert_ptr_equal(shared_memory_find(bytes + 99, 1), &a);
    assert_ptr_equal(shared_memory_find(bytes + 100, 100), &b);
    assert_ptr_equal(shared_memory_find(bytes + 299, 1), &c);
    assert_null(shared_memory_find(bytes + 99, 2)); /* two pieces */
    assert_null(shared_memory_find(bytes + 299, 2));
    assert_null(shared_memory_find(bytes + 100, UINT64_MAX));
    shared_memory_remove(&b);
    assert_null(shared_memory_find(bytes + 100, 1));
    shared_memory_remove(&b); /* nothing */
    shared_memory_remove(&c);
    assert_ptr_equal(shared_memory_find(bytes, 1), &a);
    shared_memory_remove(&a);
    assert_null(shared_memory_find(bytes, 1));
}

static void what_was_lost_stays_lost(void **state)
{
    struct shared_memory a = piece(0, 100, 1), b = piece(100, 100, 2);
    (void)state;
    shared_memory_add(&a);
    shared_memory_add(&b);
    shared_memory_lose(shared_memory_find(bytes + 100, 1));
    assert_false(shared_memory_is_lost(&a));
    assert_true(shared_memory_is_lost(&b));
    shared_memory_remove(&a);
    shared_memory_remove(&b);
    assert_true(shared_memory_is_lost(&b));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_buffer_is_found_when_all_of_it_lies_inside),
        cmocka_unit_test(what_was_lost_stays_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
