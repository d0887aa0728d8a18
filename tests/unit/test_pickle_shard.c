/* Pickles of arrays are read, everything else is refused by name and nothing of it is executed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "activations/pickle_shard.h"

#include <cmocka.h>
#undef fail /* ours is in base/error.h */

#define BYTES(literal) (const unsigned char *)(literal), sizeof(literal) - 1
/* {10: [{"sample_idx": 7, "activation": array of two I16, "shape": (2,), "text_preview": "a"}]} */
#define ARRAY                                                                                                               \
    "\x8c\x16numpy._core.multiarray\x8c\x0c_reconstruct\x93\x8c\x05numpy\x8c\x07ndarray\x93K\0\x85"                         \
    "C\x01"                                                                                                                 \
    "b\x87R(K\x01K\x02\x85\x8c\x05numpy\x8c\x05"                                                                            \
    "dtype\x93\x8c\x02i2\x89\x88\x87R(K\x03\x8c\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb\x89"                         \
    "C\x04\x01\0\x02\0tb"
#define ENTRY                                                                                                               \
    "}(\x8c\x0asample_idxK\x07\x8c\x0a"                                                                                     \
    "activation" ARRAY "\x8c\x05shapeK\x02\x85\x8c\x0ctext_preview\x8c\x01"                                                 \
    "au"
#define SHARD "\x80\x04}K\x0a]" ENTRY "as."

static struct error error;
static int n_taken;

static int take(void *data, const struct pickle_entry *entry, struct error *failure)
{
    (void)data;
    (void)failure;
    n_taken++;
    assert_int_equal(entry->sample, 7);
    assert_int_equal(entry->layer, 10);
    assert_int_equal(entry->dtype, DTYPE_I16);
    assert_int_equal(entry->rank, 1);
    assert_int_equal(entry->shape[0], 2);
    assert_memory_equal(entry->bytes, "\1\0\2\0", 4);
    assert_int_equal(entry->text_bytes, 1);
    return 0;
}

static int read_pickle(const unsigned char *bytes, size_t count)
{
    n_taken = 0;
    error = (struct error){0};
    return pickle_shard_read(bytes, count, take, NULL, &error);
}

static void a_shard_of_arrays_is_read(void **state)
{
    (void)state;
    assert_int_equal(read_pickle(BYTES(SHARD)), 0);
    assert_int_equal(n_taken, 1);
    assert_int_equal(read_pickle(BYTES("\x80\x05}.")), 0);
    assert_int_equal(n_taken, 0);
}

static void a_shard_that_is_cut_anywhere_or_goes_on_is_refused(void **state)
{
    static const unsigned char whole[] = SHARD;
    (void)state;
    for (size_t count = 0; count < sizeof whole - 1; count++)
        assert_int_equal(read_pickle(whole, count), -1);
    assert_int_equal(read_pickle(BYTES(SHARD ".")), -1);
}

static void what_is_no_shard_of_arrays_is_refused(void **state)
{
    static const struct {
        const char *bytes;
        size_t count;
        const char *reason;
    } wrong[] = {
#define ROW(literal, reason) {literal, sizeof(literal) - 1, reason}
        ROW("\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x01x\x85R.", "FORBIDDEN_GLOBAL"),
        ROW("\x80\x04"
            "cposix\nsystem\n.",
            "FORBIDDEN_OPCODE"),
        ROW("\x80\x02}.", "BAD_PROTOCOL"),
        ROW("(lp0\n.", "BAD_PROTOCOL"),
        ROW("\x80\x04].", "BAD_PICKLE"),
        ROW("\x80\x04}K\x0aK\x01s.", "BAD_PICKLE"),
        ROW("\x80\x04}K\x0a]}(\x8c\x0asample_idxK\x07uas.", "BAD_PICKLE"),
        ROW("\x80\x04h\x07.", "BAD_PICKLE"),
        ROW("\x80\x04(((.", "BAD_PICKLE"),
        ROW("\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7fx.", "BAD_PICKLE"),
        ROW("\x80\x04\x8c\x05numpy\x8c\x05"
            "dtype\x93\x8c\x02O8\x89\x88\x87R.",
            "BAD_DTYPE"),
        ROW("\x80\x04\x8c\x05numpy\x8c\x05"
            "dtype\x93\x8c\x02"
            "f4\x89\x88\x87R(K\x03\x8c\x01?tb.",
            "BAD_BYTE_ORDER"),
        ROW("\x80\x04\x8c\x05numpy\x8c\x05"
            "dtype\x93\x8c\x02"
            "f4\x89\x88\x87R(K\x03K>tb.",
            "BAD_BYTE_ORDER"),
        ROW("\x80\x04\x8c\x05numpy\x8c\x07ndarray\x93)R.", "BAD_PICKLE"),
    };
    unsigned char fields[4096] = "\x80\x04}K\x0a]}(", *at = fields + 8;
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(read_pickle((const unsigned char *)wrong[i].bytes, wrong[i].count), -1);
        assert_string_equal(error.reason, wrong[i].reason);
    }
    for (int i = 0; i < 65; i++, at += 4)
        memcpy(at, (unsigned char[]){'K', (unsigned char)i, 'K', 0}, 4);
    memcpy(at, "uas.", 4);
    assert_int_equal(read_pickle(fields, (size_t)(at - fields) + 4), -1);
    assert_non_null(strstr(error.message, "no small dictionary"));
}

/* {10: [{"sample_idx": 7, "activation": NumPy 2.4's of six I8, with those dimensions in front and in that order}]} */
#define TRANSPOSED(shape, order)                                                                                            \
    "\x80\x05}K\x0a]}(\x8c\x0asample_idxK\x07\x8c\x0a"                                                                      \
    "activation\x8c\x13numpy._core.numeric\x8c\x0b_frombuffer\x93("                                                         \
    "C\x06"                                                                                                                 \
    "abcdef\x8c\x05numpy\x8c\x05"                                                                                           \
    "dtype\x93\x8c\x02i1\x89\x88\x87R" shape "\x8c\x01K" order "tRuas."

static int take_transposed(void *data, const struct pickle_entry *entry, struct error *failure)
{
    static const uint64_t shape[] = {1, 3, 2};
    static const uint8_t axes[] = {2, 0, 1};
    (void)data;
    (void)failure;
    assert_int_equal(entry->rank, 3);
    assert_memory_equal(entry->shape, shape, sizeof shape);
    assert_memory_equal(entry->axes, axes, sizeof axes);
    return 0;
}

static void an_array_tells_in_which_order_its_dimensions_lie(void **state)
{
    static const unsigned char good[] = TRANSPOSED("K\2K\1K\3\x87", "K\1K\2K\0\x87");
    static const char *const wrong[] = {
        TRANSPOSED("K\2K\1K\3\x87", "K\1K\2K\1\x87"), /* one of them twice */
        TRANSPOSED("K\2K\1K\3\x87", "K\1K\2K\3\x87"),
        TRANSPOSED("K\2K\1K\3\x87", "K\1K\2J\xff\xff\xff\xff\x87"),
        TRANSPOSED("K\2K\1K\3\x87", "K\1K\2N\x87"),
    };
    (void)state;
    assert_int_equal(pickle_shard_read(good, sizeof good - 1, take_transposed, NULL, &error), 0);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        size_t count = sizeof good - 1 + (i == 2 ? 3 : i == 3 ? -1 : 0);
        assert_int_equal(read_pickle((const unsigned char *)wrong[i], count), -1);
        assert_non_null(strstr(error.message, "an order that is none"));
    }
    assert_int_equal(read_pickle(BYTES(TRANSPOSED("K\2K\3\x86", "K\0\x85"))), -1);
    assert_int_equal(read_pickle(BYTES(TRANSPOSED("K\2K\3\x86", "N"))), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_shard_of_arrays_is_read),
        cmocka_unit_test(a_shard_that_is_cut_anywhere_or_goes_on_is_refused),
        cmocka_unit_test(what_is_no_shard_of_arrays_is_refused),
        cmocka_unit_test(an_array_tells_in_which_order_its_dimensions_lie),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
