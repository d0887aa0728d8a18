/* Requests as hostile bytes: what is refused, by name, and what memory they may take. */
#include "tests/support/unit.h"

#undef fail /* ours is in base/error.h */

#include "base/memory.h"
#include "rpc/rpc_decode.h"
#include "tensorcast/daemon/v1/store_daemon.pb-c.h"

#define RESOLVE &tensorcast__daemon__v1__resolve_request__descriptor
#define PREWARM &tensorcast__daemon__v1__prewarm_request__descriptor

static int check(const char *bytes, size_t count, struct error *error)
{
    memset(error, 0, sizeof *error);
    return rpc_decode_check(RESOLVE, bytes, count, error);
}

#define CHECK(text) check(text, sizeof text - 1, &error)

TEST(sound_messages_pass_with_fields_they_do_not_know)
{
    struct error error;
    assert_int_equal(CHECK(""), 0);
    assert_int_equal(CHECK("\x0a\x03"
                           "abc\x10\x01"),
                     0);
    assert_int_equal(CHECK("\x0a\x02\xc3\xa9"), 0);
    assert_int_equal(CHECK("\xf8\x07\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), 0); /* field 127, the largest number */
    assert_int_equal(CHECK("\xf9\x07"
                           "12345678\xfd\x07"
                           "1234\xfa\x07\x02\xff\xff"),
                     0);
}

TEST(torn_or_senseless_bytes_are_refused)
{
    static const struct {
        const char *bytes;
        size_t count;
    } bad[] = {{"\x0a", 1},
               {"\x0a\x04"
                "abc",
                5},
               {"\x0a\xff\xff\xff\xff\x0f", 6},
               {"\x10", 1},
               {"\x10\x80", 2},
               {"\xf9\x07"
                "1234567",
                9},
               {"\xfd\x07"
                "123",
                5},
               {"\x02\x00", 2},
               {"\x0b\x0c", 2},
               {"\x0f", 1},
               {"\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 11},
               {"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", 11},
               {"\x8a\x80\x80\x80\x10\x00", 6}};
    struct error error;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(check(bad[i].bytes, bad[i].count, &error), -1);
        assert_int_equal(error.code, ERROR_INVALID_ARGUMENT);
        assert_non_null(strstr(error.message, "ResolveRequest"));
    }
}

TEST(text_that_is_none_is_refused_by_field)
{
    struct error error;
    assert_int_equal(CHECK("\x0a\x02\xc3\x28"), -1);
    assert_string_equal(error.reason, "INVALID_TEXT");
    assert_non_null(strstr(error.message, "artifact"));
    assert_int_equal(CHECK("\x0a\x03"
                           "a\0b"),
                     -1);
    assert_non_null(strstr(error.message, "NUL"));
    assert_int_equal(CHECK("\x0a\x03\xed\xa0\x80"), -1); /* a surrogate */
}

TEST(text_is_checked_in_nested_messages_too)
{
    static const char bytes[] = "\x0a\x06\x12\x04\x0a\x02\xff\xff"; /* load { view { names: "\xff\xff" } } */
    struct error error;
    assert_int_equal(rpc_decode_check(PREWARM, bytes, sizeof bytes - 1, &error), -1);
    assert_non_null(strstr(error.message, "names"));
}

/* A message that holds itself as field 1, as none of ours does. */
static ProtobufCMessageDescriptor recursive;
static const ProtobufCFieldDescriptor itself = {
    .name = "itself", .id = 1, .label = PROTOBUF_C_LABEL_NONE, .type = PROTOBUF_C_TYPE_MESSAGE, .descriptor = &recursive};
static const ProtobufCIntRange only_one[] = {{1, 0}, {0, 1}};

static size_t nest(unsigned char *bytes, size_t depth)
{
    size_t count = 0;
    for (size_t i = 1; i < depth; i++) { /* from the inside out: depth stays below 64, so every length is one byte */
        memmove(bytes + 2, bytes, count);
        bytes[0] = 0x0a;
        bytes[1] = (unsigned char)count;
        count += 2;
    }
    return count;
}

TEST(nesting_has_a_limit)
{
    unsigned char bytes[128];
    struct error error;
    recursive = (ProtobufCMessageDescriptor){.magic = PROTOBUF_C__MESSAGE_DESCRIPTOR_MAGIC,
                                             .name = "R",
                                             .n_fields = 1,
                                             .fields = &itself,
                                             .n_field_ranges = 1,
                                             .field_ranges = only_one};
    assert_int_equal(rpc_decode_check(&recursive, bytes, nest(bytes, RPC_DECODE_MAX_DEPTH), &error), 0);
    assert_int_equal(rpc_decode_check(&recursive, bytes, nest(bytes, RPC_DECODE_MAX_DEPTH + 1), &error), -1);
    assert_non_null(strstr(error.message, "deeper than 16"));
}

/* load { view { names: text, n times } } */
static unsigned char *many_names(size_t n, const char *text, size_t *count)
{
    size_t each = strlen(text) + 2, view = n * each;
    unsigned char *bytes = memory_alloc(view + 32), *at = bytes;
    size_t lengths[] = {view + 6, view}; /* the view's tag and a length of five bytes */
    const unsigned char tags[] = {0x0a, 0x12};
    for (int i = 0; i < 2; i++) {
        *at++ = tags[i];
        for (int k = 0; k < 4; k++)
            *at++ = (unsigned char)((lengths[i] >> (7 * k) & 0x7f) | 0x80);
        *at++ = (unsigned char)(lengths[i] >> 28);
    }
    for (size_t i = 0; i < n; i++) {
        *at++ = 0x0a;
        *at++ = (unsigned char)strlen(text);
        memcpy(at, text, strlen(text));
        at += strlen(text);
    }
    *count = (size_t)(at - bytes);
    return bytes;
}

TEST(a_hundred_thousand_short_names_fit)
{
    struct arena arena;
    struct error error;
    size_t count;
    unsigned char *bytes = many_names(100000, "t.12345", &count);
    const Tensorcast__Daemon__V1__PrewarmRequest *request = (const void *)rpc_decode(PREWARM, bytes, count, &arena, &error);
    assert_non_null(request);
    assert_int_equal(request->load->view->n_names, 100000);
    assert_string_equal(request->load->view->names[99999], "t.12345");
    assert_true(arena.total_bytes <= rpc_decode_cap_bytes(count));
    arena_fini(&arena);
    free(bytes);
}

TEST(few_bytes_cannot_become_much_memory)
{
    struct arena arena;
    struct error error;
    size_t count;
    unsigned char *bytes = many_names(4 << 20, "", &count); /* 8 MiB, some 300 decoded */
    assert_null(rpc_decode(PREWARM, bytes, count, &arena, &error));
    assert_int_equal(error.code, ERROR_RESOURCE_EXHAUSTED);
    assert_true(arena.total_bytes <= rpc_decode_cap_bytes(count));
    arena_fini(&arena);
    free(bytes);
}

TEST(the_cap_grows_with_the_message_up_to_256_mib)
{
    assert_int_equal(rpc_decode_cap_bytes(0), 2 << 20);
    assert_int_equal(rpc_decode_cap_bytes(100), (2 << 20) + 1600);
    assert_int_equal(rpc_decode_cap_bytes(32 << 20), 256 << 20);
    assert_int_equal(rpc_decode_cap_bytes(SIZE_MAX), 256 << 20);
}

TEST(no_bytes_are_an_empty_message)
{
    struct arena arena;
    struct error error;
    const Tensorcast__Daemon__V1__ResolveRequest *request = (const void *)rpc_decode(RESOLVE, NULL, 0, &arena, &error);
    assert_non_null(request);
    assert_string_equal(request->artifact, "");
    arena_fini(&arena);
}
