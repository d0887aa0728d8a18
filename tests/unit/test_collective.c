/* Runs of a group in the engine: read once, in batches, delivered by a transport; ranks that fail or leave hurt no other. Here
 * over loopback into host memory; test_collective_nccl.c has the same cases on GPUs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

#include "blocks/blocks.h"
#include "execute/engine_private.h"
#include "tests/unit/collective_cases.h"

static struct place host = {.transport = &transport_loopback};

static int use_host(void **state)
{
    *state = &host;
    return 0;
}

/* --- a transport that counts, one that fails for a rank, and one that fails at the end of a batch -----------------------
 */

static uint64_t n_flushed, n_refused; /* atomic */

static int copy_unless_last(struct transport *transport, const struct transport_delivery *delivery, struct error *error)
{
    if (delivery->rank == MAX_RANKS - 1) {
        __atomic_add_fetch(&n_refused, 1, __ATOMIC_RELAXED);
        return (fail)(error, ERROR_UNAVAILABLE, "PEER_LOST", "rank %u is gone", delivery->rank);
    }
    return transport_loopback.deliver(transport, delivery, error);
}

static int count_flush(struct transport *transport, struct error *error)
{
    (void)transport;
    (void)error;
    __atomic_add_fetch(&n_flushed, 1, __ATOMIC_RELAXED);
    return 0;
}

static int copy_any(struct transport *transport, const struct transport_delivery *delivery, struct error *error)
{
    return transport_loopback.deliver(transport, delivery, error);
}

static int fail_flush(struct transport *transport, struct error *error)
{
    (void)transport;
    return (fail)(error, ERROR_UNAVAILABLE, "LINK_LOST", "nothing arrives");
}

static void a_delivery_that_fails_fails_its_rank_and_no_other(void **state)
{
    static const struct transport_ops lossy = {
        .name = "lossy", .caps = {.host_memory = true}, .deliver = copy_unless_last, .flush = count_flush};
    struct team team;
    (void)state;
    n_flushed = n_refused = 0;
    open_team(&team, &host, MAX_RANKS, share);
    for (size_t i = 0; i < team.plan->n_batches; i++) /* rank 3 owns nothing, so everything is delivered to it */
        team.plan->batches[i].owner = 0;
    start(&team, &lossy);
    scene_wait(&team.scene);
    assert_in_place(&team, MAX_RANKS - 1);
    assert_true(n_flushed > 0 && n_flushed <= team.plan->n_batches + MAX_RANKS);
    assert_true(team.loads[MAX_RANKS - 1]->has_failed == (n_refused > 0));
    close_team(&team);
}

static void a_flush_that_fails_fails_every_rank(void **state)
{
    static const struct transport_ops broken = {
        .name = "broken", .caps = {.host_memory = true}, .deliver = copy_any, .flush = fail_flush};
    struct team team;
    (void)state;
    open_team(&team, &host, MAX_RANKS, share);
    for (size_t i = 0; i < team.plan->n_batches; i++)
        team.plan->batches[i].owner = i % MAX_RANKS;
    start(&team, &broken);
    scene_wait(&team.scene);
    for (uint32_t i = 0; i < MAX_RANKS; i++) {
        assert_true(team.loads[i]->is_done && team.loads[i]->has_failed);
        assert_string_equal(team.loads[i]->error.reason, "LINK_LOST");
    }
    close_team(&team);
}

/* What many small sends cost is that each is waited for. */
static void flaw_7_many_small_tensors_are_one_batch_and_waited_for_once(void **state)
{
    struct transport_ops counting = transport_loopback;
    struct team team;
    (void)state;
    n_flushed = 0;
    counting.flush = count_flush;
    open_team_of(&team, &host, MAX_RANKS, share, (struct setting){SCENE_MAX_TENSORS, 64, 4 * MIB, 4});
    assert_true(team.plan->n_batches <= 2); /* of two files */
    start(&team, &counting);
    scene_wait(&team.scene);
    for (int i = 0; i < MAX_RANKS; i++)
        assert_true(!team.loads[i]->has_failed && load_is_right(team.loads[i]));
    assert_true(n_flushed <= team.plan->n_batches + MAX_RANKS); /* a rank may be done while others' items are under way */
    close_team(&team);
}

/* --- a transport that looks at the order of batches ------------------------------------------------------------------ */

enum { MAX_BATCHES = 64 };

static struct {
    pthread_mutex_t lock;
    const struct collective_plan *plan;
    int n_seen, first[MAX_BATCHES], last[MAX_BATCHES]; /* deliveries, by batch; 0 = none */
} order = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int note_and_deliver(struct transport *transport, const struct transport_delivery *delivery, struct error *error)
{
    pthread_mutex_lock(&order.lock);
    order.n_seen++;
    for (size_t i = 0; i < order.plan->n_pieces; i++) {
        const struct collective_piece *piece = &order.plan->pieces[i];
        bool is_of_it =
            piece->file == delivery->file && piece->lo <= delivery->source_offset && delivery->source_offset < piece->hi;
        if (is_of_it && order.first[piece->batch] == 0)
            order.first[piece->batch] = order.n_seen;
        if (is_of_it)
            order.last[piece->batch] = order.n_seen;
    }
    pthread_mutex_unlock(&order.lock);
    return transport_loopback.deliver(transport, delivery, error);
}

/* A block on the border of two batches is read with the first one, so only those farther apart are surely apart in time. */
static void no_more_batches_are_in_flight_than_allowed(void **state)
{
    static const struct transport_ops noting = {
        .name = "noting", .caps = {.host_memory = true}, .deliver = note_and_deliver};
    struct team team;
    int n_apart = 0;
    (void)state;
    open_team(&team, &host, MAX_RANKS, share);
    order.plan = team.plan;
    team.plan->max_inflight_batches = 1;
    assert_in_range(team.plan->n_batches, 4, MAX_BATCHES);
    start(&team, &noting);
    scene_wait(&team.scene);
    assert_in_place(&team, MAX_RANKS);
    for (size_t i = 0; i < team.plan->n_batches; i++)
        for (size_t later = i + 2; later < team.plan->n_batches; later++) {
            assert_true(!order.last[i] || !order.first[later] || order.last[i] < order.first[later]);
            n_apart += order.last[i] && order.first[later];
        }
    assert_true(n_apart > 0);
    close_team(&team);
}

/* --- a holder that has an order for the blocks of other hosts ---------------------------------------------------------- */

enum { MAX_READS = 4096, NEAR_OF = 3 };

static struct {
    struct block_holder base;
    uint64_t blocks[MAX_READS]; /* that were read, as numbers over all files; by one worker */
    size_t n;
} far_order;

static uint64_t number_of(size_t file, uint64_t offset)
{
    return file << 32 | offset / far_order.base.block_bytes;
}

/* The last one first. */
static void arrange_backwards(struct block_holder *holder, const struct source *source, struct block_place *places, size_t n)
{
    (void)source;
    for (size_t i = 0; i < n; i++)
        places[i].turn = places[i].offset / holder->block_bytes % NEAR_OF ? n - i : 0;
}

static int note_block(struct block_holder *holder, struct block_want *want, struct error *error)
{
    (void)holder;
    (void)error;
    uint64_t number = number_of(want->read.file, want->read.offset);
    if (far_order.n == 0 || far_order.blocks[far_order.n - 1] != number)
        far_order.blocks[far_order.n++] = number;
    return 1;
}

/* One worker is at nothing when it takes the next block, so it takes the near ones first. */
static void blocks_of_other_hosts_come_in_the_order_of_their_holder(void **state)
{
    struct team team;
    (void)state;
    far_order.n = 0;
    far_order.base = (struct block_holder){.get = note_block, .arrange = arrange_backwards, .block_bytes = 1 << 18};
    open_team_of(&team, &host, 2, share, (struct setting){6, 2 * SIDE, 64 * MIB, 1});
    assert_int_equal(team.plan->n_batches, 2); /* one of each file */
    team.plan->max_inflight_batches = 1;
    team.scene.holders = &far_order.base;
    start(&team, &transport_loopback);
    scene_wait(&team.scene);
    assert_in_place(&team, MAX_RANKS);
    size_t n_near = 0, n_far = 0;
    for (size_t i = 1; i < far_order.n; i++) {
        uint64_t last = far_order.blocks[i - 1], next = far_order.blocks[i];
        bool was_far = (uint32_t)last % NEAR_OF, is_far = (uint32_t)next % NEAR_OF;
        n_near += !is_far;
        n_far += is_far;
        if (next >> 32 == last >> 32)
            assert_true(is_far ? !was_far || next < last : !was_far && next > last);
    }
    assert_true(n_near > 8 && n_far > 16);
    close_team(&team);
}

/* --- a transport that may take its time ------------------------------------------------------------------------------ */

static struct engine *watched;
static int n_free, n_held; /* atomic: how often the engine's lock was free, and was not for a long time */

static void look_at_lock(void)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 30;
    bool is_free = pthread_mutex_timedlock(&watched->lock, &until) == 0;
    if (is_free)
        pthread_mutex_unlock(&watched->lock);
    __atomic_add_fetch(is_free ? &n_free : &n_held, 1, __ATOMIC_RELAXED);
}

static int look_and_deliver(struct transport *transport, const struct transport_delivery *delivery, struct error *error)
{
    look_at_lock();
    return transport_loopback.deliver(transport, delivery, error);
}

static int look_and_flush(struct transport *transport, struct error *error)
{
    (void)transport;
    (void)error;
    look_at_lock();
    return 0;
}

static void look_and_close(struct transport *transport)
{
    (void)transport;
    look_at_lock();
}

/* A thread that waits for a peer must not make other loads wait: no function of a transport has the engine's lock. */
static void flaw_4_a_transport_that_hangs_holds_up_no_other_load(void **state)
{
    static const struct transport_ops watching = {.name = "watching",
                                                  .caps = {.host_memory = true},
                                                  .deliver = look_and_deliver,
                                                  .flush = look_and_flush,
                                                  .close = look_and_close};
    struct team team;
    (void)state;
    open_team(&team, &host, MAX_RANKS, share);
    watched = team.scene.engine;
    n_free = n_held = 0;
    start(&team, &watching);
    scene_wait(&team.scene);
    for (int i = 0; i < MAX_RANKS; i++) {
        load_destroy(team.loads[i]);
        team.loads[i] = NULL;
    }
    assert_int_equal(n_held, 0);
    assert_true(n_free >= 2); /* a flush and the close at least */
    close_team(&team);
}

static int n_waiting, n_let_go; /* atomic */

/* As long as a run wants it, and not for ever. */
static int flush_until_unwanted(struct transport *transport, struct error *error)
{
    __atomic_add_fetch(&n_waiting, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < 60000 && !__atomic_load_n(&transport->is_unwanted, __ATOMIC_RELAXED); i++)
        usleep(1000);
    __atomic_add_fetch(&n_let_go, __atomic_load_n(&transport->is_unwanted, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
    return (fail)(error, ERROR_CANCELLED, "LET_GO", "no load waits");
}

static void a_transport_is_told_when_nobody_waits_for_it_any_more(void **state)
{
    static const struct transport_ops endless = {
        .name = "endless", .caps = {.host_memory = true}, .deliver = copy_any, .flush = flush_until_unwanted};
    struct team team;
    (void)state;
    n_waiting = n_let_go = 0;
    open_team(&team, &host, MAX_RANKS, share);
    start(&team, &endless);
    for (int i = 0; i < 60000 && __atomic_load_n(&n_waiting, __ATOMIC_RELAXED) == 0; i++)
        usleep(1000);
    for (uint32_t i = 0; i < MAX_RANKS; i++)
        run_cancel(team.loads[i]->run);
    scene_wait(&team.scene);
    assert_true(n_waiting > 0 && n_let_go == n_waiting);
    for (uint32_t i = 0; i < MAX_RANKS; i++)
        assert_int_equal(team.loads[i]->error.code, ERROR_CANCELLED);
    close_team(&team);
}

/* --- sources that fail or are slow ----------------------------------------------------------------------------------- */

static void spoil(struct team *team, int rank, uint64_t fail_from)
{
    struct source_fault *source = team->loads[rank]->source;
    source->fail_from = fail_from;
    source->fail_count = UINT64_MAX / 2;
    source->fail_code = ERROR_UNAVAILABLE;
}

/* Every rank ends; those that have failed tell the read's error, the others have their bytes. */
static int count_failed(struct team *team)
{
    int n_failed = 0;
    for (int i = 0; i < MAX_RANKS; i++) {
        assert_true(team->loads[i]->is_done);
        n_failed += team->loads[i]->has_failed;
        if (team->loads[i]->has_failed)
            assert_string_equal(team->loads[i]->error.reason, "INJECTED");
        else
            assert_true(load_is_right(team->loads[i]));
    }
    return n_failed;
}

static void a_read_error_in_the_middle_fails_who_needed_the_bytes_and_ends_for_all(void **state)
{
    (void)state;
    for (int rank = 0; rank < MAX_RANKS; rank++) {
        struct team team;
        open_team_of(&team, &host, MAX_RANKS, share,
                     (struct setting){6, 2 * SIDE, 4 * MIB, 4}); /* enough for each to read twice */
        spoil(&team, rank, 2);
        start(&team, &transport_loopback);
        scene_wait(&team.scene);
        assert_true(count_failed(&team) > 0);
        close_team(&team);
    }
}

static void a_source_that_fails_for_everybody_ends_every_rank_with_its_error(void **state)
{
    struct team team;
    (void)state;
    open_team(&team, &host, MAX_RANKS, share);
    for (int rank = 0; rank < MAX_RANKS; rank++)
        spoil(&team, rank, 1);
    start(&team, &transport_loopback);
    scene_wait(&team.scene);
    assert_int_equal(count_failed(&team), MAX_RANKS);
    close_team(&team);
}

static void a_slow_owner_is_waited_for_and_nobody_fails(void **state)
{
    struct team team;
    (void)state;
    open_team(&team, &host, MAX_RANKS, share);
    team.loads[1]->source->delay_ns = 5000000;
    start(&team, &transport_loopback);
    scene_wait(&team.scene);
    assert_int_equal(count_failed(&team), 0);
    close_team(&team);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        COLLECTIVE_CASES(use_host, NULL),
        cmocka_unit_test(a_delivery_that_fails_fails_its_rank_and_no_other),
        cmocka_unit_test(a_flush_that_fails_fails_every_rank),
        cmocka_unit_test(no_more_batches_are_in_flight_than_allowed),
        cmocka_unit_test(blocks_of_other_hosts_come_in_the_order_of_their_holder),
        cmocka_unit_test(flaw_7_many_small_tensors_are_one_batch_and_waited_for_once),
        cmocka_unit_test(flaw_4_a_transport_that_hangs_holds_up_no_other_load),
        cmocka_unit_test(a_transport_is_told_when_nobody_waits_for_it_any_more),
        cmocka_unit_test(a_read_error_in_the_middle_fails_who_needed_the_bytes_and_ends_for_all),
        cmocka_unit_test(a_source_that_fails_for_everybody_ends_every_rank_with_its_error),
        cmocka_unit_test(a_slow_owner_is_waited_for_and_nobody_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
