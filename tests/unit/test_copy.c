/* Copies around the caches are copies, at every alignment and length. */
#include "tests/support/unit.h"

#include "base/copy.h"

enum { LONGEST = 40 << 10, ROOM = LONGEST + 256 };

TEST(every_alignment_and_length_is_copied_and_nothing_beside_it)
{
    unsigned char *src = test_malloc(ROOM), *dst = test_malloc(ROOM);
    for (size_t i = 0; i < ROOM; i++)
        src[i] = (unsigned char)(i * 2654435761u >> 11);
    for (size_t round = 0; round < 3000; round++) {
        size_t at = round % 67, from = round % 71, bytes = round < 1500 ? round : round * 7919 % LONGEST;
        memset(dst, 0xEE, ROOM);
        copy_streaming(dst + at, src + from, bytes);
        assert_memory_equal(dst + at, src + from, bytes);
        assert_true(at == 0 || dst[at - 1] == 0xEE);
        assert_int_equal(dst[at + bytes], 0xEE);
    }
    test_free(src);
    test_free(dst);
}
