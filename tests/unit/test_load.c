/* The life of loads: sharing, leaving, failing, budgets, replicas. Sources are buffers in this process. */
#include "tests/support/unit.h"

#include "blocks/blocks.h"
#include "load/load.h"
#include "observe/log.h"
#include "tests/support/group_stage.h"
#include "tests/support/transitions.h"

#include <sched.h>
#include <time.h>

enum { TENSOR_BYTES = STAGE_TENSOR_BYTES };

static void submit(struct load_stage *stage, struct stage_client *client, const char *artifact)
{
    stage_client_init(stage, client, artifact);
    stage_submit(client);
}

static void assert_bytes(const struct replica *replica, unsigned salt)
{
    assert_true(stage_is_right(replica, salt, TENSOR_BYTES));
}

TEST(a_load_becomes_a_replica_and_the_next_request_finds_it)
{
    struct load_stage stage;
    struct stage_client first, second;
    stage_open(&stage, 60000);
    submit(&stage, &first, "memory:m");
    stage_run(&stage);
    assert_int_equal(first.code, ERROR_OK);
    assert_false(first.from_replica);
    assert_bytes(first.replica, 1);
    submit(&stage, &second, "memory:m");
    stage_run(&stage);
    assert_true(second.from_replica);
    assert_ptr_equal(first.replica, second.replica);
    stage_let_go(&first);
    stage_let_go(&second);
    stage_close(&stage);
}

TEST(identical_requests_in_flight_share_one_load)
{
    struct load_stage stage;
    struct stage_client clients[8];
    int n_joined = 0;
    stage_open(&stage, 60000);
    for (int i = 0; i < 8; i++)
        submit(&stage, &clients[i], "memory:m");
    stage_run(&stage);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(clients[i].code, ERROR_OK);
        assert_ptr_equal(clients[i].replica, clients[0].replica);
        n_joined += clients[i].joined || clients[i].from_replica;
        stage_let_go(&clients[i]);
    }
    assert_int_equal(n_joined, 7);
    assert_true(replica_used_bytes(stage.host.replicas) < 2 * TENSOR_BYTES);
    stage_close(&stage);
}

TEST(a_client_that_leaves_does_not_hurt_the_others)
{
    struct load_stage stage;
    struct stage_client stays, leaves;
    stage_open(&stage, 60000);
    submit(&stage, &leaves, "memory:m");
    submit(&stage, &stays, "memory:m");
    ticket_cancel(leaves.ticket);
    stage_run(&stage);
    assert_int_equal(leaves.code, ERROR_CANCELLED);
    assert_int_equal(stays.code, ERROR_OK);
    assert_bytes(stays.replica, 1);
    stage_let_go(&stays);
    stage_close(&stage);
}

struct canceller {
    struct stage_client *client;
    struct loop_timer *timer;
};

static void cancel_now(void *data)
{
    struct canceller *canceller = data;
    if (canceller->client->ticket && !canceller->client->is_done)
        ticket_cancel(canceller->client->ticket);
}

TEST(a_load_that_all_tickets_left_frees_everything_whenever_they_leave)
{
    for (uint64_t delay_ms = 0; delay_ms < 8; delay_ms++) {
        struct load_stage stage;
        struct stage_client client;
        stage_open(&stage, 0);
        submit(&stage, &client, "memory:m");
        struct canceller canceller = {.client = &client};
        canceller.timer = loop_timer_create(stage.loop, cancel_now, &canceller);
        loop_timer_start(canceller.timer, delay_ms, 0);
        stage_run(&stage);
        assert_true(client.code == ERROR_CANCELLED || client.code == ERROR_OK);
        stage_let_go(&client);
        assert_int_equal(replica_used_bytes(stage.host.replicas), 0);
        loop_timer_destroy(canceller.timer);
        stage_close(&stage);
    }
}

/* A device whose seal takes until the test lets it end. */
static struct device_ops slow_seal_ops;
static int (*quick_seal)(struct segment *segment, struct error *error);
static _Atomic bool is_sealing, may_end;

static int seal_slowly(struct segment *segment, struct error *error)
{
    is_sealing = true;
    while (!may_end)
        sched_yield();
    return quick_seal(segment, error);
}

static void leave_while_it_is_sealed(void *data)
{
    struct stage_client *client = data;
    if (!is_sealing || may_end)
        return;
    ticket_cancel(client->ticket);
    may_end = true;
}

TEST(a_load_that_all_tickets_left_while_it_was_sealed_leaves_no_replica)
{
    struct load_stage stage;
    struct stage_client client;
    stage_open(&stage, 60000);
    const struct device_ops *real = stage.host.device->ops;
    slow_seal_ops = *real;
    quick_seal = real->seal;
    slow_seal_ops.seal = seal_slowly;
    stage.host.device->ops = &slow_seal_ops;
    submit(&stage, &client, "memory:m");
    struct loop_timer *timer = loop_timer_create(stage.loop, leave_while_it_is_sealed, &client);
    loop_timer_start(timer, 0, 1);
    stage_run(&stage);
    loop_timer_destroy(timer);
    assert_int_equal(client.code, ERROR_CANCELLED);
    assert_int_equal(replica_used_bytes(stage.host.replicas), 0);
    stage_close(&stage);
}

struct heirs {
    struct stage_client leaves, stays;
    bool has_come; /* who stays */
    const struct holders *holders;
};
enum { USER_A = 70001, USER_B = 70002 };

static void leave_it_to_another_user(void *data)
{
    struct heirs *heirs = data;
    if (is_sealing && !heirs->has_come)
        stage_submit(&heirs->stays);
    heirs->has_come |= is_sealing;
    if (!heirs->has_come || ticket_result(heirs->stays.ticket)->origin != LOAD_JOINED || may_end)
        return;
    assert_true(holders_bytes(heirs->holders, USER_A) >= TENSOR_BYTES);
    assert_int_equal(holders_bytes(heirs->holders, USER_B), 0);
    ticket_cancel(heirs->leaves.ticket);
    assert_int_equal(holders_bytes(heirs->holders, USER_A), 0);
    assert_true(holders_bytes(heirs->holders, USER_B) >= TENSOR_BYTES);
    may_end = true;
}

TEST(a_load_whose_user_left_is_charged_to_who_still_waits_for_it)
{
    struct load_stage stage;
    struct heirs heirs = {0};
    stage_open(&stage, 60000);
    is_sealing = may_end = false;
    slow_seal_ops = *stage.host.device->ops;
    quick_seal = slow_seal_ops.seal;
    slow_seal_ops.seal = seal_slowly;
    stage.host.device->ops = &slow_seal_ops;
    heirs.holders = replica_holders(stage.host.replicas);
    stage_client_init(&stage, &heirs.leaves, "memory:m");
    stage_client_init(&stage, &heirs.stays, "memory:m");
    heirs.leaves.input.uid = USER_A;
    heirs.stays.input.uid = USER_B;
    stage_submit(&heirs.leaves); /* the other one comes when this one's load is there to be joined */
    struct loop_timer *timer = loop_timer_create(stage.loop, leave_it_to_another_user, &heirs);
    loop_timer_start(timer, 0, 1);
    stage_run(&stage);
    loop_timer_destroy(timer);
    assert_int_equal(heirs.stays.code, ERROR_OK);
    assert_true(holders_bytes(heirs.holders, USER_B) >= TENSOR_BYTES); /* its pin */
    stage_let_go(&heirs.stays);
    assert_int_equal(holders_bytes(heirs.holders, USER_B), 0);
    stage_close(&stage);
}

TEST(idle_time_zero_drops_a_replica_with_its_last_pin)
{
    struct load_stage stage;
    struct stage_client client;
    stage_open(&stage, 0);
    submit(&stage, &client, "memory:m");
    stage_run(&stage);
    assert_true(replica_used_bytes(stage.host.replicas) >= TENSOR_BYTES);
    stage_let_go(&client);
    assert_int_equal(replica_used_bytes(stage.host.replicas), 0);
    stage_close(&stage);
}

TEST(the_least_recently_used_replica_makes_room)
{
    struct load_stage stage;
    struct stage_client client;
    char name[8], reference[16];
    stage_open(&stage, 60000);
    for (unsigned i = 0; i < 7; i++) { /* 5 of them fit */
        snprintf(name, sizeof name, "a%u", i);
        snprintf(reference, sizeof reference, "memory:a%u", i);
        stage_put_artifact(name, i);
        submit(&stage, &client, reference);
        stage_run(&stage);
        assert_int_equal(client.code, ERROR_OK);
        assert_bytes(client.replica, i);
        stage_let_go(&client);
        assert_true(replica_used_bytes(stage.host.replicas) <= STAGE_BUDGET_BYTES);
    }
    submit(&stage, &client, "memory:a6");
    stage_run(&stage);
    assert_true(client.from_replica);
    stage_let_go(&client);
    submit(&stage, &client, "memory:a0");
    stage_run(&stage);
    assert_false(client.from_replica);
    stage_let_go(&client);
    stage_close(&stage);
}

TEST(what_is_held_is_never_evicted_and_the_error_tells_the_numbers)
{
    struct load_stage stage;
    struct stage_client held[5], client;
    char name[8];
    static char references[5][16];
    stage_open(&stage, 60000);
    for (unsigned i = 0; i < 5; i++) {
        snprintf(name, sizeof name, "a%u", i);
        snprintf(references[i], sizeof references[i], "memory:a%u", i);
        stage_put_artifact(name, i);
        submit(&stage, &held[i], references[i]);
        stage_run(&stage);
        assert_int_equal(held[i].code, ERROR_OK);
    }
    submit(&stage, &client, "memory:m");
    stage_run(&stage);
    assert_int_equal(client.code, ERROR_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(client.message, "8388608"));
    for (unsigned i = 0; i < 5; i++) {
        assert_bytes(held[i].replica, i);
        stage_let_go(&held[i]);
    }
    submit(&stage, &client, "memory:m");
    stage_run(&stage);
    assert_int_equal(client.code, ERROR_OK);
    stage_let_go(&client);
    stage_close(&stage);
}

TEST(idle_replicas_give_their_metadata_back_when_it_is_short)
{
    struct load_stage stage;
    struct stage_client first, second;
    stage_open(&stage, 60000);
    stage_put_artifact("n", 2);
    stage.services.quota = quota_create();
    quota_set_kept(stage.services.quota, 0);
    submit(&stage, &first, "memory:m");
    stage_run(&stage);
    assert_int_equal(first.code, ERROR_OK);
    uint64_t taken = quota_taken(stage.services.quota, QUOTA_METADATA);
    assert_true(taken > 0);
    taken -= 1024; /* the list of a run's blocks is charged without asking, headers stay in the cache ... */
    quota_set_limits(stage.services.quota, QUOTA_METADATA, 2 * taken, 0);
    submit(&stage, &second, "memory:n"); /* ... and the first one is held */
    stage_run(&stage);
    assert_int_equal(second.code, ERROR_RESOURCE_EXHAUSTED);
    stage_let_go(&first);
    submit(&stage, &second, "memory:n");
    stage_run(&stage);
    assert_int_equal(second.code, ERROR_OK);
    assert_bytes(second.replica, 2);
    stage_let_go(&second);
    struct replica_counts counts = replica_release(stage.host.replicas, 0, NULL);
    assert_int_equal(counts.released, 1);
    struct quota *quota = stage.services.quota;
    stage_close(&stage);
    assert_int_equal(quota_taken(quota, QUOTA_METADATA), 0);
    quota_destroy(quota);
}

TEST(a_changed_artifact_is_loaded_anew_and_the_old_replica_goes)
{
    struct load_stage stage;
    struct stage_client client;
    stage_open(&stage, 60000);
    submit(&stage, &client, "memory:m");
    stage_run(&stage);
    stage_let_go(&client);
    stage_put_artifact("m", 77);
    submit(&stage, &client, "memory:m");
    stage_run(&stage);
    assert_int_equal(client.code, ERROR_OK);
    assert_false(client.from_replica);
    assert_bytes(client.replica, 77);
    stage_let_go(&client);
    assert_true(replica_used_bytes(stage.host.replicas) < 2 * TENSOR_BYTES);
    stage_close(&stage);
}

TEST(an_unknown_tensor_fails_before_memory_is_taken)
{
    struct load_stage stage;
    struct stage_client client;
    struct view_item item = {.name = "nobody", .name_length = 6};
    stage_open(&stage, 60000);
    stage_client_init(&stage, &client, "memory:m");
    client.input.request.view = (struct view_spec){.items = &item, .n_items = 1};
    stage_submit(&client);
    stage_run(&stage);
    assert_int_equal(client.code, ERROR_NOT_FOUND);
    assert_non_null(strstr(client.message, "nobody"));
    assert_int_equal(replica_used_bytes(stage.host.replicas), 0);
    stage_close(&stage);
}

/* --- parked --------------------------------------------------------------------------------------------------------- */

static struct {
    struct loop_task task;
    struct stage_client clients[3];
    bool is_gone; /* atomic */
} parking;

static void leave_what_is_parked(struct loop_task *task)
{
    (void)task;
    ticket_cancel(parking.clients[2].ticket);
    __atomic_store_n(&parking.is_gone, true, __ATOMIC_RELEASE);
}

/* What goes to the second half of a memory waits until the rank that has all it wants has gone, at most for 20 s. */
static void hold_the_second_half(const struct transport_delivery *delivery)
{
    for (int i = 0; delivery->offset > 4 * MIB && i < 200000; i++) {
        if (__atomic_load_n(&parking.is_gone, __ATOMIC_ACQUIRE))
            return;
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
}

TEST_IN(a_load_that_is_parked_may_be_left, group_set_up, group_tear_down)
{
    struct group_stage *group = *state;
    static const uint32_t views[] = {0, 1, 7};
    group_script.before_delivery = hold_the_second_half;
    parking.task.run = leave_what_is_parked;
    transitions_post_at(&load_machine, LOAD_PARKED, group->stage.loop, &parking.task);
    for (uint32_t rank = 0; rank < 3; rank++) {
        group_prepare(group, &parking.clients[rank], views[rank], rank, 3, NULL);
        stage_submit(&parking.clients[rank]);
    }
    stage_run(&group->stage);
    assert_true(transitions_was_taken(&load_machine, LOAD_PARKED, LOAD_ABANDONED));
    assert_int_equal(parking.clients[2].code, ERROR_CANCELLED);
    group_assert_loaded(&parking.clients[0], 0);
    group_assert_loaded(&parking.clients[1], 1);
    group_assert_nothing_is_left(group);
}

static struct {
    struct loop_task task;
    struct stage_client *client;
} leaving;

static void leave_now(struct loop_task *task)
{
    (void)task;
    ticket_cancel(leaving.client->ticket);
}

TEST(a_load_that_is_left_while_it_runs_publishes_nothing)
{
    struct load_stage stage;
    struct stage_client client;
    stage_open(&stage, 60000);
    leaving.task.run = leave_now;
    leaving.client = &client;
    transitions_post_at(&load_machine, LOAD_RUNNING, stage.loop, &leaving.task);
    submit(&stage, &client, "memory:m");
    stage_run(&stage);
    assert_int_equal(client.code, ERROR_CANCELLED);
    assert_int_equal(replica_used_bytes(stage.host.replicas), 0);
    stage_close(&stage);
}

/* --- other hosts ---------------------------------------------------------------------------------------------------------- */

static struct hosts_facts told; /* of hosts */

static void tell_hosts(void *data, struct hosts_facts *facts)
{
    (void)data;
    *facts = told;
}

static uint64_t n_asked; /* atomic */

static int leave_to_source(struct block_holder *holder, struct block_want *want, struct error *error)
{
    (void)holder, (void)want, (void)error;
    __atomic_add_fetch(&n_asked, 1, __ATOMIC_RELAXED);
    return 1;
}

static void load_from_network(struct load_stage *stage, struct stage_client *client, struct artifact *artifact)
{
    stage_client_init(stage, client, "memory:m");
    client->input.artifact = artifact;
    stage_submit(client);
    stage_run(stage);
    assert_int_equal(client->code, ERROR_OK);
    assert_bytes(client->replica, 1);
}

TEST(only_a_load_that_is_planned_so_asks_other_hosts)
{
    static struct block_holder holder = {.name = "peers", .get = leave_to_source};
    const struct source_options options = {0};
    struct load_stage stage;
    struct stage_client client;
    struct artifact *artifact = NULL;
    struct error error;
    stage_open(&stage, 0);
    stage.services.hosts = (struct load_hosts){.look = tell_hosts, .holder = &holder};
    assert_int_equal(artifact_resolve("memory:m", &options, NULL, 0, &artifact, &error), 0);
    for (int is_network = 0; is_network < 2; is_network++) {
        artifact->source->caps.filesystem = is_network ? SOURCE_NETWORK : SOURCE_LOCAL;
        told = (struct hosts_facts){.is_on = true, .alive = 3};
        n_asked = 0;
        load_from_network(&stage, &client, artifact);
        const struct hosts_choice *choice = &client.replica->plan->hosts;
        assert_string_equal(choice->reason.text,
                            is_network ? "hosts_share:alive=3" : "source_not_shared:the file is on this host");
        assert_int_equal(n_asked > 0, is_network);
        stage_let_go(&client);
    }
    snprintf(told.etcd_problem, sizeof told.etcd_problem, "no connection");
    n_asked = 0;
    load_from_network(&stage, &client, artifact);
    assert_string_equal(client.replica->plan->hosts.reason.text, "etcd_away:no connection");
    assert_int_equal(n_asked, 0);
    stage_let_go(&client);
    artifact_unref(artifact);
    stage_close(&stage);
}

/* The last of all tests. */
TEST(every_transition_that_is_drawn_was_taken)
{
    assert_true(transitions_all_taken(&load_machine));
}

static int set_up_all_tests(void **state)
{
    log_set_level(LOG_ERROR);
    transitions_watch();
    (void)state;
    return 0;
}

TESTS_IN(set_up_all_tests, NULL)
