/* A request message that arrives in pieces. */
#include "tests/support/unit.h"

#include "base/memory.h"
#include "rpc/rpc_message.h"

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

TEST_IN(a_message_is_whole_with_its_last_byte_however_it_is_cut, begin, end)
{
    uint8_t *bytes = frame(300);
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

TEST_IN(what_follows_a_message_is_the_next_one, begin, end)
{
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

TEST_IN(a_message_that_is_too_long_is_refused_by_its_prefix, begin, end)
{
    uint8_t prefix[GRPC_WIRE_PREFIX_BYTES];
    grpc_wire_write_prefix(prefix, MOST);
    assert_int_equal(add(prefix, sizeof prefix), 0);
    rpc_message_fini(&message);
    grpc_wire_write_prefix(prefix, MOST + 1);
    assert_int_equal(add(prefix, 4), 0);
    assert_int_equal(add(prefix + 4, 1), -1);
    assert_int_equal(error.code, ERROR_RESOURCE_EXHAUSTED);
    assert_string_equal(error.reason, "MESSAGE_TOO_LARGE");
}

TEST_IN(a_compressed_message_is_refused, begin, end)
{
    assert_int_equal(add("\1\0\0\0\1a", 6), -1);
    assert_int_equal(error.code, ERROR_UNIMPLEMENTED);
}

TEST_IN(bytes_are_charged_as_they_arrive, begin, end)
{
    uint8_t *bytes = frame(100000);
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
