/* The CRCs against published check values, against a bit-by-bit reference, and against themselves in pieces. */
#include "tests/support/unit.h"

#include "base/crc.h"

enum { MESSAGE_BYTES = 5000 };

static const enum checksum_kind kinds[] = {CHECKSUM_CRC32C, CHECKSUM_CRC32, CHECKSUM_CRC64NVME};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

static unsigned char message[MESSAGE_BYTES];
static uint32_t random_state = 12345;

static uint32_t next_random(uint32_t below)
{
    random_state = random_state * 1664525 + 1013904223;
    return (uint32_t)((uint64_t)random_state * below >> 32);
}

static int make_message(void **state)
{
    (void)state;
    for (size_t i = 0; i < MESSAGE_BYTES; i++)
        message[i] = (unsigned char)next_random(256);
    return 0;
}

/* As the definitions have it, bit by bit. */
static uint64_t reference(enum checksum_kind kind, const unsigned char *bytes, size_t count)
{
    static const uint64_t polynomials[] = {
        [CHECKSUM_CRC32C] = 0x82f63b78, [CHECKSUM_CRC32] = 0xedb88320, [CHECKSUM_CRC64NVME] = 0x9a6c9329ac4bc9b5};
    uint64_t ones = kind == CHECKSUM_CRC64NVME ? UINT64_MAX : UINT32_MAX, state = ones;
    for (size_t i = 0; i < count; i++) {
        state ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            state = state >> 1 ^ (state & 1 ? polynomials[kind] : 0);
    }
    return state ^ ones;
}

TEST(published_check_values_are_met)
{
    assert_int_equal(crc32c_update(0, "123456789", 9), 0xe3069283);
    assert_int_equal(crc_update(CHECKSUM_CRC32, 0, "123456789", 9), 0xcbf43926);
    assert_true(crc_update(CHECKSUM_CRC64NVME, 0, "123456789", 9) == 0xae8b14860a799888);
}

TEST(longer_published_values_are_met)
{
    unsigned char zeros[4096] = {0}, ones[32];
    memset(ones, 0xff, sizeof ones);
    assert_int_equal(crc32c_update(0, zeros, 32), 0x8a9136aa); /* RFC 3720, B.4 */
    assert_int_equal(crc32c_update(0, ones, 32), 0x62a8ab43);
    assert_true(crc_update(CHECKSUM_CRC64NVME, 0, zeros, 4096) ==
                0x6482d367eb22b64e); /* NVM Command Set Specification, 5.2.1.3.5 */
}

TEST(nothing_sums_to_zero_and_changes_nothing)
{
    for (size_t k = 0; k < N_KINDS; k++) {
        assert_int_equal(crc_update(kinds[k], 0, NULL, 0), 0);
        assert_int_equal(crc_update(kinds[k], 77, NULL, 0), 77);
        assert_int_equal(crc_combine(kinds[k], 0, 77, 5), 77);
        assert_int_equal(crc_combine(kinds[k], 77, 0, 0), 77);
    }
}

/* Every length around the widths of the fold, and every alignment. */
TEST(every_length_agrees_with_the_definition)
{
    for (size_t k = 0; k < N_KINDS; k++)
        for (size_t count = 0; count < 1100; count++) {
            size_t offset = count % 64;
            assert_true(crc_update(kinds[k], 0, message + offset, count) == reference(kinds[k], message + offset, count));
        }
}

TEST(a_stream_in_pieces_sums_to_the_same)
{
    for (size_t k = 0; k < N_KINDS; k++)
        for (int round = 0; round < 50; round++) {
            uint64_t crc = 0;
            for (size_t at = 0; at < MESSAGE_BYTES;) {
                size_t count = next_random(900);
                count = count < MESSAGE_BYTES - at ? count : MESSAGE_BYTES - at;
                crc = crc_update(kinds[k], crc, message + at, count);
                at += count;
            }
            assert_true(crc == reference(kinds[k], message, MESSAGE_BYTES));
        }
}

TEST(pieces_summed_apart_combine_to_the_whole)
{
    for (size_t k = 0; k < N_KINDS; k++)
        for (int round = 0; round < 50; round++) {
            size_t cut = next_random(MESSAGE_BYTES + 1);
            uint64_t a = crc_update(kinds[k], 0, message, cut);
            uint64_t b = crc_update(kinds[k], 0, message + cut, MESSAGE_BYTES - cut);
            assert_true(crc_combine(kinds[k], a, b, MESSAGE_BYTES - cut) == reference(kinds[k], message, MESSAGE_BYTES));
        }
}

/* Doubling: sum(x x) = combine(sum x, sum x, |x|), from 1 byte of zero to 2^63 of them and back over another road. */
TEST(huge_lengths_combine_consistently)
{
    unsigned char zero = 0;
    for (size_t k = 0; k < N_KINDS; k++) {
        uint64_t power = crc_update(kinds[k], 0, &zero, 1), all = 0, bytes = 1, total = 0;
        for (int bit = 0; bit < 63; bit++, bytes *= 2) {
            all = crc_combine(kinds[k], all, power, bytes);
            total += bytes;
            assert_true(crc_combine(kinds[k], power, all, total) == crc_combine(kinds[k], all, power, bytes));
            power = crc_combine(kinds[k], power, power, bytes);
        }
    }
}

TEST(a_flipped_bit_is_seen_wherever_it_is)
{
    for (size_t k = 0; k < N_KINDS; k++) {
        uint64_t good = crc_update(kinds[k], 0, message, 2000);
        for (size_t i = 0; i < 2000; i++) {
            message[i] ^= 1 << i % 8;
            assert_true(crc_update(kinds[k], 0, message, 2000) != good);
            message[i] ^= 1 << i % 8;
        }
    }
}

TESTS_IN(make_message, NULL)
