/* Shards of activations in pickles: what NumPy writes is read, what is written is read back, and nothing else is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/pickle_reader.h" /* before cmocka.h, whose macro fail() would hide base/error.h's function */
#include "client/cli/pickle_shard.h"
#include "client/cli/pickle_writer.h"

#include <cmocka.h>

/* pickle.dumps(..., 4) of NumPy 2.4.6 */
static const unsigned char protocol_4[] = {
    0x80, 0x04, 0x95, 0xc3, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x7d, 0x94, 0x28, 0x4b, 0x0a, 0x5d, 0x94, 0x28, 0x7d,
    0x94, 0x28, 0x8c, 0x0a, 0x73, 0x61, 0x6d, 0x70, 0x6c, 0x65, 0x5f, 0x69, 0x64, 0x78, 0x94, 0x4b, 0x00, 0x8c, 0x0a, 0x61,
    0x63, 0x74, 0x69, 0x76, 0x61, 0x74, 0x69, 0x6f, 0x6e, 0x94, 0x8c, 0x16, 0x6e, 0x75, 0x6d, 0x70, 0x79, 0x2e, 0x5f, 0x63,
    0x6f, 0x72, 0x65, 0x2e, 0x6d, 0x75, 0x6c, 0x74, 0x69, 0x61, 0x72, 0x72, 0x61, 0x79, 0x94, 0x8c, 0x0c, 0x5f, 0x72, 0x65,
    0x63, 0x6f, 0x6e, 0x73, 0x74, 0x72, 0x75, 0x63, 0x74, 0x94, 0x93, 0x94, 0x8c, 0x05, 0x6e, 0x75, 0x6d, 0x70, 0x79, 0x94,
    0x8c, 0x07, 0x6e, 0x64, 0x61, 0x72, 0x72, 0x61, 0x79, 0x94, 0x93, 0x94, 0x4b, 0x00, 0x85, 0x94, 0x43, 0x01, 0x62, 0x94,
    0x87, 0x94, 0x52, 0x94, 0x28, 0x4b, 0x01, 0x4b, 0x02, 0x4b, 0x03, 0x86, 0x94, 0x68, 0x08, 0x8c, 0x05, 0x64, 0x74, 0x79,
    0x70, 0x65, 0x94, 0x93, 0x94, 0x8c, 0x02, 0x66, 0x34, 0x94, 0x89, 0x88, 0x87, 0x94, 0x52, 0x94, 0x28, 0x4b, 0x03, 0x8c,
    0x01, 0x3c, 0x94, 0x4e, 0x4e, 0x4e, 0x4a, 0xff, 0xff, 0xff, 0xff, 0x4a, 0xff, 0xff, 0xff, 0xff, 0x4b, 0x00, 0x74, 0x94,
    0x62, 0x89, 0x43, 0x18, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x80, 0x3f, 0x00, 0x00, 0x00, 0x40, 0x00, 0x00, 0x40, 0x40,
    0x00, 0x00, 0x80, 0x40, 0x00, 0x00, 0xa0, 0x40, 0x94, 0x74, 0x94, 0x62, 0x8c, 0x05, 0x73, 0x68, 0x61, 0x70, 0x65, 0x94,
    0x4b, 0x02, 0x4b, 0x03, 0x86, 0x94, 0x8c, 0x0c, 0x74, 0x65, 0x78, 0x74, 0x5f, 0x70, 0x72, 0x65, 0x76, 0x69, 0x65, 0x77,
    0x94, 0x8c, 0x08, 0x54, 0x61, 0x73, 0x6b, 0x3a, 0x20, 0xc3, 0xa4, 0x94, 0x75, 0x7d, 0x94, 0x28, 0x68, 0x03, 0x4a, 0x70,
    0x11, 0x01, 0x00, 0x68, 0x04, 0x68, 0x07, 0x68, 0x0a, 0x4b, 0x00, 0x85, 0x94, 0x68, 0x0c, 0x87, 0x94, 0x52, 0x94, 0x28,
    0x4b, 0x01, 0x4b, 0x02, 0x4b, 0x03, 0x86, 0x94, 0x68, 0x11, 0x8c, 0x02, 0x69, 0x32, 0x94, 0x89, 0x88, 0x87, 0x94, 0x52,
    0x94, 0x28, 0x4b, 0x03, 0x68, 0x15, 0x4e, 0x4e, 0x4e, 0x4a, 0xff, 0xff, 0xff, 0xff, 0x4a, 0xff, 0xff, 0xff, 0xff, 0x4b,
    0x00, 0x74, 0x94, 0x62, 0x88, 0x43, 0x0c, 0x01, 0x00, 0x04, 0x00, 0x02, 0x00, 0x05, 0x00, 0x03, 0x00, 0x06, 0x00, 0x94,
    0x74, 0x94, 0x62, 0x68, 0x19, 0x4b, 0x02, 0x4b, 0x03, 0x86, 0x94, 0x68, 0x1b, 0x8c, 0x00, 0x94, 0x75, 0x65, 0x8c, 0x08,
    0x6c, 0x61, 0x79, 0x65, 0x72, 0x5f, 0x31, 0x35, 0x94, 0x5d, 0x94, 0x7d, 0x94, 0x28, 0x68, 0x03, 0x4b, 0x00, 0x68, 0x04,
    0x68, 0x07, 0x68, 0x0a, 0x4b, 0x00, 0x85, 0x94, 0x68, 0x0c, 0x87, 0x94, 0x52, 0x94, 0x28, 0x4b, 0x01, 0x29, 0x68, 0x11,
    0x8c, 0x02, 0x66, 0x38, 0x94, 0x89, 0x88, 0x87, 0x94, 0x52, 0x94, 0x28, 0x4b, 0x03, 0x68, 0x15, 0x4e, 0x4e, 0x4e, 0x4a,
    0xff, 0xff, 0xff, 0xff, 0x4a, 0xff, 0xff, 0xff, 0xff, 0x4b, 0x00, 0x74, 0x94, 0x62, 0x89, 0x43, 0x08, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x94, 0x74, 0x94, 0x62, 0x68, 0x19, 0x29, 0x68, 0x1b, 0x8c, 0x01, 0x74, 0x94, 0x75, 0x61,
    0x75, 0x2e,
};
/* pickle.dumps(..., 5) of NumPy 2.4.6 */
static const unsigned char protocol_5[] = {
    0x80, 0x05, 0x95, 0xa6, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x7d, 0x94, 0x28, 0x4b, 0x0a, 0x5d, 0x94, 0x28, 0x7d,
    0x94, 0x28, 0x8c, 0x0a, 0x73, 0x61, 0x6d, 0x70, 0x6c, 0x65, 0x5f, 0x69, 0x64, 0x78, 0x94, 0x4b, 0x00, 0x8c, 0x0a, 0x61,
    0x63, 0x74, 0x69, 0x76, 0x61, 0x74, 0x69, 0x6f, 0x6e, 0x94, 0x8c, 0x13, 0x6e, 0x75, 0x6d, 0x70, 0x79, 0x2e, 0x5f, 0x63,
    0x6f, 0x72, 0x65, 0x2e, 0x6e, 0x75, 0x6d, 0x65, 0x72, 0x69, 0x63, 0x94, 0x8c, 0x0b, 0x5f, 0x66, 0x72, 0x6f, 0x6d, 0x62,
    0x75, 0x66, 0x66, 0x65, 0x72, 0x94, 0x93, 0x94, 0x28, 0x96, 0x18, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x80, 0x3f, 0x00, 0x00, 0x00, 0x40, 0x00, 0x00, 0x40, 0x40, 0x00, 0x00, 0x80, 0x40, 0x00, 0x00,
    0xa0, 0x40, 0x94, 0x8c, 0x05, 0x6e, 0x75, 0x6d, 0x70, 0x79, 0x94, 0x8c, 0x05, 0x64, 0x74, 0x79, 0x70, 0x65, 0x94, 0x93,
    0x94, 0x8c, 0x02, 0x66, 0x34, 0x94, 0x89, 0x88, 0x87, 0x94, 0x52, 0x94, 0x28, 0x4b, 0x03, 0x8c, 0x01, 0x3c, 0x94, 0x4e,
    0x4e, 0x4e, 0x4a, 0xff, 0xff, 0xff, 0xff, 0x4a, 0xff, 0xff, 0xff, 0xff, 0x4b, 0x00, 0x74, 0x94, 0x62, 0x4b, 0x02, 0x4b,
    0x03, 0x86, 0x94, 0x8c, 0x01, 0x43, 0x94, 0x74, 0x94, 0x52, 0x94, 0x8c, 0x05, 0x73, 0x68, 0x61, 0x70, 0x65, 0x94, 0x4b,
    0x02, 0x4b, 0x03, 0x86, 0x94, 0x8c, 0x0c, 0x74, 0x65, 0x78, 0x74, 0x5f, 0x70, 0x72, 0x65, 0x76, 0x69, 0x65, 0x77, 0x94,
    0x8c, 0x08, 0x54, 0x61, 0x73, 0x6b, 0x3a, 0x20, 0xc3, 0xa4, 0x94, 0x75, 0x7d, 0x94, 0x28, 0x68, 0x03, 0x4a, 0x70, 0x11,
    0x01, 0x00, 0x68, 0x04, 0x68, 0x07, 0x28, 0x96, 0x0c, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x00, 0x04, 0x00,
    0x02, 0x00, 0x05, 0x00, 0x03, 0x00, 0x06, 0x00, 0x94, 0x68, 0x0b, 0x8c, 0x02, 0x69, 0x32, 0x94, 0x89, 0x88, 0x87, 0x94,
    0x52, 0x94, 0x28, 0x4b, 0x03, 0x68, 0x0f, 0x4e, 0x4e, 0x4e, 0x4a, 0xff, 0xff, 0xff, 0xff, 0x4a, 0xff, 0xff, 0xff, 0xff,
    0x4b, 0x00, 0x74, 0x94, 0x62, 0x4b, 0x02, 0x4b, 0x03, 0x86, 0x94, 0x8c, 0x01, 0x46, 0x94, 0x74, 0x94, 0x52, 0x94, 0x68,
    0x15, 0x4b, 0x02, 0x4b, 0x03, 0x86, 0x94, 0x68, 0x17, 0x8c, 0x00, 0x94, 0x75, 0x65, 0x8c, 0x08, 0x6c, 0x61, 0x79, 0x65,
    0x72, 0x5f, 0x31, 0x35, 0x94, 0x5d, 0x94, 0x7d, 0x94, 0x28, 0x68, 0x03, 0x4b, 0x00, 0x68, 0x04, 0x68, 0x07, 0x28, 0x96,
    0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x94, 0x68, 0x0b, 0x8c,
    0x02, 0x66, 0x38, 0x94, 0x89, 0x88, 0x87, 0x94, 0x52, 0x94, 0x28, 0x4b, 0x03, 0x68, 0x0f, 0x4e, 0x4e, 0x4e, 0x4a, 0xff,
    0xff, 0xff, 0xff, 0x4a, 0xff, 0xff, 0xff, 0xff, 0x4b, 0x00, 0x74, 0x94, 0x62, 0x29, 0x68, 0x12, 0x74, 0x94, 0x52, 0x94,
    0x68, 0x15, 0x29, 0x68, 0x17, 0x8c, 0x01, 0x74, 0x94, 0x75, 0x61, 0x75, 0x2e,
};

static struct arena arena;
static struct pickle_shard shard;
static struct error error;

static int read_shard(const void *bytes, size_t n_bytes)
{
    error = (struct error){0};
    return pickle_shard_read(bytes, n_bytes, &arena, &shard, &error);
}

static int tear_down(void **state)
{
    (void)state;
    arena_fini(&arena);
    arena = (struct arena){0};
    return 0;
}

static void is_refused(const void *bytes, size_t n_bytes, const char *reason, const char *said)
{
    assert_int_equal(read_shard(bytes, n_bytes), -1);
    assert_string_equal(error.reason, reason);
    if (!strstr(error.message, said))
        fail_msg("\"%s\" is not in: %s", said, error.message);
}

#define REFUSED(text, reason, said) is_refused(text, sizeof(text) - 1, reason, said)

/* --- what NumPy writes ------------------------------------------------------------------------------------------------ */

static void check_shard(void)
{
    static const float floats[] = {0, 1, 2, 3, 4, 5};
    static const int16_t columns[] = {1, 4, 2, 5, 3, 6};
    assert_int_equal(shard.n, 3);
    const struct pickle_activation *list = shard.list;
    assert_int_equal(list[0].layer, 10);
    assert_int_equal(list[0].array->dtype, DTYPE_F32);
    assert_int_equal(list[0].array->rank, 2);
    assert_int_equal(list[0].array->shape[1], 3);
    assert_memory_equal(list[0].array->bytes, floats, sizeof floats);
    assert_int_equal(list[0].preview_bytes, 8);
    assert_memory_equal(list[0].preview, "Task: \xc3\xa4", 8);
    assert_int_equal(list[1].sample, 70000);
    assert_true(list[1].array->is_fortran);
    assert_memory_equal(list[1].array->bytes, columns, sizeof columns);
    assert_int_equal(list[2].layer, 15);
    assert_int_equal(list[2].array->rank, 0);
    assert_int_equal(list[2].array->n_bytes, 8);
}

static void what_numpy_writes_in_both_protocols_is_read(void **state)
{
    (void)state;
    assert_int_equal(read_shard(protocol_4, sizeof protocol_4), 0);
    check_shard();
    assert_int_equal(read_shard(protocol_5, sizeof protocol_5), 0);
    check_shard();
}

static void a_shard_that_is_cut_anywhere_is_refused(void **state)
{
    (void)state;
    for (size_t n = 0; n < sizeof protocol_4; n++) {
        unsigned char *cut = malloc(n ? n : 1); /* so that a sanitizer sees a byte too many */
        memcpy(cut, protocol_4, n);
        assert_int_equal(read_shard(cut, n), -1);
        assert_int_equal(error.code, ERROR_DATA_LOSS);
        free(cut);
    }
}

static void no_changed_byte_harms(void **state)
{
    (void)state;
    unsigned char changed[sizeof protocol_5];
    for (size_t i = 0; i < sizeof changed; i++)
        for (unsigned value = 0; value < 256; value++) {
            memcpy(changed, protocol_5, sizeof changed);
            changed[i] = (unsigned char)value;
            if (read_shard(changed, sizeof changed) != 0)
                assert_true(error.reason[0] && error.message[0]);
            tear_down(state);
        }
}

/* --- what is written -------------------------------------------------------------------------------------------------- */

struct buffer {
    unsigned char bytes[4096];
    size_t n;
};

static int keep(void *data, const void *bytes, size_t n_bytes, struct error *failure)
{
    struct buffer *buffer = data;
    (void)failure;
    assert_true(n_bytes <= sizeof buffer->bytes - buffer->n);
    memcpy(buffer->bytes + buffer->n, bytes, n_bytes);
    buffer->n += n_bytes;
    return 0;
}

static void what_is_written_is_read_back(void **state)
{
    (void)state;
    static const enum dtype dtypes[] = {DTYPE_BOOL, DTYPE_U8,  DTYPE_I16, DTYPE_F16, DTYPE_F32,
                                        DTYPE_U32,  DTYPE_I64, DTYPE_F64, DTYPE_C64};
    static const uint64_t shape[] = {2, 3};
    static const unsigned char data[48] = "any bytes are numbers of some type or of many";
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        struct buffer buffer = {.n = 0};
        const struct pickle_sink sink = {keep, &buffer};
        struct pickle_array array = {.bytes = data, .shape = shape, .rank = 2, .dtype = dtypes[i], .is_fortran = i % 2};
        array.n_bytes = 6 * dtype_bits(dtypes[i]) / 8;
        const struct pickle_activation activation = {
            .layer = 3, .sample = 99999999, .array = &array, .preview = (const unsigned char *)"text", .preview_bytes = 4};
        assert_int_equal(pickle_writer_begin(&sink, &error), 0);
        assert_int_equal(pickle_writer_layer_begin(&sink, 3, &error), 0);
        assert_int_equal(pickle_writer_entry(&sink, &activation, &error), 0);
        assert_int_equal(pickle_writer_entry(&sink, &activation, &error), 0);
        assert_int_equal(pickle_writer_layer_end(&sink, &error), 0);
        assert_int_equal(pickle_writer_end(&sink, &error), 0);
        assert_int_equal(read_shard(buffer.bytes, buffer.n), 0);
        assert_int_equal(shard.n, 2);
        assert_int_equal(shard.list[1].sample, 99999999);
        assert_int_equal(shard.list[1].array->dtype, dtypes[i]);
        assert_int_equal(shard.list[1].array->is_fortran, i % 2);
        assert_int_equal(shard.list[1].array->n_bytes, array.n_bytes);
        assert_memory_equal(shard.list[1].array->bytes, data, array.n_bytes);
        assert_memory_equal(shard.list[1].preview, "text", 4);
    }
}

static void a_type_that_numpy_does_not_have_is_refused_when_it_is_written(void **state)
{
    (void)state;
    struct buffer buffer = {.n = 0};
    const struct pickle_sink sink = {keep, &buffer};
    const struct pickle_array array = {.dtype = DTYPE_BF16};
    const struct pickle_activation activation = {.array = &array};
    assert_int_equal(pickle_writer_entry(&sink, &activation, &error), -1);
    assert_string_equal(error.reason, "DTYPE_NOT_IN_NUMPY");
}

/* --- what is refused -------------------------------------------------------------------------------------------------- */

static void functions_are_refused_by_name(void **state)
{
    (void)state;
    REFUSED("\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x04true\x85R.", "PICKLE_REFUSED", "posix.system");
    REFUSED("\x80\x04\x8c\x05numpy\x8c\x04load\x93.", "PICKLE_REFUSED", "numpy.load");
    REFUSED("\x80\x04"
            "cos\nsystem\n.",
            "PICKLE_REFUSED", "0x63");
    REFUSED("\x80\x04K\1K\1\x93.", "PICKLE_REFUSED", "?.?");
}

static void other_protocols_and_formats_are_refused(void **state)
{
    (void)state;
    REFUSED("\x80\x02}.", "PICKLE_REFUSED", "protocol");
    REFUSED("}.", "PICKLE_REFUSED", "protocol");
    REFUSED("\x80\x04\x80\x04}.", "PICKLE_REFUSED", "protocol");
    REFUSED("", "PICKLE_DAMAGED", "ends too early");
    REFUSED("\x80\x04}.}.", "PICKLE_DAMAGED", "behind its end");
    REFUSED("\x80\x04}}.", "PICKLE_DAMAGED", "not one value");
    REFUSED("\x80\x04(}.", "PICKLE_DAMAGED", "not one value");
    REFUSED("\x80\x04].", "NOT_A_SHARD", "dictionary of layers");
}

static void stacks_marks_and_memos_that_are_not_there_are_refused(void **state)
{
    (void)state;
    REFUSED("\x80\x04"
            "a.",
            "PICKLE_DAMAGED", "not there");
    REFUSED("\x80\x04"
            "e.",
            "PICKLE_DAMAGED", "mark");
    REFUSED("\x80\x04](\x85.", "PICKLE_DAMAGED", "not there");
    REFUSED("\x80\x04}(K\1u.", "PICKLE_DAMAGED", "no value");
    REFUSED("\x80\x04h\0.", "PICKLE_DAMAGED", "remembers");
    REFUSED("\x80\x04(\x94.", "PICKLE_DAMAGED", "keeps");
    REFUSED("\x80\x04Nb.", "PICKLE_DAMAGED", "not there");
    REFUSED("\x80\x04NNb.", "PICKLE_REFUSED", "value");
    REFUSED("\x80\x04NNR.", "PICKLE_REFUSED", "value");
    REFUSED("\x80\x04\x95\xff\0\0\0\0\0\0\0}.", "PICKLE_DAMAGED", "ends too early");
    REFUSED("\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\xffx.", "PICKLE_DAMAGED", "ends too early");
    REFUSED("\x80\x04\x8a\x09"
            "123456789.",
            "PICKLE_REFUSED", "64 bits");
}

static void a_pickle_has_at_most_16_million_values(void **state)
{
    (void)state;
    size_t n = 3 + (size_t)PICKLE_MAX_VALUES + 1;
    unsigned char *memoized = malloc(n + 1);
    memcpy(memoized, "\x80\x04}", 3);
    memset(memoized + 3, 0x94, PICKLE_MAX_VALUES + 1); /* the memo has a place for each */
    memoized[n - 1] = '.';
    assert_int_equal(read_shard(memoized, n), 0);
    memoized[n - 1] = 0x94;
    memoized[n] = '.';
    is_refused(memoized, n + 1, "PICKLE_TOO_LARGE", "more than 16777216 values");
    free(memoized);
}

static void nesting_costs_no_stack(void **state)
{
    (void)state;
    enum { DEPTH = 500000 };
    unsigned char *deep = malloc(2 * DEPTH + 2);
    memcpy(deep, "\x80\x04", 2);
    memset(deep + 2, ']', DEPTH);
    memset(deep + 2 + DEPTH, 'a', DEPTH - 1);
    deep[2 * DEPTH + 1] = '.';
    is_refused(deep, 2 * DEPTH + 2, "NOT_A_SHARD", "dictionary");
    free(deep);
}

static void a_list_in_itself_is_an_entry_that_is_none(void **state)
{
    (void)state;
    REFUSED("\x80\x04}K\1]\x94h\0as.", "NOT_A_SHARD", "layer 1: entry 0: it is no dictionary");
}

static void entries_that_are_none_are_told_by_layer_and_number(void **state)
{
    (void)state;
    REFUSED("\x80\x04}K\1K\1s.", "NOT_A_SHARD", "layer 1: it is no list");
    REFUSED("\x80\x04}\x8c\x05layer]s.", "NOT_A_SHARD", "no layer");
    REFUSED("\x80\x04}\x8c\x08layer_1x]s.", "NOT_A_SHARD", "no layer");
    REFUSED("\x80\x04}J\xff\xff\xff\xff]s.", "NOT_A_SHARD", "no layer");
    REFUSED("\x80\x04}J\1\0\0\x40]s.", "NOT_A_SHARD", "no layer"); /* 2^30 + 1 */
    assert_int_equal(read_shard("\x80\x04}J\0\0\0\x40]s.", 11), 0);
    REFUSED("\x80\x04}K\1]}as.", "NOT_A_SHARD", "layer 1: entry 0: its sample_idx");
    REFUSED("\x80\x04}K\1]}\x8c\x0asample_idxK\1sas.", "NOT_A_SHARD", "its activation");
    REFUSED("\x80\x04}K\1]}\x8c\x0asample_idxJ\0\xe1\xf5\x05sas.", "NOT_A_SHARD", "its sample_idx");
    REFUSED("\x80\x04}K\1]}\x8c\x05labelK\1sas.", "NOT_A_SHARD", "its key label");
}

static void arrays_whose_bytes_are_not_those_of_their_shape_are_refused(void **state)
{
    (void)state;
    unsigned char lying[sizeof protocol_4];
    memcpy(lying, protocol_4, sizeof lying);
    unsigned char *shape = memmem(lying, sizeof lying, "K\2K\3\x86", 5);
    assert_non_null(shape);
    shape[3] = 4;
    is_refused(lying, sizeof lying, "PICKLE_DAMAGED", "24 bytes");
}

/* _frombuffer(b'', dtype('f4'), (0, 0, ...), 'C') */
static size_t array_of_rank(unsigned rank, unsigned char *out)
{
    static const char head[] = "\x80\x04}K\1]}\x8c\x0asample_idxK\1s\x8c\x0a"
                               "activation\x8c\x12numpy.core.numeric\x8c\x0b_frombuffer\x93("
                               "C\0\x8c\5numpy\x8c\5dtype\x93\x8c\2f4\x89\x88\x87R(";
    size_t n = sizeof head - 1;
    memcpy(out, head, n);
    for (unsigned d = 0; d < rank; d++, n += 2)
        memcpy(out + n, "K\0", 2);
    memcpy(out + n, "t\x8c\1CtRsas.", 10);
    return n + 10;
}

static void arrays_have_at_most_64_dimensions(void **state)
{
    (void)state;
    unsigned char pickle[512];
    assert_int_equal(read_shard(pickle, array_of_rank(64, pickle)), 0);
    assert_int_equal(shard.list[0].array->rank, 64);
    is_refused(pickle, array_of_rank(65, pickle), "PICKLE_REFUSED", "shape");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(arrays_have_at_most_64_dimensions, tear_down),
        cmocka_unit_test_teardown(what_numpy_writes_in_both_protocols_is_read, tear_down),
        cmocka_unit_test_teardown(a_shard_that_is_cut_anywhere_is_refused, tear_down),
        cmocka_unit_test_teardown(no_changed_byte_harms, tear_down),
        cmocka_unit_test_teardown(what_is_written_is_read_back, tear_down),
        cmocka_unit_test_teardown(a_type_that_numpy_does_not_have_is_refused_when_it_is_written, tear_down),
        cmocka_unit_test_teardown(functions_are_refused_by_name, tear_down),
        cmocka_unit_test_teardown(other_protocols_and_formats_are_refused, tear_down),
        cmocka_unit_test_teardown(stacks_marks_and_memos_that_are_not_there_are_refused, tear_down),
        cmocka_unit_test_teardown(a_pickle_has_at_most_16_million_values, tear_down),
        cmocka_unit_test_teardown(nesting_costs_no_stack, tear_down),
        cmocka_unit_test_teardown(a_list_in_itself_is_an_entry_that_is_none, tear_down),
        cmocka_unit_test_teardown(entries_that_are_none_are_told_by_layer_and_number, tear_down),
        cmocka_unit_test_teardown(arrays_whose_bytes_are_not_those_of_their_shape_are_refused, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
