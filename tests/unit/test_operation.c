/* Operations do step by step, in pieces and from any element on, what a walk over the elements does. */
#include "tests/support/unit.h"

#include "resolve/operation.h"

TEST(bytes_of_the_replica_are_counted_in_elements)
{
    const struct operation widens = {.from_bytes = 1, .to_bytes = 4}, narrows = {.from_bytes = 8, .to_bytes = 2};
    assert_int_equal(operation_dst_bytes(&widens, 3), 12);
    assert_int_equal(operation_dst_bytes(&narrows, 24), 6);
}

enum { ROWS = 37, COLUMNS = 23, FIRST_ROW = 5, FIRST_COLUMN = 9, ORIGIN = 13, BLOCK_ROWS = 4, BLOCK_COLUMNS = 8 };

/* Any number of elements, from any of them on, against one at a time. */
static void check(const struct operation *operation)
{
    unsigned char file[ORIGIN + ROWS * COLUMNS * 8], one[ROWS * COLUMNS * 8], all[sizeof one];
    for (size_t i = 0; i < sizeof file; i++)
        file[i] = (unsigned char)(i * 2654435761u >> 13);
    for (size_t first = 0; first < ROWS * COLUMNS; first += 31) {
        size_t n = (first * 7 + 1) % (ROWS * COLUMNS - first) + 1;
        const unsigned char *src = file + ORIGIN + first * operation->from_bytes;
        for (size_t i = 0; i < n; i++)
            operation_apply(operation, one + i * operation->to_bytes, src + i * operation->from_bytes,
                            ORIGIN + (first + i) * operation->from_bytes, 1);
        operation_apply(operation, all, src, ORIGIN + first * operation->from_bytes, n);
        assert_memory_equal(one, all, n * operation->to_bytes);
    }
}

TEST(a_chain_of_casts_is_applied_in_its_order)
{
    const struct operation rounds = {.from = DTYPE_F32,
                                     .to = DTYPE_F32,
                                     .from_bytes = 4,
                                     .to_bytes = 4,
                                     .n_steps = 3,
                                     .steps = {{.to = DTYPE_F16}, {.to = DTYPE_F64}, {.to = DTYPE_F32}}};
    const float values[] = {1, 65504, 65520, -0.1F};
    float rounded[4];
    operation_apply(&rounds, rounded, values, 0, 4);
    assert_true(rounded[0] == 1 && rounded[1] == 65504 && rounded[2] > 3e38F && rounded[3] == -0.0999755859375F);
    check(&rounds);
}

TEST(a_scale_is_found_by_where_the_element_is_stored)
{
    float scales[(FIRST_ROW + ROWS) / BLOCK_ROWS + 1][(FIRST_COLUMN + COLUMNS) / BLOCK_COLUMNS + 1], value;
    struct scale_grid grid = {.origin = ORIGIN,
                              .n_columns = COLUMNS,
                              .first_row = FIRST_ROW,
                              .first_column = FIRST_COLUMN,
                              .block_rows = BLOCK_ROWS,
                              .block_columns = BLOCK_COLUMNS,
                              .grid_columns = sizeof scales[0] / sizeof scales[0][0],
                              .values = scales[0]};
    struct operation operation = {.from = DTYPE_F8_E4M3,
                                  .to = DTYPE_F32,
                                  .from_bytes = 1,
                                  .to_bytes = 4,
                                  .n_steps = 1,
                                  .steps = {{.to = DTYPE_F32, .grid = &grid}}};
    const unsigned char half = 0x30;
    for (size_t i = 0; i < sizeof scales / sizeof scales[0][0]; i++)
        scales[i / grid.grid_columns][i % grid.grid_columns] = (float)(i + 1);
    for (uint64_t row = 0; row < ROWS; row++)
        for (uint64_t column = 0; column < COLUMNS; column++) {
            operation_apply(&operation, &value, &half, ORIGIN + row * COLUMNS + column, 1);
            assert_true(value == scales[(FIRST_ROW + row) / BLOCK_ROWS][(FIRST_COLUMN + column) / BLOCK_COLUMNS] / 2);
        }
    check(&operation);
    operation.steps[operation.n_steps++] = (struct operation_step){.to = operation.to = DTYPE_BF16};
    operation.to_bytes = 2;
    check(&operation);
}
