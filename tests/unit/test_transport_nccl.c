/* The transport over NCCL by itself: opening, closing, deliveries, and what goes wrong on the way. The real plugin on the fakes of
 * tests/fake; loads of groups over it are in test_collective_nccl.c. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "device/transport.h"
#include "tests/support/nccl_stage.h"
#include "tests/support/row_moves.h"

#include <cmocka.h> /* last: it makes a macro of fail */

static int use_nccl(void **state)
{
    nccl_stage_open();
    *state = (void *)(uintptr_t)nccl_stage.plugins.transport;
    return 0;
}

static int use_loopback(void **state)
{
    nccl_stage_open();
    *state = (void *)(uintptr_t)&transport_loopback;
    return 0;
}

/* --- errors: at open and close ---------------------------------------------------------------------------------------- */

static int open_on(struct transport **transport, struct device *first, struct device *second, uint64_t deadline_ms,
                   struct error *error)
{
    struct device *devices[] = {first, second};
    const struct transport_options options = {2, devices, deadline_ms * NS_PER_MS, TRANSPORT_STAGING_UNIT};
    return transport_open(nccl_stage.plugins.transport, &options, transport, error);
}

static int open_two(struct transport **transport, uint64_t deadline_ms, struct error *error)
{
    return open_on(transport, nccl_stage.plugins.devices[0], nccl_stage.plugins.devices[1], deadline_ms, error);
}

static void assert_not_opened(uint64_t deadline_ms, const char *reason)
{
    struct transport *transport = NULL;
    struct error error;
    assert_int_equal(open_two(&transport, deadline_ms, &error), -1);
    assert_string_equal(error.reason, reason);
    assert_int_equal(fake_nccl_counts().live, 0);
    assert_int_equal(open_two(&transport, LATE_MS, &error), 0); /* the next one can */
    transport_close(transport);
}

static void communicators_that_never_come_up_are_given_up(void **state)
{
    (void)state;
    fake_nccl_fail("init", 2, NEVER_ENDS);
    assert_not_opened(SOON_MS, "NCCL_TIMEOUT");
}

static void communicators_that_fail_to_come_up_are_given_up(void **state)
{
    (void)state;
    fake_nccl_fail("async", 3, REMOTE_ERROR);
    assert_not_opened(LATE_MS, "NCCL_ERROR");
}

static void every_call_may_fail_at_open(void **state)
{
    static const char *const calls[] = {"ncclGetUniqueId", "ncclGroupStart", "ncclCommInitRankConfig", "ncclGroupEnd"};
    (void)state;
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        fake_nccl_fail(calls[i], 1, SYSTEM_ERROR);
        assert_not_opened(LATE_MS, "NCCL_ERROR");
    }
}

static void communicators_that_do_not_end_are_aborted(void **state)
{
    struct transport *transport;
    struct error error;
    (void)state;
    assert_int_equal(open_two(&transport, SOON_MS, &error), 0);
    fake_nccl_fail("finalize", 1, NEVER_ENDS);
    transport_close(transport);
    struct fake_nccl_counts counts = fake_nccl_counts();
    assert_true(counts.live == 0 && counts.aborted == 2 && counts.destroyed == 0);
}

static void ranks_that_nccl_cannot_connect_are_refused(void **state)
{
    struct transport *transport = NULL;
    struct device *host = device_host_create(0);
    struct error error;
    (void)state;
    assert_int_equal(open_on(&transport, nccl_stage.plugins.devices[0], nccl_stage.plugins.devices[0], LATE_MS, &error), -1);
    assert_string_equal(error.reason, "NCCL_SHARED_GPU");
    assert_int_equal(open_on(&transport, nccl_stage.plugins.devices[0], host, LATE_MS, &error), -1);
    assert_string_equal(error.reason, "NCCL_NEEDS_GPUS");
    assert_int_equal(fake_nccl_counts().made, 0);
    device_destroy(host);
}

/* --- the transport by itself ------------------------------------------------------------------------------------------ */

enum { PIECE_BYTES = 1000 };

static void deliver_piece(struct transport *transport, uint32_t owner, uint32_t rank, struct segment *segment,
                          const void *src)
{
    struct error error;
    const struct transport_delivery delivery = {.owner = owner,
                                                .rank = rank,
                                                .segment = segment,
                                                .src = src,
                                                .rows = {PIECE_BYTES, 1, PIECE_BYTES, PIECE_BYTES},
                                                .source_offset = 77};
    assert_int_equal(transport_deliver(transport, &delivery, &error), 0);
}

/* A piece is on its way from rank 0 to rank 1. */
struct piece {
    struct transport *transport;
    struct segment *segment;
    unsigned char bytes[PIECE_BYTES];
};

static struct piece send_piece(uint64_t deadline_ms)
{
    struct piece piece = {.bytes = {1, 2, 3}};
    struct error error;
    assert_int_equal(open_two(&piece.transport, deadline_ms, &error), 0);
    assert_int_equal(device_allocate(nccl_stage.plugins.devices[1], PIECE_BYTES, &piece.segment, &error), 0);
    deliver_piece(piece.transport, 0, 1, piece.segment, piece.bytes);
    return piece;
}

static bool holds(struct segment *segment, const void *expected, uint64_t bytes)
{
    struct error error;
    assert_int_equal(device_seal(segment, &error), 0);
    int fd = device_export_fd(segment, &error);
    void *memory = mmap(NULL, segment->allocated_bytes, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    bool same = memcmp(memory, expected, bytes) == 0;
    munmap(memory, segment->allocated_bytes);
    return same;
}

/* An owner that loads nothing itself has no device: a rank's GPU stages for it, and may be the one that gets it. */
static void what_an_owner_without_a_device_reads_arrives(void **state)
{
    struct device *devices[] = {NULL, nccl_stage.plugins.devices[1], nccl_stage.plugins.devices[2]};
    struct transport *transport;
    struct segment *segments[3] = {0};
    unsigned char bytes[PIECE_BYTES];
    struct error error;
    (void)state;
    memset(bytes, 42, sizeof bytes);
    const struct transport_options options = {3, devices, (uint64_t)LATE_MS * NS_PER_MS, TRANSPORT_STAGING_UNIT};
    assert_int_equal(transport_open(nccl_stage.plugins.transport, &options, &transport, &error), 0);
    for (uint32_t rank = 1; rank < 3; rank++) {
        assert_int_equal(device_allocate(devices[rank], PIECE_BYTES, &segments[rank], &error), 0);
        deliver_piece(transport, 0, rank, segments[rank], bytes);
    }
    assert_int_equal(transport_flush(transport, &error), 0);
    assert_int_equal(fake_nccl_counts().bytes, 2 * PIECE_BYTES);
    assert_true(holds(segments[1], bytes, PIECE_BYTES) && holds(segments[2], bytes, PIECE_BYTES));
    transport_close(transport);
    segment_unref(segments[1]);
    segment_unref(segments[2]);
}

static void zero(struct segment *segment, uint64_t bytes)
{
    uint64_t mark;
    struct error error;
    assert_int_equal(device_zero(segment, 0, bytes, &error), 0);
    assert_int_equal(device_mark(segment->device, &mark, &error), 0);
    assert_int_equal(device_wait(segment->device, mark, &error), 0);
}

/* Some moves go to one rank, some to all; the owner is a rank, too. */
static void rows_go_where_both_strides_say_and_nowhere_else(void **state)
{
    const struct transport_ops *ops = *state;
    struct device **devices = nccl_stage.plugins.devices;
    const struct transport_options options = {3, devices, (uint64_t)LATE_MS * NS_PER_MS, TRANSPORT_STAGING_UNIT};
    struct segment *segments[3];
    unsigned char *models[3];
    struct transport *transport;
    struct row_moves moves;
    struct row_move move;
    struct error error;
    row_moves_init(&moves);
    assert_int_equal(transport_open(ops, &options, &transport, &error), 0);
    for (uint32_t rank = 0; rank < 3; rank++) {
        models[rank] = calloc(1, ROW_MOVES_BYTES);
        assert_int_equal(device_allocate(devices[rank], ROW_MOVES_BYTES, &segments[rank], &error), 0);
        zero(segments[rank], ROW_MOVES_BYTES);
    }
    while (row_moves_next(&moves, &move)) {
        uint64_t receivers = row_moves_random(&moves, 2) ? 6 : 1 + row_moves_random(&moves, 7);
        for (uint32_t rank = 0; rank < 3; rank++) {
            const struct transport_delivery delivery = {.rank = rank,
                                                        .segment = segments[rank],
                                                        .offset = move.offset,
                                                        .src = moves.source + move.src_offset,
                                                        .rows = move.rows,
                                                        .source_offset = move.src_offset};
            if (!(receivers >> rank & 1))
                continue;
            assert_int_equal(transport_deliver(transport, &delivery, &error), 0);
            row_move_by_bytes(&moves, &move, models[rank]);
        }
        if (row_moves_random(&moves, 8) == 0)
            assert_int_equal(transport_flush(transport, &error), 0);
    }
    assert_int_equal(transport_flush(transport, &error), 0);
    for (uint32_t rank = 0; rank < 3; rank++) {
        assert_true(holds(segments[rank], models[rank], ROW_MOVES_BYTES));
        segment_unref(segments[rank]);
        free(models[rank]);
    }
    transport_close(transport);
    row_moves_fini(&moves);
}

enum { N_FILLERS = 4, FILLER_PIECES = 17, FILLER_PIECE_BYTES = 1 << 20 }; /* 68 MiB: more than there is staging */

struct filler {
    pthread_t thread;
    struct transport *transport;
    struct segment *segment;
    uint64_t number;
    unsigned char bytes[FILLER_PIECE_BYTES];
};

static void *fill(void *data)
{
    struct filler *filler = data;
    for (uint64_t i = 0; i < FILLER_PIECES; i++) {
        uint64_t offset = (filler->number * FILLER_PIECES + i) * FILLER_PIECE_BYTES, mark;
        memset(filler->bytes, (int)(offset / FILLER_PIECE_BYTES) + 1, FILLER_PIECE_BYTES);
        struct error error;
        const struct transport_delivery delivery = {.owner = 0,
                                                    .rank = 1,
                                                    .segment = filler->segment,
                                                    .offset = offset,
                                                    .src = filler->bytes,
                                                    .rows = {FILLER_PIECE_BYTES, 1, FILLER_PIECE_BYTES, FILLER_PIECE_BYTES},
                                                    .source_offset = offset};
        assert_int_equal(transport_deliver(filler->transport, &delivery, &error), 0);
        assert_int_equal(device_mark(nccl_stage.plugins.devices[0], &mark, &error), 0);
        assert_int_equal(device_wait(nccl_stage.plugins.devices[0], mark, &error), 0);
    }
    return NULL;
}

static void what_does_not_fit_into_the_staging_limit_is_passed_on_in_parts(void **state)
{
    const uint64_t all = (uint64_t)N_FILLERS * FILLER_PIECES * FILLER_PIECE_BYTES;
    static struct filler fillers[N_FILLERS];
    struct transport *transport;
    struct segment *segment;
    struct error error;
    (void)state;
    assert_int_equal(open_two(&transport, LATE_MS, &error), 0);
    assert_int_equal(device_allocate(nccl_stage.plugins.devices[1], all, &segment, &error), 0);
    for (uint64_t i = 0; i < N_FILLERS; i++) {
        fillers[i] = (struct filler){.transport = transport, .segment = segment, .number = i};
        assert_int_equal(pthread_create(&fillers[i].thread, NULL, fill, &fillers[i]), 0);
    }
    for (uint64_t i = 0; i < N_FILLERS; i++)
        pthread_join(fillers[i].thread, NULL);
    assert_int_equal(transport_flush(transport, &error), 0);
    assert_int_equal(transport->staging_bytes, TRANSPORT_STAGING_UNIT);
    const struct transport_delivery too_large = {.segment = segment, .rows = {TRANSPORT_STAGING_UNIT / 2 + 1, 1, 0, 0}};
    assert_int_equal(transport_deliver(transport, &too_large, &error), -1);
    assert_string_equal(error.reason, "NCCL_STAGING");
    assert_int_equal(fake_nccl_counts().bytes, all);
    assert_int_equal(device_seal(segment, &error), 0);
    int fd = device_export_fd(segment, &error);
    const unsigned char *memory = mmap(NULL, segment->allocated_bytes, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    for (uint64_t at = 0; at < all; at += 1021)
        assert_int_equal(memory[at], at / FILLER_PIECE_BYTES + 1);
    munmap((void *)(uintptr_t)memory, segment->allocated_bytes);
    transport_close(transport);
    segment_unref(segment);
}

static void after_an_error_a_transport_delivers_nothing(void **state)
{
    struct piece piece = send_piece(SOON_MS);
    struct error error;
    (void)state;
    fake_nccl_fail("kernel", 1, NEVER_ENDS);
    assert_int_equal(transport_flush(piece.transport, &error), -1);
    assert_int_equal(error.code, ERROR_DEADLINE_EXCEEDED);
    const struct transport_delivery delivery = {.owner = 0,
                                                .rank = 1,
                                                .segment = piece.segment,
                                                .src = piece.bytes,
                                                .rows = {PIECE_BYTES, 1, PIECE_BYTES, PIECE_BYTES}};
    assert_int_equal(transport_deliver(piece.transport, &delivery, &error), 0);
    assert_int_equal(transport_flush(piece.transport, &error), -1);
    assert_string_equal(error.reason, "NCCL_TIMEOUT");
    assert_int_equal(fake_nccl_counts().live, 0);
    transport_close(piece.transport);
    segment_unref(piece.segment);
}

static void a_transfer_that_no_request_waits_for_is_aborted_at_once(void **state)
{
    struct piece piece = send_piece(LATE_MS);
    struct error error;
    (void)state;
    fake_nccl_fail("kernel", 1, NEVER_ENDS);
    piece.transport->is_unwanted = true;
    assert_int_equal(transport_flush(piece.transport, &error), -1);
    assert_string_equal(error.reason, "NCCL_UNWANTED");
    assert_int_equal(fake_nccl_counts().aborted, 2);
    transport_close(piece.transport);
    segment_unref(piece.segment);
}

static void a_rank_that_is_gone_keeps_its_memory_until_nothing_is_on_its_way(void **state)
{
    struct piece piece = send_piece(LATE_MS);
    struct error error;
    (void)state;
    segment_unref(piece.segment);
    assert_int_equal(transport_flush(piece.transport, &error), 0);
    assert_int_equal(fake_nccl_counts().bytes, PIECE_BYTES);
    transport_close(piece.transport);
}

static void what_was_not_flushed_is_dropped_when_it_is_closed(void **state)
{
    struct piece piece = send_piece(LATE_MS);
    (void)state;
    segment_unref(piece.segment);
    transport_close(piece.transport);
    assert_int_equal(fake_nccl_counts().bytes, 0);
}

/* A GPU that has broken takes its ranks with it, not the daemon; the others' GPUs stay in service. */
static void a_gpu_that_breaks_in_a_transfer_goes_out_of_service_alone(void **state)
{
    struct piece piece = send_piece(LATE_MS);
    struct error error;
    (void)state;
    fake_cuda_delay(20000); /* so that it is asked for three times */
    fake_cuda_fail("cudaEventQuery", 3, LAUNCH_FAILURE, true);
    assert_int_equal(transport_flush(piece.transport, &error), -1);
    fake_cuda_delay(0);
    assert_int_equal(fake_nccl_counts().live, 0);
    assert_true(device_check(nccl_stage.plugins.devices[0], &error) != 0 ||
                device_check(nccl_stage.plugins.devices[1], &error) != 0);
    assert_true(device_check(nccl_stage.plugins.devices[0], &error) == 0 ||
                device_check(nccl_stage.plugins.devices[1], &error) == 0);
    transport_close(piece.transport);
    segment_unref(piece.segment);
}

/* --- the fake itself -------------------------------------------------------------------------------------------------- */

static void the_fake_does_nothing_unless_it_is_told_to(void **state)
{
    struct transport *transport = NULL;
    struct error error;
    (void)state;
    setenv("TENSORCAST_TEST_FAKE_NCCL", "0", 1);
    fake_nccl_reset();
    assert_int_equal(open_two(&transport, LATE_MS, &error), -1);
    setenv("TENSORCAST_TEST_FAKE_NCCL", "1", 1);
    fake_nccl_reset();
}

int main(int argc, char **argv)
{
#define NCCL_TEST(test) cmocka_unit_test_setup_teardown(test, use_nccl, nccl_stage_close)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(rows_go_where_both_strides_say_and_nowhere_else, use_loopback, nccl_stage_close),
        NCCL_TEST(the_fake_does_nothing_unless_it_is_told_to),
        NCCL_TEST(communicators_that_never_come_up_are_given_up),
        NCCL_TEST(communicators_that_fail_to_come_up_are_given_up),
        NCCL_TEST(every_call_may_fail_at_open),
        NCCL_TEST(communicators_that_do_not_end_are_aborted),
        NCCL_TEST(ranks_that_nccl_cannot_connect_are_refused),
        NCCL_TEST(what_an_owner_without_a_device_reads_arrives),
        NCCL_TEST(rows_go_where_both_strides_say_and_nowhere_else),
        NCCL_TEST(what_does_not_fit_into_the_staging_limit_is_passed_on_in_parts),
        NCCL_TEST(after_an_error_a_transport_delivers_nothing),
        NCCL_TEST(a_transfer_that_no_request_waits_for_is_aborted_at_once),
        NCCL_TEST(a_rank_that_is_gone_keeps_its_memory_until_nothing_is_on_its_way),
        NCCL_TEST(what_was_not_flushed_is_dropped_when_it_is_closed),
        cmocka_unit_test_setup_teardown(a_gpu_that_breaks_in_a_transfer_goes_out_of_service_alone, use_nccl,
                                        nccl_stage_close_broken),
    };
    (void)argc;
    return nccl_stage_init(argv[0]) ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
