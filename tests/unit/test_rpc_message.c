/* A request message that arrives in pieces. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "rpc/rpc_message.h"

#include <cmocka.h> /* last: its macro fail() would hide ours */

enum { USER = 12345, MOST = 1 << 20 };

static struct quota *quota;
static struct rpc_message message;
static struct error error;

static int begin(void **state)
{
    (void)state;
    quota = quota_create();
    quota_set_kept(quota, 0);
    rpc_message_init(&message, (struct metadata_account){quota, USER});
    return 0;
}

static int end(void **state)
{
    (void)state;
    rpc_message_fini(&message);
    assert_int_equal(quota_taken(quota, QUOTA_METADATA), 0);
    quota_destroy(quota);
    return 0;
}

/* A prefix and so many bytes of content. */
static uint8_t *frame(size_t length)
{
    uint8_t *bytes = memory_alloc(GRPC_WIRE_PREFIX_BYTES + length);
    grpc_wire_write_prefix(bytes, length);
    memset(bytes + GRPC_WIRE_PREFIX_BYTES, 'x', length);
    return bytes;
}

static int add(const void *bytes, size_t count)
{
    return rpc_message_add(&message, bytes, count, MOST, &error);
}

static void a_message_is_whole_with_its_last_byte_however_it_is_cut(void **state)
{
    uint8_t *bytes = frame(300);
    (void)state;
    for (size_t piece = 1; piece <= 305; piece = 2 * piece + 1) {
        for (size_t at = 0; at < 305; at += piece) {
            assert_false(rpc_message_is_whole(&message));
            assert_int_equal(add(bytes + at, 305 - at < piece ? 305 - at : piece), 0);
        }
        assert_true(rpc_message_is_whole(&message));
        assert_int_equal(rpc_message_length(&message), 300);
        assert_memory_equal(message.bytes, bytes, 305);
        rpc_message_next(&message);
        assert_false(rpc_message_is_whole(&message));
    }
    free(bytes);
}

static void what_follows_a_message_is_the_next_one(void **state)
{
    (void)state;
    assert_int_equal(add("\0\0\0\0\1a\0\0\0\0\0\0\0\0\0\2bc", 18), 0);
    assert_int_equal(message.bytes[5], 'a');
    rpc_message_next(&message);
    assert_true(rpc_message_is_whole(&message));
    assert_int_equal(rpc_message_length(&message), 0);
    rpc_message_next(&message);
    assert_int_equal(rpc_message_length(&message), 2);
    assert_memory_equal(message.bytes + GRPC_WIRE_PREFIX_BYTES, "bc", 2);
    rpc_message_next(&message);
    assert_int_equal(message.count, 0);
}

static void a_message_that_is_too_long_is_refused_by_its_prefix(void **state)
{
    uint8_t prefix[GRPC_WIRE_PREFIX_BYTES];
    (void)state;
    grpc_wire_write_prefix(prefix, MOST);
    assert_int_equal(add(prefix, sizeof prefix), 0);
    rpc_message_fini(&message);
    grpc_wire_write_prefix(prefix, MOST + 1);
    assert_int_equal(add(prefix, 4), 0);
    assert_int_equal(add(prefix + 4, 1), -1);
    assert_int_equal(error.code, ERROR_RESOURCE_EXHAUSTED);
    assert_string_equal(error.reason, "MESSAGE_TOO_LARGE");
}

static void a_compressed_message_is_refused(void **state)
{
    (void)state;
    assert_int_equal(add("\1\0\0\0\1a", 6), -1);
    assert_int_equal(error.code, ERROR_UNIMPLEMENTED);
}

static void bytes_are_charged_as_they_arrive(void **state)
{
    uint8_t *bytes = frame(100000);
    (void)state;
    assert_int_equal(add(bytes, RPC_FREE_REQUEST_BYTES), 0);
    assert_int_equal(quota_taken(quota, QUOTA_METADATA), 0);
    assert_int_equal(add(bytes + RPC_FREE_REQUEST_BYTES, 1), 0);
    assert_int_equal(quota_taken(quota, QUOTA_METADATA), RPC_FREE_REQUEST_BYTES + 1);
    quota_set_limits(quota, QUOTA_METADATA, 50000, 0);
    assert_int_equal(add(bytes, 50000 - RPC_FREE_REQUEST_BYTES - 1), 0);
    assert_int_equal(add(bytes, 1), -1);
    assert_string_equal(error.reason, "METADATA_EXCEEDED");
    assert_int_equal(quota_taken(quota, QUOTA_METADATA), 50000);
    free(bytes);
}

int main(void)
{
#define EACH(test) cmocka_unit_test_setup_teardown(test, begin, end)
    const struct CMUnitTest tests[] = {
        EACH(a_message_is_whole_with_its_last_byte_however_it_is_cut),
        EACH(what_follows_a_message_is_the_next_one),
        EACH(a_message_that_is_too_long_is_refused_by_its_prefix),
        EACH(a_compressed_message_is_refused),
        EACH(bytes_are_charged_as_they_arrive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
