/* MD5 side by side is the MD5 of libcrypto. */
#include "tests/support/unit.h"

#include "base/md5_lanes.h"

#include <time.h>

#include "base/digest.h"
#include "base/memory.h"

enum { MOST_BYTES = 5000 };

static void compare(const struct md5_lane *lane)
{
    unsigned char sum[DIGEST_BYTES];
    struct digest *digest = digest_create_md5();
    if (!digest)
        skip();
    digest_add(digest, lane->bytes, lane->count);
    digest_finish(digest, sum);
    assert_memory_equal(lane->sum, sum, MD5_LANES_BYTES);
}

TEST(texts_of_any_lengths_have_their_sums_in_any_number_of_lanes)
{
    unsigned char *bytes = memory_alloc(MOST_BYTES + MD5_LANES);
    srandom(1);
    for (size_t i = 0; i < MOST_BYTES + MD5_LANES; i++)
        bytes[i] = (unsigned char)random();
    for (size_t round = 0; round < 400; round++) {
        struct md5_lane lanes[MD5_LANES] = {0};
        size_t n = round % MD5_LANES + 1;
        for (size_t i = 0; i < n; i++) /* at any address, and around the ends of blocks */
            lanes[i] =
                (struct md5_lane){bytes + i, round < 200 ? (round + i * 13) % 200 : (size_t)random() % MOST_BYTES, {0}};
        md5_lanes(lanes, n);
        for (size_t i = 0; i < n; i++)
            compare(&lanes[i]);
    }
    free(bytes);
}

TEST(no_text_is_a_text_too)
{
    static const unsigned char empty[] = {0xd4, 0x1d, 0x8c, 0xd9, 0x8f, 0x00, 0xb2, 0x04,
                                          0xe9, 0x80, 0x09, 0x98, 0xec, 0xf8, 0x42, 0x7e};
    struct md5_lane lane = {NULL, 0, {0}};
    md5_lanes(&lane, 1);
    assert_memory_equal(lane.sum, empty, sizeof empty);
}
