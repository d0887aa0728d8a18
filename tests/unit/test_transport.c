/* The loopback transport between ranks in host memory; test_collective_nccl.c has the same on GPUs. */
#include "tests/support/unit.h"

#include "tests/support/row_moves.h"
#include "device/transport.h"

TEST(rows_go_where_both_strides_say_and_nowhere_else)
{
    struct device *device = device_host_create(0), *devices[] = {device, device};
    const struct transport_options options = {.world_size = 2, .devices = devices};
    unsigned char *model = calloc(1, ROW_MOVES_BYTES);
    struct transport *transport;
    struct segment *segment;
    struct row_moves moves;
    struct row_move move;
    struct error error;
    row_moves_init(&moves);
    assert_int_equal(transport_open(&transport_loopback, &options, &transport, &error), 0);
    assert_int_equal(device_allocate(device, ROW_MOVES_BYTES, &segment, &error), 0);
    assert_int_equal(device_prepare(segment, 0, ROW_MOVES_BYTES, &error), 0);
    while (row_moves_next(&moves, &move)) {
        const struct transport_delivery delivery = {
            .rank = 1, .segment = segment, .offset = move.offset, .src = moves.source + move.src_offset, .rows = move.rows};
        assert_int_equal(transport_deliver(transport, &delivery, &error), 0);
        row_move_by_bytes(&moves, &move, model);
    }
    assert_memory_equal(segment->host_address, model, ROW_MOVES_BYTES);
    const struct transport_delivery outside = {
        .segment = segment, .src = model, .rows = {2, 2, 2, segment->allocated_bytes}};
    assert_int_equal(transport_deliver(transport, &outside, &error), -1);
    assert_string_equal(error.reason, "SEGMENT_BOUNDS");
    transport_close(transport);
    row_moves_fini(&moves);
    free(model);
    segment_unref(segment);
    device_destroy(device);
}
