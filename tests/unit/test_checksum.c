/* Names, text forms and incremental sums of checksums. */
#include "tests/support/unit.h"

#include "base/checksum.h"

static const struct {
    enum checksum_kind kind;
    const char *hex, *base64; /* of "123456789" */
} known[] = {
    {CHECKSUM_CRC32C, "e3069283", "4waSgw=="},
    {CHECKSUM_CRC32, "cbf43926", "y/Q5Jg=="},
    {CHECKSUM_CRC64NVME, "ae8b14860a799888", "rosUhgp5mIg="},
    {CHECKSUM_SHA256, "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225",
     "FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU="},
    {CHECKSUM_MD5, "25f9e794323b453885f5181f1b624d0b", "JfnnlDI7RTiF9RgfG2JNCw=="},
};
enum { N_KNOWN = sizeof known / sizeof *known };

TEST(a_sum_in_pieces_is_what_both_text_forms_say)
{
    for (size_t i = 0; i < N_KNOWN; i++) {
        struct checksum_stream stream;
        struct checksum hex, base64, sum;
        assert_true(checksum_start(&stream, known[i].kind));
        checksum_add(&stream, "1234", 4);
        checksum_add(&stream, "", 0);
        checksum_add(&stream, "56789", 5);
        sum = checksum_finish(&stream);
        assert_true(checksum_parse_hex(known[i].kind, known[i].hex, &hex));
        assert_true(checksum_parse_base64(known[i].kind, known[i].base64, &base64));
        assert_true(checksum_equal(&sum, &hex));
        assert_true(checksum_equal(&sum, &base64));
    }
}

TEST(only_the_exact_length_and_alphabet_is_hex)
{
    struct checksum checksum;
    assert_true(checksum_parse_hex(CHECKSUM_CRC32C, "E3069283", &checksum));
    assert_false(checksum_parse_hex(CHECKSUM_CRC32C, "e306928", &checksum));
    assert_false(checksum_parse_hex(CHECKSUM_CRC32C, "e30692831", &checksum));
    assert_false(checksum_parse_hex(CHECKSUM_CRC32C, "e306928g", &checksum));
    assert_false(checksum_parse_hex(CHECKSUM_CRC32C, " 3069283", &checksum));
    assert_false(checksum_parse_hex(CHECKSUM_NONE, "", &checksum));
    assert_int_equal(checksum.kind, CHECKSUM_NONE);
}

TEST(only_the_canonical_text_is_base64)
{
    struct checksum checksum;
    assert_true(checksum_parse_base64(CHECKSUM_CRC32C, "4waSgw==", &checksum));
    assert_false(checksum_parse_base64(CHECKSUM_CRC32C, "4waSgw", &checksum));
    assert_false(checksum_parse_base64(CHECKSUM_CRC32C, "4waSgw=", &checksum));
    assert_false(checksum_parse_base64(CHECKSUM_CRC32C, "4waSgx==", &checksum)); /* bits behind the value */
    assert_false(checksum_parse_base64(CHECKSUM_CRC32C, "4waSgw=A", &checksum));
    assert_false(checksum_parse_base64(CHECKSUM_CRC32C, "4w-Sgw==", &checksum));
    assert_false(checksum_parse_base64(CHECKSUM_CRC32C, "", &checksum));
    assert_false(checksum_parse_base64(CHECKSUM_NONE, "", &checksum));
    assert_int_equal(checksum.kind, CHECKSUM_NONE);
}

TEST(a_crc_is_written_big_endian)
{
    char text[CHECKSUM_TEXT_CHARS];
    struct checksum checksum = checksum_of_crc(CHECKSUM_CRC32C, 0x00000102);
    assert_memory_equal(checksum.value, "\0\0\1\2", 4);
    assert_int_equal(checksum_crc(&checksum), 0x102);
    assert_string_equal(checksum_print(&checksum, text), "crc32c 00000102");
    checksum = checksum_of_crc(CHECKSUM_CRC64NVME, UINT64_MAX - 1);
    assert_true(checksum_crc(&checksum) == UINT64_MAX - 1);
}

TEST(values_of_different_kinds_or_bytes_are_not_equal)
{
    struct checksum a = checksum_of_crc(CHECKSUM_CRC32C, 5), b = checksum_of_crc(CHECKSUM_CRC32, 5);
    assert_false(checksum_equal(&a, &b));
    b = checksum_of_crc(CHECKSUM_CRC32C, 6);
    assert_false(checksum_equal(&a, &b));
    b = checksum_of_crc(CHECKSUM_CRC32C, 5);
    b.value[4] = 1; /* behind the value */
    assert_true(checksum_equal(&a, &b));
}
