/* The reference of each operation moves what an element-by-element walk moves. */
#include "tests/support/unit.h"

#include "resolve/transfer.h"
#include "tests/support/row_moves.h"
#include "tests/support/transfer_apply.h"

TEST(a_copy_goes_where_both_strides_say_and_nowhere_else)
{
    unsigned char *replica = calloc(1, ROW_MOVES_BYTES), *model = calloc(1, ROW_MOVES_BYTES);
    struct row_moves moves;
    struct row_move move;
    row_moves_init(&moves);
    while (row_moves_next(&moves, &move)) {
        const struct transfer transfer = {.src_offset = move.src_offset,
                                          .dst_offset = move.offset,
                                          .row_bytes = move.rows.bytes,
                                          .n_rows = move.rows.count,
                                          .src_stride = move.rows.src_stride,
                                          .dst_stride = move.rows.dst_stride};
        uint64_t extent;
        transfer_apply(&transfer, NULL, moves.source, replica);
        row_move_by_bytes(&moves, &move, model);
        assert_true(device_rows_extent(&move.rows, &extent));
        assert_int_equal(transfer_dst_end(&transfer, transfer.row_bytes), move.offset + extent);
        assert_int_equal(transfer_bytes(&transfer), move.rows.bytes * move.rows.count);
    }
    assert_memory_equal(replica, model, ROW_MOVES_BYTES);
    row_moves_fini(&moves);
    free(replica);
    free(model);
}
