/* The texts of gRPC's headers and trailers, and the prefix of its messages. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include "base/grpc_wire.h"

#include <cmocka.h> /* last: its macro fail() would hide ours */

static void content_types_of_grpc_are_known(void **state)
{
    static const char *const good[] = {"application/grpc", "application/grpc+proto", "application/grpc;charset=utf-8"};
    static const char *const bad[] = {"", "application/grp", "application/grpc-web", "application/grpcx", "text/html"};
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(grpc_wire_is_grpc(good[i], strlen(good[i])));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(grpc_wire_is_grpc(bad[i], strlen(bad[i])));
}

static uint64_t timeout(const char *text)
{
    return grpc_wire_timeout_ns(text, strlen(text));
}

static void timeouts_have_eight_digits_and_a_unit(void **state)
{
    static const char *const bad[] = {"", "S", "1", "1s", "-1S", "1.5S", " 1S", "1S ", "123456789S", "H1"};
    (void)state;
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

static void messages_are_percent_encoded(void **state)
{
    char out[64];
    (void)state;
    assert_int_equal(grpc_wire_encode_message("100 % \xc3\xa9\n~", out), 18);
    assert_string_equal(out, "100 %25 %C3%A9%0A~");
}

static void a_prefix_says_how_long_a_message_is(void **state)
{
    static const size_t lengths[] = {0, 1, 255, 256, 1 << 30, UINT32_MAX};
    uint8_t prefix[GRPC_WIRE_PREFIX_BYTES];
    (void)state;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        grpc_wire_write_prefix(prefix, lengths[i]);
        assert_int_equal(prefix[0], 0);
        assert_int_equal(grpc_wire_length(prefix), lengths[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(content_types_of_grpc_are_known),
        cmocka_unit_test(timeouts_have_eight_digits_and_a_unit),
        cmocka_unit_test(messages_are_percent_encoded),
        cmocka_unit_test(a_prefix_says_how_long_a_message_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
