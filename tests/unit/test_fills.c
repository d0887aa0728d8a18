/* Constants of targets: in memory with an address, and by copies into memory without one; nothing else is written. */
#include "tests/support/unit.h"

#include "execute/destination.h"

#undef fail /* ours is in base/error.h */

enum { BYTES = 3 << 20 };

static struct error error;

/* Memory that is only written through: what a device without an address is to the engine. */
struct written {
    struct destination base; /* first */
    unsigned char *bytes;
    size_t n_writes, fails_at;
};

static int write_through(struct destination *destination, uint64_t offset, const void *src, const struct device_rows *rows,
                         struct error *failure)
{
    struct written *written = (struct written *)destination;
    if (++written->n_writes == written->fails_at)
        return fail(failure, ERROR_INTERNAL, "TOLD_TO", "told to fail");
    device_rows_copy(written->bytes + offset, src, rows);
    return 0;
}

static const struct mapping_fill fills[] = {
    {.dst_offset = 0, .row_bytes = 8, .n_rows = 1, .dst_stride = 8, .value_bytes = 1, .value = {0}},
    {.dst_offset = 16, .row_bytes = 6, .n_rows = 3, .dst_stride = 10, .value_bytes = 2, .value = {1, 2}},
    {.dst_offset = 101, .row_bytes = 16, .n_rows = 1, .dst_stride = 16, .value_bytes = 8, .value = {1, 2, 3, 4, 5, 6, 7, 8}},
    {.dst_offset = 4096,
     .row_bytes = 600 << 10,
     .n_rows = 2,
     .dst_stride = 1 << 20,
     .value_bytes = 4,
     .value = {9, 8, 7, 6}},
    {.dst_offset = BYTES - 1, .row_bytes = 1, .n_rows = 1, .dst_stride = 1, .value_bytes = 1, .value = {255}},
};
static const struct mapping mapping = {
    .has_targets = true, .fills = (struct mapping_fill *)(uintptr_t)fills, .n_fills = sizeof fills / sizeof *fills};

/* Element by element; returns how many bytes that were. */
static uint64_t fill_slowly(unsigned char *to)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < mapping.n_fills; i++)
        for (uint64_t row = 0; row < fills[i].n_rows; row++)
            for (uint64_t at = 0; at < fills[i].row_bytes; at++, bytes++)
                to[fills[i].dst_offset + row * fills[i].dst_stride + at] = fills[i].value[at % fills[i].value_bytes];
    return bytes;
}

TEST(rows_of_values_are_written_and_nothing_between_them)
{
    struct device *device = device_host_create(0);
    struct segment *segment;
    unsigned char *expected = malloc(BYTES);
    assert_int_equal(device_allocate(device, BYTES, &segment, &error), 0);
    struct destination destination = destination_of_segment(segment);
    destination_begin(&destination, BYTES);
    memset(expected, 0xEE, BYTES);
    memset(segment->host_address, 0xEE, BYTES);
    uint64_t bytes = fill_slowly(expected);
    assert_int_equal(destination.ops->finish(&destination, &mapping, &error), 0);
    assert_int_equal(destination.filled_bytes, bytes);
    assert_memory_equal(segment->host_address, expected, BYTES);
    destination_fini(&destination);
    segment_unref(segment);
    device_destroy(device);
    free(expected);
}

TEST(memory_without_an_address_gets_the_same_by_copies)
{
    static const struct destination_ops ops = {.name = "written", .write = write_through};
    struct device *device = device_host_create(0); /* whose copies are done when they return */
    struct written written = {.base = {.ops = &ops, .device = device}, .bytes = malloc(BYTES)};
    unsigned char *expected = malloc(BYTES);
    memset(expected, 0xEE, BYTES);
    memset(written.bytes, 0xEE, BYTES);
    uint64_t bytes = fill_slowly(expected);
    assert_int_equal(destination_write_fills(&written.base, &mapping, &error), 0);
    assert_int_equal(written.base.filled_bytes, bytes);
    assert_memory_equal(written.bytes, expected, BYTES);
    size_t n_writes = written.n_writes;
    for (written.fails_at = 1; written.fails_at <= n_writes; written.fails_at++) {
        written.n_writes = 0;
        assert_int_equal(destination_write_fills(&written.base, &mapping, &error), -1);
        assert_string_equal(error.reason, "TOLD_TO");
        assert_int_equal(written.base.filled_bytes, 0);
    }
    device_destroy(device);
    free(written.bytes);
    free(expected);
}
