/* Memory of sizes that an outside sender chose: zeroed whatever was there before, refused where there is none. */
#include "tests/support/unit.h"

#include "base/memory.h"

static const size_t sizes[] = {1, 4096, (2 << 20) - 1, 2 << 20, (3 << 20) - 1, 3 << 20, (5 << 20) + 7};

TEST(memory_that_can_fail_is_zeroed_also_where_something_was_before)
{
    for (int round = 0; round < 2; round++)
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            unsigned char *memory = memory_try(sizes[i]);
            assert_non_null(memory);
            assert_int_equal((uintptr_t)memory % 16, 0);
            for (size_t at = 0; at < sizes[i]; at++)
                assert_int_equal(memory[at], 0);
            memset(memory, 0xA5, sizes[i]);
            free(memory);
        }
}

TEST(memory_that_can_fail_may_be_grown_like_any_other)
{
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        unsigned char *memory = memory_try(sizes[i]);
        assert_non_null(memory);
        memset(memory, 7, sizes[i]);
        memory = memory_grow(memory, sizes[i] + (3 << 20), 1);
        for (size_t at = 0; at < sizes[i]; at++)
            assert_int_equal(memory[at], 7);
        free(memory);
    }
}

TEST(sizes_that_no_memory_has_are_refused)
{
    assert_null(memory_try(SIZE_MAX));
    assert_null(memory_try(SIZE_MAX - (2 << 20)));
    free(memory_try(0));
}
