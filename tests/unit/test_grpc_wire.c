/* The texts of gRPC's headers and trailers, and the prefix of its messages. */
#include "tests/support/unit.h"

#include "base/grpc_wire.h"

TEST(content_types_of_grpc_are_known)
{
    static const char *const good[] = {"application/grpc", "application/grpc+proto", "application/grpc;charset=utf-8"};
    static const char *const bad[] = {"", "application/grp", "application/grpc-web", "application/grpcx", "text/html"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(grpc_wire_is_grpc(good[i], strlen(good[i])));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(grpc_wire_is_grpc(bad[i], strlen(bad[i])));
}

static uint64_t timeout(const char *text)
{
    return grpc_wire_timeout_ns(text, strlen(text));
}

TEST(timeouts_have_eight_digits_and_a_unit)
{
    static const char *const bad[] = {"", "S", "1", "1s", "-1S", "1.5S", " 1S", "1S ", "123456789S", "H1"};
    assert_int_equal(timeout("1n"), 1);
    assert_int_equal(timeout("2u"), 2000);
    assert_int_equal(timeout("3m"), 3000000);
    assert_int_equal(timeout("4S"), 4000000000);
    assert_int_equal(timeout("5M"), 300000000000);
    assert_int_equal(timeout("6H"), 21600000000000);
    assert_int_equal(timeout("0S"), 0);
    assert_int_equal(timeout("99999999S"), 99999999000000000);
    assert_true(timeout("99999999H") == UINT64_MAX); /* 11,000 years */
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_true(timeout(bad[i]) == UINT64_MAX);
}

TEST(messages_are_percent_encoded)
{
    char out[64];
    assert_int_equal(grpc_wire_encode_message("100 % \xc3\xa9\n~", out), 18);
    assert_string_equal(out, "100 %25 %C3%A9%0A~");
}

TEST(messages_are_decoded_from_any_sender)
{
    static const char *const pairs[][2] = {{"100 %25 %C3%a9%0A~", "100 % \xc3\xa9\n~"},
                                           {"%", "%"},
                                           {"%4", "%4"},
                                           {"%zz%41", "%zzA"},
                                           {"%00%1b%7F", "???"},
                                           {"%C3", "?"},
                                           {"", ""}};
    char out[64];
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        grpc_wire_decode_message(pairs[i][0], strlen(pairs[i][0]), out, sizeof out);
        assert_string_equal(out, pairs[i][1]);
    }
    grpc_wire_decode_message("abc%20def", 9, out, 5);
    assert_string_equal(out, "abc ");
}

TEST(timeouts_are_written_with_eight_digits_and_never_shorter)
{
    static const uint64_t times[] = {
        0, 1, 99999999, 100000000, 100000001, 60000000000, 99999999999001, UINT64_C(31536000000000001), UINT64_C(1) << 59};
    char out[GRPC_WIRE_TIMEOUT_CHARS];
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        size_t n = grpc_wire_print_timeout(times[i], out);
        assert_int_equal(n, strlen(out));
        uint64_t back = grpc_wire_timeout_ns(out, n);
        assert_true(back >= times[i] && back - times[i] <= times[i] / 10000);
    }
    grpc_wire_print_timeout(60000000000, out);
    assert_string_equal(out, "60000000u");
    assert_int_equal(grpc_wire_print_timeout(UINT64_MAX - 1, out), 8);
}

TEST(a_prefix_says_how_long_a_message_is)
{
    static const size_t lengths[] = {0, 1, 255, 256, 1 << 30, UINT32_MAX};
    uint8_t prefix[GRPC_WIRE_PREFIX_BYTES];
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        grpc_wire_write_prefix(prefix, lengths[i]);
        assert_int_equal(prefix[0], 0);
        assert_int_equal(grpc_wire_length(prefix), lengths[i]);
    }
}
