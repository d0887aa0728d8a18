/* Groups from their tickets to their replicas: transports, retries, and what goes wrong while a group is running.
 *
 * The transport "nccl" of this program copies, and lets a test act when the first bytes are on their way between ranks: then
 * the group is in the middle of its run, whatever the clock says. */
#include "observe/log.h"
#include "tests/support/load_stage.h"
#include "transport/transport.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <time.h>

#include <cmocka.h> /* last: it has a macro called fail */

enum { MIB = 1 << 20, MAX_RANKS = 4 };

/* --- the transport -------------------------------------------------------------------------------------------------- */

static void (*while_planning)(void); /* on the helper that opens it; the loop waits */
static void (*in_the_middle)(void);  /* once, on a worker, before the first delivery */
static uint64_t n_deliveries;        /* atomic */
static bool is_broken;               /* cannot be opened */
static bool loses_bytes;             /* every flush fails */
static uint32_t lost_rank;           /* whose device is out of service; UINT32_MAX = nobody's */

static int scripted_open(struct transport *transport, struct error *error)
{
    (void)transport;
    if (while_planning)
        while_planning();
    return is_broken ? (fail)(error, ERROR_UNAVAILABLE, "NO_LINK", "there is no link") : 0;
}

static int scripted_deliver(struct transport *transport, const struct transport_delivery *delivery, struct error *error)
{
    if (__atomic_add_fetch(&n_deliveries, 1, __ATOMIC_ACQ_REL) == 1 && in_the_middle)
        in_the_middle();
    if (delivery->rank == lost_rank)
        return (fail)(error, ERROR_FAILED_PRECONDITION, "DEVICE_OUT_OF_SERVICE", "the device is gone");
    return transport_loopback.deliver(transport, delivery, error);
}

static int scripted_flush(struct transport *transport, struct error *error)
{
    (void)transport;
    return loses_bytes ? (fail)(error, ERROR_UNAVAILABLE, "LINK_LOST", "the link is gone") : 0;
}

static struct transport_ops scripted = {.name = "nccl",
                                        .caps = {.host_memory = true},
                                        .open = scripted_open,
                                        .deliver = scripted_deliver,
                                        .flush = scripted_flush};

/* --- a group -------------------------------------------------------------------------------------------------------- */

struct group_stage {
    struct load_stage stage;
    struct slice slices[MAX_RANKS];
    struct view_item items[MAX_RANKS];
};

static int set_up(void **state)
{
    struct group_stage *group = test_calloc(1, sizeof *group);
    struct load_stage *stage = &group->stage;
    stage_open(stage, 0);
    stage->config.engine.collective_transport = COLLECTIVE_TRANSPORT_NCCL;
    stage->config.engine.strategy.enable_owner_file_collective = true;
    stage->config.engine.strategy.owner_file_collective_min_dedup_saving_bytes = 1;
    stage->config.engine.strategy.owner_file_collective_batch_bytes = 2 * MIB;
    stage->config.engine.strategy.owner_file_collective_group_assemble_timeout_ms = 600000;
    while_planning = in_the_middle = NULL;
    scripted.caps.stages_batches = false;
    n_deliveries = 0;
    is_broken = loses_bytes = false;
    lost_rank = UINT32_MAX;
    *state = group;
    return 0;
}

static int tear_down(void **state)
{
    struct group_stage *group = *state;
    stage_close(&group->stage);
    test_free(group);
    return 0;
}

static uint64_t bytes_of(uint32_t rank)
{
    return STAGE_TENSOR_BYTES - rank * (uint64_t)MIB;
}

/* With the view of another rank. */
static void prepare(struct group_stage *group, struct stage_client *client, uint32_t view, uint32_t rank,
                    uint32_t world_size, const char *attempt)
{
    stage_client_init(&group->stage, client, "memory:m");
    struct load_request *request = &client->input.request;
    group->slices[view] = (struct slice){0, (int64_t)bytes_of(view)};
    group->items[view] = (struct view_item){.name = "w", .name_length = 1, .n_slices = 1, .slices = &group->slices[view]};
    request->view = (struct view_spec){.items = &group->items[view], .n_items = 1};
    request->has_group = true;
    request->group_id = "g";
    request->attempt = attempt;
    request->rank = rank;
    request->world_size = world_size;
    request->source_locality = LOCALITY_SHARED_SOURCE;
}

static void send_view(struct group_stage *group, struct stage_client *client, uint32_t view, uint32_t rank,
                      uint32_t world_size, const char *attempt)
{
    prepare(group, client, view, rank, world_size, attempt);
    stage_submit(client);
}

/* Every rank wants a little less than the one before, so all have memory of their own and share nearly everything. */
static void send(struct group_stage *group, struct stage_client *client, uint32_t rank, uint32_t world_size,
                 const char *attempt)
{
    send_view(group, client, rank, rank, world_size, attempt);
}

static void assert_loaded(struct stage_client *client, uint32_t rank)
{
    assert_string_equal(client->message, "");
    assert_int_equal(client->code, ERROR_OK);
    assert_true(stage_is_right(client->replica, 1, bytes_of(rank)));
    stage_let_go(client);
}

static void assert_nothing_is_left(const struct group_stage *group)
{
    assert_int_equal(replica_used_bytes(group->stage.host.replicas), 0);
}

struct state_of {
    const struct stage_client *client;
    enum ticket_state state;
};

static bool is_in_state(const void *data)
{
    const struct state_of *wanted = data;
    return ticket_state(wanted->client->ticket) == wanted->state;
}

static void await(struct group_stage *group, const struct stage_client *client, enum ticket_state state)
{
    struct state_of wanted = {client, state};
    stage_run_until(&group->stage, is_in_state, &wanted);
}

/* --- transports ----------------------------------------------------------------------------------------------------- */

static const char *executor_of(const struct stage_client *client)
{
    return executor_names[ticket_result(client->ticket)->plan->executor];
}

static void a_group_uses_the_transport_that_the_configuration_names(void **state)
{
    struct group_stage *group = *state;
    struct stage_client clients[2];
    for (uint32_t rank = 0; rank < 2; rank++)
        send(group, &clients[rank], rank, 2, NULL);
    stage_run(&group->stage);
    assert_string_equal(executor_of(&clients[0]), "owner_file_collective");
    assert_string_equal(ticket_result(clients[0].ticket)->plan->transport.ops->name, "nccl");
    assert_true(n_deliveries > 0);
    for (uint32_t rank = 0; rank < 2; rank++)
        assert_loaded(&clients[rank], rank);
    assert_nothing_is_left(group);
}

static void among_equals_auto_takes_the_loopback(void **state)
{
    struct group_stage *group = *state;
    struct stage_client clients[2];
    group->stage.config.engine.collective_transport = COLLECTIVE_TRANSPORT_AUTO;
    for (uint32_t rank = 0; rank < 2; rank++)
        send(group, &clients[rank], rank, 2, NULL);
    stage_run(&group->stage);
    assert_string_equal(ticket_result(clients[0].ticket)->plan->transport.ops->name, "loopback");
    assert_int_equal(ticket_result(clients[0].ticket)->plan->transport.n_options, 2);
    assert_int_equal(n_deliveries, 0);
    for (uint32_t rank = 0; rank < 2; rank++)
        assert_loaded(&clients[rank], rank);
}

static void a_transport_that_cannot_be_opened_leaves_every_rank_its_own_plan(void **state)
{
    struct group_stage *group = *state;
    struct stage_client clients[2];
    is_broken = true;
    for (uint32_t rank = 0; rank < 2; rank++)
        send(group, &clients[rank], rank, 2, NULL);
    stage_run(&group->stage);
    for (uint32_t rank = 0; rank < 2; rank++) {
        const struct candidate *candidate =
            &ticket_result(clients[rank].ticket)->plan->candidates[EXECUTOR_OWNER_FILE_COLLECTIVE];
        assert_string_equal(candidate->reason.text, "transport_failed:nccl:NO_LINK");
        assert_loaded(&clients[rank], rank);
    }
}

/* --- staging -------------------------------------------------------------------------------------------------------- */

/* Host memory in place of two devices. */
static struct replica_table *stage_beside(struct group_stage *group, uint64_t budget_bytes)
{
    scripted.caps.stages_batches = true;
    group->stage.config.engine.strategy.owner_file_collective_peak_bytes_budget = (uint64_t)1 << 30;
    replica_table_configure(group->stage.host.replicas, budget_bytes, 0);
    return group->stage.host.replicas;
}

static bool may_go_on; /* atomic */

static void hold(void)
{
    while (!__atomic_load_n(&may_go_on, __ATOMIC_ACQUIRE))
        usleep(100);
}

static void what_is_staged_is_charged_to_the_memory_it_is_in_until_the_loads_have_ended(void **state)
{
    struct group_stage *group = *state;
    struct stage_client clients[2];
    struct replica_table *table = stage_beside(group, (uint64_t)1 << 30);
    may_go_on = false;
    in_the_middle = hold;
    for (uint32_t rank = 0; rank < 2; rank++)
        send(group, &clients[rank], rank, 2, NULL);
    await(group, &clients[1], TICKET_WAITING);
    assert_in_range(replica_used_bytes(table), 2 * TRANSPORT_STAGING_UNIT + 1, 3 * TRANSPORT_STAGING_UNIT - 1);
    assert_int_equal(ticket_result(clients[0].ticket)->plan->transport.staging_bytes, TRANSPORT_STAGING_UNIT);
    __atomic_store_n(&may_go_on, true, __ATOMIC_RELEASE);
    stage_run(&group->stage);
    assert_in_range(replica_used_bytes(table), 1, TRANSPORT_STAGING_UNIT - 1);
    for (uint32_t rank = 0; rank < 2; rank++)
        assert_loaded(&clients[rank], rank);
    assert_nothing_is_left(group);
}

static void assert_alone_without_staging(struct group_stage *group, struct stage_client clients[2])
{
    for (uint32_t rank = 0; rank < 2; rank++)
        send(group, &clients[rank], rank, 2, NULL);
    stage_run(&group->stage);
    for (uint32_t rank = 0; rank < 2; rank++) {
        const struct candidate *candidate =
            &ticket_result(clients[rank].ticket)->plan->candidates[EXECUTOR_OWNER_FILE_COLLECTIVE];
        assert_string_equal(candidate->reason.text, "transport_device_budget_exceeded:nccl");
        assert_loaded(&clients[rank], rank);
    }
    assert_nothing_is_left(group);
}

static void ranks_whose_memory_has_no_room_to_stage_load_alone(void **state)
{
    struct stage_client clients[2];
    stage_beside(*state, TRANSPORT_STAGING_UNIT);
    assert_alone_without_staging(*state, clients);
    assert_int_equal(n_deliveries, 0);
}

static struct replica_table *shrinking;

static void shrink(void)
{
    replica_table_configure(shrinking, TRANSPORT_STAGING_UNIT, 0);
}

/* Somebody else took it meanwhile. */
static void room_that_is_gone_when_it_is_needed_is_like_none(void **state)
{
    struct stage_client clients[2];
    shrinking = stage_beside(*state, (uint64_t)1 << 30);
    while_planning = shrink;
    assert_alone_without_staging(*state, clients);
    assert_int_equal(n_deliveries, 0);
}

static void send_required(struct group_stage *group, struct stage_client clients[2])
{
    for (uint32_t rank = 0; rank < 2; rank++) {
        prepare(group, &clients[rank], rank, rank, 2, NULL);
        clients[rank].input.request.collective = COLLECTIVE_REQUIRED;
        stage_submit(&clients[rank]);
    }
    stage_run(&group->stage);
}

static void a_required_group_without_room_to_stage_is_refused(void **state)
{
    struct group_stage *group = *state;
    struct stage_client clients[2];
    stage_beside(group, TRANSPORT_STAGING_UNIT);
    send_required(group, clients);
    for (uint32_t rank = 0; rank < 2; rank++) {
        assert_int_equal(clients[rank].code, ERROR_FAILED_PRECONDITION);
        assert_non_null(strstr(clients[rank].message, "transport_device_budget_exceeded:nccl"));
    }
    assert_nothing_is_left(group);
}

/* --- the joint plan ------------------------------------------------------------------------------------------------- */

/* The joint plan of two ranks that were loaded and dropped again; the caller unrefs it. */
static struct collective_plan *plan_once(struct group_stage *group)
{
    struct stage_client clients[2];
    for (uint32_t rank = 0; rank < 2; rank++)
        send(group, &clients[rank], rank, 2, NULL);
    stage_run(&group->stage);
    struct collective_plan *plan = collective_plan_ref(ticket_result(clients[0].ticket)->plan->group);
    for (uint32_t rank = 0; rank < 2; rank++)
        assert_loaded(&clients[rank], rank);
    return plan;
}

static void as_many_joint_plans_are_kept_as_the_configuration_says(void **state)
{
    struct group_stage *group = *state;
    for (uint64_t n_kept = 0; n_kept <= 1; n_kept++) {
        group->stage.config.engine.strategy.owner_file_collective_planner_cache_entries = n_kept;
        struct collective_plan *first = plan_once(group), *second = plan_once(group);
        assert_int_equal(first == second, n_kept == 1);
        collective_plan_unref(first);
        collective_plan_unref(second);
    }
}

/* --- retries -------------------------------------------------------------------------------------------------------- */

/* Rank 0 of 2, which then waits for the other one. */
static void send_twice(struct group_stage *group, struct stage_client *first, struct stage_client *again)
{
    send(group, first, 0, 2, "a");
    await(group, first, TICKET_ASSEMBLING);
    send(group, again, 0, 2, "a");
    await(group, again, TICKET_ECHO);
}

static void the_same_request_again_waits_for_the_same_result(void **state)
{
    struct group_stage *group = *state;
    struct stage_client first, again, other;
    send_twice(group, &first, &again);
    send(group, &other, 1, 2, "b");
    stage_run(&group->stage);
    assert_ptr_equal(first.replica, again.replica);
    assert_true(again.joined);
    assert_loaded(&first, 0);
    assert_loaded(&again, 0);
    assert_loaded(&other, 1);
    assert_nothing_is_left(group);
}

static bool is_done(const void *data)
{
    return ((const struct stage_client *)data)->is_done;
}

static void whoever_else_claims_the_rank_is_refused(void **state)
{
    struct group_stage *group = *state;
    struct stage_client first, other;
    static const char *const attempts[] = {"b", "", NULL};
    send(group, &first, 0, 2, "a");
    await(group, &first, TICKET_ASSEMBLING);
    for (size_t i = 0; i < sizeof attempts / sizeof attempts[0]; i++) {
        send(group, &other, 0, 2, attempts[i]);
        stage_run_until(&group->stage, is_done, &other);
        assert_int_equal(other.code, ERROR_ALREADY_EXISTS);
        assert_non_null(strstr(other.message, ticket_result(first.ticket)->load_id));
    }
    ticket_cancel(first.ticket);
    assert_int_equal(first.code, ERROR_CANCELLED);
}

static void the_same_attempt_with_another_view_is_refused(void **state)
{
    struct group_stage *group = *state;
    struct stage_client first, other;
    send(group, &first, 0, 2, "a");
    await(group, &first, TICKET_ASSEMBLING);
    send_view(group, &other, 1, 0, 2, "a");
    stage_run_until(&group->stage, is_done, &other);
    assert_int_equal(other.code, ERROR_ALREADY_EXISTS);
    ticket_cancel(first.ticket);
}

static void a_retry_takes_the_place_of_a_request_whose_client_is_gone(void **state)
{
    struct group_stage *group = *state;
    struct stage_client first, again, other;
    send_twice(group, &first, &again);
    ticket_cancel(first.ticket);
    assert_int_equal(ticket_state(again.ticket), TICKET_ASSEMBLING);
    send(group, &other, 1, 2, "b");
    stage_run(&group->stage);
    assert_int_equal(first.code, ERROR_CANCELLED);
    assert_string_equal(executor_of(&again), "owner_file_collective");
    assert_loaded(&again, 0);
    assert_loaded(&other, 1);
}

static void a_retry_that_is_cancelled_hurts_nobody(void **state)
{
    struct group_stage *group = *state;
    struct stage_client first, again, other;
    send_twice(group, &first, &again);
    ticket_cancel(again.ticket);
    assert_int_equal(again.code, ERROR_CANCELLED);
    send(group, &other, 1, 2, "b");
    stage_run(&group->stage);
    assert_loaded(&first, 0);
    assert_loaded(&other, 1);
}

static void a_retry_shares_the_fate_of_a_group_that_dissolves(void **state)
{
    struct group_stage *group = *state;
    struct stage_client first, again;
    group->stage.config.engine.strategy.owner_file_collective_group_assemble_timeout_ms = 300;
    send(group, &first, 0, 2, "a");
    await(group, &first, TICKET_ASSEMBLING);
    send(group, &again, 0, 2, "a");
    stage_run(&group->stage);
    const struct stage_client *clients[] = {&first, &again};
    for (int i = 0; i < 2; i++) {
        const struct plan *plan = ticket_result(clients[i]->ticket)->plan;
        assert_string_equal(plan->candidates[EXECUTOR_OWNER_FILE_COLLECTIVE].reason.text,
                            "group_assemble_timeout:missing=1");
    }
    assert_loaded(&first, 0);
    assert_loaded(&again, 0);
}

/* --- in the middle of a run ----------------------------------------------------------------------------------------- */

static void replace_the_source(void)
{
    stage_put_artifact("m", 77);
}

static void a_source_that_changes_under_a_running_group_fails_all_ranks_and_publishes_nothing(void **state)
{
    struct group_stage *group = *state;
    struct stage_client clients[3];
    in_the_middle = replace_the_source;
    for (uint32_t rank = 0; rank < 3; rank++)
        send(group, &clients[rank], rank, 3, NULL);
    stage_run(&group->stage);
    for (uint32_t rank = 0; rank < 3; rank++)
        assert_int_equal(clients[rank].code, ERROR_FAILED_PRECONDITION);
    assert_nothing_is_left(group);
}

static void a_device_that_fails_under_a_running_group_costs_the_others_nothing(void **state)
{
    struct group_stage *group = *state;
    struct stage_client clients[3];
    lost_rank = 1;
    for (uint32_t rank = 0; rank < 3; rank++)
        send(group, &clients[rank], rank, 3, NULL);
    stage_run(&group->stage);
    assert_int_equal(clients[1].code, ERROR_FAILED_PRECONDITION);
    assert_loaded(&clients[0], 0);
    assert_loaded(&clients[2], 2);
    assert_nothing_is_left(group);
}

/* Rank 3's client leaves; client 4 wants what rank 1 wants, and knows nothing of a group. */
static void bytes_that_are_lost_between_the_ranks_are_read_again_by_whoever_still_wants_them(void **state)
{
    struct group_stage *group = *state;
    struct stage_client clients[5];
    loses_bytes = true;
    may_go_on = false;
    in_the_middle = hold;
    for (uint32_t rank = 0; rank < 4; rank++)
        send(group, &clients[rank], rank, 4, NULL);
    await(group, &clients[3], TICKET_WAITING);
    prepare(group, &clients[4], 1, 1, 4, NULL);
    clients[4].input.request.has_group = false;
    stage_submit(&clients[4]);
    await(group, &clients[4], TICKET_WAITING);
    ticket_cancel(clients[3].ticket);
    __atomic_store_n(&may_go_on, true, __ATOMIC_RELEASE);
    stage_run(&group->stage);
    assert_int_equal(clients[3].code, ERROR_CANCELLED);
    for (uint32_t rank = 0; rank < 3; rank++)
        assert_string_not_equal(executor_of(&clients[rank]), "owner_file_collective");
    const struct candidate *collective = &ticket_result(clients[0].ticket)->plan->candidates[EXECUTOR_OWNER_FILE_COLLECTIVE];
    assert_string_equal(collective->reason.text, "transport_failed:nccl:LINK_LOST");
    for (uint32_t rank = 0; rank < 3; rank++)
        assert_loaded(&clients[rank], rank);
    assert_loaded(&clients[4], 1);
    assert_nothing_is_left(group);
}

static void a_required_group_that_loses_bytes_fails(void **state)
{
    struct group_stage *group = *state;
    struct stage_client clients[2];
    loses_bytes = true;
    send_required(group, clients);
    for (uint32_t rank = 0; rank < 2; rank++) {
        assert_int_equal(clients[rank].code, ERROR_UNAVAILABLE);
        assert_string_equal(clients[rank].message, "the link is gone");
    }
    assert_nothing_is_left(group);
}

static struct {
    struct loop_task task;
    struct loop *loop;
    struct stage_client *client;
    bool is_gone; /* atomic */
} departure;

static void depart(struct loop_task *task)
{
    (void)task;
    ticket_cancel(departure.client->ticket);
    __atomic_store_n(&departure.is_gone, true, __ATOMIC_RELEASE);
}

static void let_the_client_die(void)
{
    departure.task.run = depart;
    loop_post(departure.loop, &departure.task);
    while (!__atomic_load_n(&departure.is_gone, __ATOMIC_ACQUIRE))
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

static void a_client_that_dies_under_a_running_group_is_not_waited_for(void **state)
{
    struct group_stage *group = *state;
    for (uint32_t doomed = 0; doomed < 3; doomed++) {
        struct stage_client clients[3];
        departure.loop = group->stage.loop;
        departure.client = &clients[doomed];
        departure.is_gone = false;
        n_deliveries = 0;
        in_the_middle = let_the_client_die;
        for (uint32_t rank = 0; rank < 3; rank++)
            send(group, &clients[rank], rank, 3, NULL);
        stage_run(&group->stage);
        for (uint32_t rank = 0; rank < 3; rank++) {
            if (rank == doomed)
                assert_int_equal(clients[rank].code, ERROR_CANCELLED);
            else
                assert_loaded(&clients[rank], rank);
        }
        assert_nothing_is_left(group);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    log_set_level(LOG_ERROR);
    transport_register(&scripted);
    const struct CMUnitTest tests[] = {
        TEST(a_group_uses_the_transport_that_the_configuration_names),
        TEST(among_equals_auto_takes_the_loopback),
        TEST(a_transport_that_cannot_be_opened_leaves_every_rank_its_own_plan),
        TEST(what_is_staged_is_charged_to_the_memory_it_is_in_until_the_loads_have_ended),
        TEST(ranks_whose_memory_has_no_room_to_stage_load_alone),
        TEST(room_that_is_gone_when_it_is_needed_is_like_none),
        TEST(a_required_group_without_room_to_stage_is_refused),
        TEST(as_many_joint_plans_are_kept_as_the_configuration_says),
        TEST(the_same_request_again_waits_for_the_same_result),
        TEST(whoever_else_claims_the_rank_is_refused),
        TEST(the_same_attempt_with_another_view_is_refused),
        TEST(a_retry_takes_the_place_of_a_request_whose_client_is_gone),
        TEST(a_retry_that_is_cancelled_hurts_nobody),
        TEST(a_retry_shares_the_fate_of_a_group_that_dissolves),
        TEST(a_source_that_changes_under_a_running_group_fails_all_ranks_and_publishes_nothing),
        TEST(a_device_that_fails_under_a_running_group_costs_the_others_nothing),
        TEST(bytes_that_are_lost_between_the_ranks_are_read_again_by_whoever_still_wants_them),
        TEST(a_required_group_that_loses_bytes_fails),
        TEST(a_client_that_dies_under_a_running_group_is_not_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
