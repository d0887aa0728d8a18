/* Groups whose ranks load into GPUs: the same cases as over loopback in host memory (test_collective.c), over loopback and
 * over NCCL, and what only NCCL can do wrong. The real plugin on the fakes of tests/fake: an id, communicators and bytes
 * behave as documented; how fast anything is and what real links do is not tested here. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "device/plugin.h"
#include "fake_cuda.h"
#include "fake_nccl.h"
#include "observe/log.h"
#include "tests/support/row_moves.h"
#include "tests/unit/collective_cases.h"

enum { NEVER_ENDS = 0, SYSTEM_ERROR = 2, REMOTE_ERROR = 6, LAUNCH_FAILURE = 719 };

static char plugin_folder[4096];
static struct device_plugins plugins;
static struct place gpus;
static struct fake_cuda_live before;

/* --- the stage ------------------------------------------------------------------------------------------------------ */

static int open_gpus(void **state, bool with_nccl)
{
    fake_cuda_reset();
    fake_nccl_reset();
    before = fake_cuda_live();
    device_plugins_load(&plugins, plugin_folder);
    assert_int_equal(plugins.n_devices, MAX_RANKS);
    assert_non_null(plugins.transport);
    assert_int_equal(plugins.transport_layout, TRANSPORT_LAYOUT);
    gpus.transport = with_nccl ? plugins.transport : &transport_loopback;
    for (size_t i = 0; i < MAX_RANKS; i++)
        gpus.devices[i] = plugins.devices[i];
    *state = &gpus;
    return 0;
}

static int use_nccl(void **state)
{
    return open_gpus(state, true);
}

static int use_loopback(void **state)
{
    return open_gpus(state, false);
}

/* Nothing may be left: no communicator, no stream, no byte of GPU memory. */
static int close_gpus(void **state)
{
    (void)state;
    device_plugins_destroy(&plugins);
    struct fake_cuda_live live = fake_cuda_live();
    assert_int_equal(fake_nccl_counts().live, 0);
    assert_memory_equal(&live, &before, sizeof live);
    return 0;
}

/* What is on a broken GPU is given up, not freed. */
static int close_broken_gpus(void **state)
{
    (void)state;
    device_plugins_destroy(&plugins);
    assert_int_equal(fake_nccl_counts().live, 0);
    return 0;
}

/* What never ends is waited for until soon. A poll counts for 100 ms at most, so making communicators, which takes a few, is
 * not cut short by a busy machine. Where something else than the time is to end a wait it is late. */
enum { SOON_MS = 600, LATE_MS = 60000 };

static int open_impatiently(struct transport *transport, struct error *error)
{
    transport->deadline_ns = SOON_MS * (uint64_t)NS_PER_MS;
    return plugins.transport->open(transport, error);
}

static const struct transport_ops *impatient(void)
{
    static struct transport_ops ops;
    ops = *plugins.transport;
    ops.open = open_impatiently;
    return &ops;
}

/* --- what NCCL is asked to do ----------------------------------------------------------------------------------------- */

static void share_all(uint32_t rank, uint32_t n_ranks, uint64_t side, size_t tensor, struct slice slices[2])
{
    (void)rank, (void)n_ranks, (void)side, (void)tensor;
    slices[0] = slices[1] = (struct slice){0, INT64_MAX};
}

/* But for the pieces that another worker's flush cut in two: the rest of their deliveries is sent. */
static void what_all_ranks_need_is_staged_once_and_broadcast(void **state)
{
    const struct place *place = *state;
    struct team team;
    load_team(&team, place, 4, share_all);
    struct fake_nccl_counts counts = fake_nccl_counts();
    assert_true(counts.broadcasts > counts.sends && counts.broadcasts % 4 == 0);
    assert_int_equal(counts.bytes, 3 * all_bytes);
    close_team(&team);
}

static void columns_of_several_ranks_are_sent(void **state)
{
    const struct place *place = *state;
    struct team team;
    load_team(&team, place, 4, share);
    struct fake_nccl_counts counts = fake_nccl_counts();
    assert_true(counts.sends > 0 && counts.broadcasts > 0);
    assert_int_equal(counts.bytes, run_collective_counters(team.loads[0]->run)->peer_transfer_bytes);
    close_team(&team);
}

/* Fakes are slow here, so that whatever is read or published too early shows. */
static void nothing_is_published_before_it_has_arrived(void **state)
{
    const struct place *place = *state;
    struct team team;
    open_team(&team, place, 3, share);
    fake_cuda_delay(2000);
    start(&team, place->transport);
    scene_wait(&team.scene);
    fake_cuda_delay(0);
    assert_in_place(&team, UINT32_MAX);
    close_team(&team);
}

/* The buffers it read into are still copied from when the ranks that get the bytes have long queued everything. */
static void what_an_owner_reads_for_others_is_not_overwritten_before_it_is_staged(void **state)
{
    const struct place *place = *state;
    struct team team;
    open_team(&team, place, 3, share_empty_pieces);
    for (size_t i = 0; i < team.plan->n_batches; i++)
        team.plan->batches[i].owner = 2;
    fake_cuda_delay_on(2, 5000);
    start(&team, place->transport);
    scene_wait(&team.scene);
    fake_cuda_delay(0);
    assert_in_place(&team, UINT32_MAX);
    assert_int_equal(fake_nccl_counts().bytes, all_bytes);
    close_team(&team);
}

static void communicators_are_gone_before_a_rank_is_published(void **state)
{
    const struct place *place = *state;
    struct team team;
    open_team(&team, place, 4, share);
    start(&team, place->transport);
    assert_int_equal(fake_nccl_counts().live, 4);
    scene_wait(&team.scene);
    assert_int_equal(fake_nccl_counts().live, 4);
    for (uint32_t i = 0; i < 4; i++)
        run_release_transport(team.loads[i]->run);
    struct fake_nccl_counts counts = fake_nccl_counts();
    assert_true(counts.live == 0 && counts.destroyed == 4 && counts.aborted == 0);
    assert_in_place(&team, UINT32_MAX);
    close_team(&team);
}

static void a_transport_is_not_closed_under_a_rank_that_still_loads(void **state)
{
    const struct place *place = *state;
    struct team team;
    open_team(&team, place, 2, share);
    fake_cuda_pause(true);
    start(&team, place->transport);
    run_cancel(team.loads[1]->run);
    run_release_transport(team.loads[1]->run);
    assert_int_equal(fake_nccl_counts().live, 2);
    fake_cuda_pause(false);
    scene_wait(&team.scene);
    assert_in_place(&team, 1);
    close_team(&team);
}

/* --- errors: in the engine -------------------------------------------------------------------------------------------- */

static void assert_all_failed(const struct team *team, const char *reason)
{
    for (uint32_t i = 0; i < team->n_ranks; i++) {
        assert_true(team->loads[i]->is_done && team->loads[i]->has_failed);
        assert_string_equal(team->loads[i]->error.reason, reason);
    }
}

/* The next load has communicators of its own, and is not disturbed by what became of the last ones. */
static void assert_next_load_is_right(const struct place *place)
{
    struct team team;
    size_t made = fake_nccl_counts().made;
    load_team(&team, place, 4, share);
    assert_int_equal(fake_nccl_counts().made, made + 4);
    close_team(&team);
}

static void load_and_fail(const struct place *place, const char *function, uint64_t nth, int code, const char *reason)
{
    struct team team;
    open_team(&team, place, 4, share_all);
    struct collective *collective = connect_team(&team, code == NEVER_ENDS ? impatient() : place->transport);
    fake_nccl_fail(function, nth, code); /* connected before, and nothing is under way yet */
    start_ranks(&team, collective);
    scene_wait(&team.scene);
    assert_all_failed(&team, reason);
    struct fake_nccl_counts counts = fake_nccl_counts();
    assert_true(counts.live == 0 && counts.aborted == 4); /* on all ranks, and at once: nobody has closed it yet */
    close_team(&team);
    assert_next_load_is_right(place);
}

static void a_transfer_that_hangs_is_aborted_when_the_deadline_is_over(void **state)
{
    load_and_fail(*state, "kernel", 3, NEVER_ENDS, "NCCL_TIMEOUT");
}

static void an_error_that_comes_up_later_aborts_all_ranks(void **state)
{
    load_and_fail(*state, "async", 9, REMOTE_ERROR, "NCCL_ERROR");
}

static void a_call_that_fails_aborts_all_ranks(void **state)
{
    load_and_fail(*state, "ncclBroadcast", 2, SYSTEM_ERROR, "NCCL_ERROR");
}

static void a_launch_that_fails_aborts_all_ranks(void **state)
{
    load_and_fail(*state, "ncclGroupEnd", 1, SYSTEM_ERROR, "NCCL_ERROR");
}

static void a_rank_that_is_gone_before_its_bytes_arrive_harms_nobody(void **state)
{
    const struct place *place = *state;
    struct team team;
    open_team(&team, place, 4, share);
    fake_cuda_delay(3000);
    start(&team, place->transport);
    while (run_done_bytes(team.loads[3]->run) == 0 && !team.loads[3]->is_done)
        usleep(100);
    run_cancel(team.loads[3]->run);
    scene_wait(&team.scene);
    fake_cuda_delay(0);
    assert_in_place(&team, 3);
    close_team(&team);
}

/* --- errors: at open and close ---------------------------------------------------------------------------------------- */

static int open_on(struct transport **transport, struct device *first, struct device *second, uint64_t deadline_ms,
                   struct error *error)
{
    struct device *devices[] = {first, second};
    const struct transport_options options = {2, devices, deadline_ms * NS_PER_MS, TRANSPORT_STAGING_UNIT};
    return transport_open(plugins.transport, &options, transport, error);
}

static int open_two(struct transport **transport, uint64_t deadline_ms, struct error *error)
{
    return open_on(transport, plugins.devices[0], plugins.devices[1], deadline_ms, error);
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
    assert_int_equal(open_on(&transport, plugins.devices[0], plugins.devices[0], LATE_MS, &error), -1);
    assert_string_equal(error.reason, "NCCL_SHARED_GPU");
    assert_int_equal(open_on(&transport, plugins.devices[0], host, LATE_MS, &error), -1);
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
    assert_int_equal(device_allocate(plugins.devices[1], PIECE_BYTES, &piece.segment, &error), 0);
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
    struct device *devices[] = {NULL, plugins.devices[1], plugins.devices[2]};
    struct transport *transport;
    struct segment *segments[3] = {0};
    unsigned char bytes[PIECE_BYTES];
    struct error error;
    (void)state;
    memset(bytes, 42, sizeof bytes);
    const struct transport_options options = {3, devices, (uint64_t)LATE_MS * NS_PER_MS, TRANSPORT_STAGING_UNIT};
    assert_int_equal(transport_open(plugins.transport, &options, &transport, &error), 0);
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
    const struct place *place = *state;
    const struct transport_options options = {3, place->devices, (uint64_t)LATE_MS * NS_PER_MS, TRANSPORT_STAGING_UNIT};
    struct segment *segments[3];
    unsigned char *models[3];
    struct transport *transport;
    struct row_moves moves;
    struct row_move move;
    struct error error;
    row_moves_init(&moves);
    assert_int_equal(transport_open(place->transport, &options, &transport, &error), 0);
    for (uint32_t rank = 0; rank < 3; rank++) {
        models[rank] = calloc(1, ROW_MOVES_BYTES);
        assert_int_equal(device_allocate(place->devices[rank], ROW_MOVES_BYTES, &segments[rank], &error), 0);
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
        assert_int_equal(device_mark(plugins.devices[0], &mark, &error), 0);
        assert_int_equal(device_wait(plugins.devices[0], mark, &error), 0);
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
    assert_int_equal(device_allocate(plugins.devices[1], all, &segment, &error), 0);
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

static void a_transfer_that_nobody_waits_for_is_aborted_at_once(void **state)
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
    assert_true(device_check(plugins.devices[0], &error) != 0 || device_check(plugins.devices[1], &error) != 0);
    assert_true(device_check(plugins.devices[0], &error) == 0 || device_check(plugins.devices[1], &error) == 0);
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

#define NCCL_TEST(test) cmocka_unit_test_setup_teardown(test, use_nccl, close_gpus)

static int run_all(void)
{
    const struct CMUnitTest loopback[] = {COLLECTIVE_CASES(use_loopback, close_gpus),
                                          cmocka_unit_test_setup_teardown(rows_go_where_both_strides_say_and_nowhere_else,
                                                                          use_loopback, close_gpus)},
                            nccl[] = {
                                NCCL_TEST(the_fake_does_nothing_unless_it_is_told_to),
                                COLLECTIVE_CASES(use_nccl, close_gpus),
                                NCCL_TEST(what_all_ranks_need_is_staged_once_and_broadcast),
                                NCCL_TEST(columns_of_several_ranks_are_sent),
                                NCCL_TEST(nothing_is_published_before_it_has_arrived),
                                NCCL_TEST(what_an_owner_reads_for_others_is_not_overwritten_before_it_is_staged),
                                NCCL_TEST(communicators_are_gone_before_a_rank_is_published),
                                NCCL_TEST(a_transport_is_not_closed_under_a_rank_that_still_loads),
                                NCCL_TEST(a_transfer_that_hangs_is_aborted_when_the_deadline_is_over),
                                NCCL_TEST(an_error_that_comes_up_later_aborts_all_ranks),
                                NCCL_TEST(a_call_that_fails_aborts_all_ranks),
                                NCCL_TEST(a_launch_that_fails_aborts_all_ranks),
                                NCCL_TEST(a_rank_that_is_gone_before_its_bytes_arrive_harms_nobody),
                                NCCL_TEST(communicators_that_never_come_up_are_given_up),
                                NCCL_TEST(communicators_that_fail_to_come_up_are_given_up),
                                NCCL_TEST(every_call_may_fail_at_open),
                                NCCL_TEST(communicators_that_do_not_end_are_aborted),
                                NCCL_TEST(ranks_that_nccl_cannot_connect_are_refused),
                                NCCL_TEST(what_an_owner_without_a_device_reads_arrives),
                                NCCL_TEST(rows_go_where_both_strides_say_and_nowhere_else),
                                NCCL_TEST(what_does_not_fit_into_the_staging_limit_is_passed_on_in_parts),
                                NCCL_TEST(after_an_error_a_transport_delivers_nothing),
                                NCCL_TEST(a_transfer_that_nobody_waits_for_is_aborted_at_once),
                                NCCL_TEST(a_rank_that_is_gone_keeps_its_memory_until_nothing_is_on_its_way),
                                NCCL_TEST(what_was_not_flushed_is_dropped_when_it_is_closed),
                                cmocka_unit_test_setup_teardown(a_gpu_that_breaks_in_a_transfer_goes_out_of_service_alone,
                                                                use_nccl, close_broken_gpus),
                            };
    int failed = cmocka_run_group_tests_name("loopback on GPUs", loopback, NULL, NULL);
    return failed + cmocka_run_group_tests_name("NCCL", nccl, NULL, NULL);
}

int main(int argc, char **argv)
{
    struct error error;
    char *slash = realpath(argv[0], plugin_folder) ? strstr(plugin_folder, "/tests/unit/") : NULL;
    (void)argc;
    if (!slash || log_open("/dev/null", LOG_ERROR, LOG_LOGFMT, &error))
        return 1;
    strcpy(slash, "/plugins");
    setenv("TENSORCAST_TEST_FAKE_CUDA", "1", 1);
    setenv("TENSORCAST_TEST_FAKE_CUDA_DEVICES", "4", 1);
    setenv("TENSORCAST_TEST_FAKE_NCCL", "1", 1);
    return run_all();
}
