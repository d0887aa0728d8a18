/* Elements of every size land where a walk over them puts them, whatever the strides, and nothing else is written. */
#include "tests/support/unit.h"

#include "base/transpose.h"

enum { BYTES = 1 << 19 };

static unsigned char source[BYTES], turned[BYTES], expected[BYTES];

static void move_by_elements(const struct transpose *shape, uint64_t element_bytes, unsigned char *dst,
                             const unsigned char *src)
{
    for (uint64_t row = 0; row < shape->n_rows; row++)
        for (uint64_t column = 0; column < shape->n_columns; column++)
            memcpy(dst + (int64_t)row * shape->dst_row_stride + (int64_t)column * shape->dst_column_stride,
                   src + row * shape->src_row_stride + column * shape->src_column_stride, element_bytes);
}

static void check(uint64_t n_rows, uint64_t n_columns, uint64_t bytes, uint64_t src_gap, uint64_t dst_gap,
                  bool is_upside_down)
{
    struct transpose shape = {.n_rows = n_rows,
                              .n_columns = n_columns,
                              .src_row_stride = n_columns * (bytes + src_gap) + src_gap,
                              .src_column_stride = bytes + src_gap,
                              .dst_row_stride = (int64_t)(bytes + dst_gap),
                              .dst_column_stride = (int64_t)(n_rows * (bytes + dst_gap) + dst_gap)};
    uint64_t first = 3;
    memset(turned, 0xA5, BYTES);
    memset(expected, 0xA5, BYTES);
    if (is_upside_down) {
        first += (n_rows - 1) * (uint64_t)shape.dst_row_stride + (n_columns - 1) * (uint64_t)shape.dst_column_stride;
        shape.dst_row_stride *= -1;
        shape.dst_column_stride *= -1;
    }
    transpose_copy(&shape, bytes, turned + first, source + 1);
    move_by_elements(&shape, bytes, expected + first, source + 1);
    assert_memory_equal(turned, expected, BYTES);
}

TEST(elements_of_every_size_are_turned)
{
    static const uint64_t sides[] = {1, 2, 7, 8, 9, 63, 64, 65, 130};
    const size_t n = sizeof sides / sizeof *sides;
    for (size_t i = 0; i < BYTES; i++)
        source[i] = (unsigned char)(i * 2654435761u >> 11);
    for (uint64_t bytes = 1; bytes <= 8; bytes *= 2)
        for (size_t i = 0; i < n * n; i++) {
            check(sides[i / n], sides[i % n], bytes, 0, 0, false);
            check(sides[i / n], sides[i % n], bytes, i % 3, i % 2, i % 5 == 0);
            check(sides[i / n], sides[i % n], bytes, 0, 0, true);
        }
}

TEST(other_sizes_are_not_taken)
{
    for (uint64_t bytes = 0; bytes < 20; bytes++)
        assert_int_equal(transpose_takes(bytes), bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8);
}
