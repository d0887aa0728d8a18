/* A request's way through its states: retries, what ends it in each state, and who cancels it there. Each transition that is
 * drawn in daemon/load/README.md is taken by some test. */
#include "tests/support/unit.h"

#include "observe/counters.h"
#include "observe/log.h"
#include "tests/support/group_stage.h"
#include "tests/support/transitions.h"

#include <time.h>
#include <unistd.h>

/* --- the same request again ----------------------------------------------------------------------------------------- */

/* Rank 0 of 2, which then waits for the other one. */
static void send_twice(struct group_stage *group, struct stage_client *first, struct stage_client *again)
{
    group_send(group, first, 0, 2, "a");
    group_await(group, first, TICKET_ASSEMBLING);
    group_send(group, again, 0, 2, "a");
    group_await(group, again, TICKET_ECHO);
}

TEST_IN(the_same_request_again_waits_for_the_same_result, group_set_up, group_tear_down)
{
    struct group_stage *group = *state;
    struct stage_client first, again, other;
    send_twice(group, &first, &again);
    group_send(group, &other, 1, 2, "b");
    stage_run(&group->stage);
    assert_ptr_equal(first.replica, again.replica);
    assert_true(again.joined);
    group_assert_loaded(&first, 0);
    group_assert_loaded(&again, 0);
    group_assert_loaded(&other, 1);
    group_assert_nothing_is_left(group);
}

static bool is_done(const void *data)
{
    return ((const struct stage_client *)data)->is_done;
}

TEST_IN(the_same_attempt_with_another_view_is_refused, group_set_up, group_tear_down)
{
    struct group_stage *group = *state;
    struct stage_client first, other;
    group_send(group, &first, 0, 2, "a");
    group_await(group, &first, TICKET_ASSEMBLING);
    group_prepare(group, &other, 1, 0, 2, "a");
    stage_submit(&other);
    stage_run_until(&group->stage, is_done, &other);
    assert_int_equal(other.code, ERROR_ALREADY_EXISTS);
    ticket_cancel(first.ticket);
}

TEST_IN(a_retry_takes_the_place_of_a_request_whose_client_is_gone, group_set_up, group_tear_down)
{
    struct group_stage *group = *state;
    struct stage_client first, again, other;
    send_twice(group, &first, &again);
    ticket_cancel(first.ticket);
    assert_int_equal(ticket_state(again.ticket), TICKET_ASSEMBLING);
    group_send(group, &other, 1, 2, "b");
    stage_run(&group->stage);
    assert_int_equal(first.code, ERROR_CANCELLED);
    assert_int_equal(ticket_result(again.ticket)->plan->executor, EXECUTOR_OWNER_FILE_COLLECTIVE);
    group_assert_loaded(&again, 0);
    group_assert_loaded(&other, 1);
}

TEST_IN(a_retry_shares_the_fate_of_a_group_that_dissolves, group_set_up, group_tear_down)
{
    struct group_stage *group = *state;
    struct stage_client first, again, other;
    group_script.is_broken = true;
    send_twice(group, &first, &again);
    group_send(group, &other, 1, 2, "b");
    stage_run(&group->stage);
    const struct stage_client *clients[] = {&first, &again};
    for (int i = 0; i < 2; i++) {
        const struct plan *plan = ticket_result(clients[i]->ticket)->plan;
        assert_string_equal(plan->candidates[EXECUTOR_OWNER_FILE_COLLECTIVE].reason.text, "transport_failed:nccl:NO_LINK");
    }
    group_assert_loaded(&first, 0);
    group_assert_loaded(&again, 0);
    group_assert_loaded(&other, 1);
}

TEST_IN(a_retry_fails_with_a_group_that_cannot_run, group_set_up, group_tear_down)
{
    struct group_stage *group = *state;
    struct stage_client first, again, other;
    group_stage_batches(group, TRANSPORT_STAGING_UNIT);
    group_send_required(group, &first, 0, 2, "a");
    group_await(group, &first, TICKET_ASSEMBLING);
    group_send_required(group, &again, 0, 2, "a");
    group_await(group, &again, TICKET_ECHO);
    group_send_required(group, &other, 1, 2, "b");
    stage_run(&group->stage);
    assert_int_equal(first.code, ERROR_FAILED_PRECONDITION);
    assert_int_equal(again.code, ERROR_FAILED_PRECONDITION);
    assert_string_equal(again.message, first.message);
    assert_int_equal(other.code, ERROR_FAILED_PRECONDITION);
    group_assert_nothing_is_left(group);
}

/* --- alone after all ------------------------------------------------------------------------------------------------ */

TEST_IN(ranks_that_lost_bytes_load_again_alone, group_set_up, group_tear_down)
{
    struct group_stage *group = *state;
    struct stage_client clients[2];
    group_script.loses_bytes = true;
    for (uint32_t rank = 0; rank < 2; rank++)
        group_send(group, &clients[rank], rank, 2, NULL);
    stage_run(&group->stage);
    for (uint32_t rank = 0; rank < 2; rank++) {
        assert_false(clients[rank].joined);
        group_assert_loaded(&clients[rank], rank);
    }
}

TEST_IN(a_rank_that_insists_on_ranks_that_do_not_come_fails, group_set_up, group_tear_down)
{
    struct group_stage *group = *state;
    struct stage_client client;
    group->stage.config.engine.strategy.owner_file_collective_group_assemble_timeout_ms = 1;
    group_send_required(group, &client, 0, 2, NULL);
    stage_run(&group->stage);
    assert_int_equal(client.code, ERROR_DEADLINE_EXCEEDED);
}

TEST_IN(ranks_without_a_transport_load_alone, group_set_up, group_tear_down)
{
    struct group_stage *group = *state;
    struct stage_client clients[2];
    group_script.is_broken = true;
    for (uint32_t rank = 0; rank < 2; rank++)
        group_send(group, &clients[rank], rank, 2, NULL);
    stage_run(&group->stage);
    for (uint32_t rank = 0; rank < 2; rank++)
        group_assert_loaded(&clients[rank], rank);
}

TEST_IN(who_insists_on_a_group_and_names_none_fails, group_set_up, group_tear_down)
{
    struct group_stage *group = *state;
    struct stage_client client;
    stage_client_init(&group->stage, &client, "memory:m");
    client.input.request.collective = COLLECTIVE_REQUIRED;
    stage_submit(&client);
    stage_run(&group->stage);
    assert_int_equal(client.code, ERROR_FAILED_PRECONDITION);
}

/* --- what there is -------------------------------------------------------------------------------------------------- */

TEST_IN(a_request_without_a_group_is_served_by_what_there_is, group_set_up, group_tear_down)
{
    struct group_stage *group = *state;
    struct stage_client clients[3];
    for (int i = 0; i < 3; i++) {
        group_prepare(group, &clients[i], 0, 0, 1, NULL);
        clients[i].input.request.has_group = false;
    }
    stage_submit(&clients[0]);
    group_await(group, &clients[0], TICKET_WAITING);
    stage_submit(&clients[1]); /* it may find the load or, when that was quick, the replica */
    stage_run(&group->stage);
    stage_submit(&clients[2]);
    stage_run(&group->stage);
    assert_false(clients[0].joined || clients[0].from_replica);
    assert_true(clients[1].joined || clients[1].from_replica);
    assert_true(clients[2].from_replica);
    for (int i = 0; i < 3; i++)
        group_assert_loaded(&clients[i], 0);
    group_assert_nothing_is_left(group);
}

TEST_IN(who_wants_only_what_is_in_memory_gets_no_load, group_set_up, group_tear_down)
{
    struct group_stage *group = *state;
    struct stage_client clients[3];
    uint64_t n_before = counters_sum(COUNTER_LOADS_READ);
    for (int i = 0; i < 3; i++) {
        group_prepare(group, &clients[i], 0, 0, 1, NULL);
        clients[i].input.request.has_group = false;
        clients[i].input.request.resident_only = i != 1;
        stage_submit(&clients[i]);
        stage_run(&group->stage);
    }
    assert_int_equal(clients[0].code, ERROR_FAILED_PRECONDITION);
    assert_non_null(strstr(clients[0].message, "not in memory"));
    assert_int_equal(counters_sum(COUNTER_LOADS_READ), n_before + 2); /* no failure: a question, and its answer */
    assert_false(clients[1].from_replica || clients[1].joined);
    assert_true(clients[2].from_replica);
    for (int i = 1; i < 3; i++)
        group_assert_loaded(&clients[i], 0);
    group_assert_nothing_is_left(group);
}

static bool may_go_on; /* atomic */

static void hold(void)
{
    while (!__atomic_load_n(&may_go_on, __ATOMIC_ACQUIRE))
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

TEST_IN(a_request_without_a_group_joins_the_load_of_a_rank, group_set_up, group_tear_down)
{
    struct group_stage *group = *state;
    struct stage_client clients[3];
    may_go_on = false;
    group_script.in_the_middle = hold;
    for (uint32_t rank = 0; rank < 2; rank++)
        group_send(group, &clients[rank], rank, 2, NULL);
    group_await(group, &clients[1], TICKET_WAITING);
    group_prepare(group, &clients[2], 1, 1, 2, NULL);
    clients[2].input.request.has_group = false;
    stage_submit(&clients[2]);
    group_await(group, &clients[2], TICKET_WAITING);
    __atomic_store_n(&may_go_on, true, __ATOMIC_RELEASE);
    stage_run(&group->stage);
    assert_true(clients[2].joined);
    group_assert_loaded(&clients[0], 0);
    group_assert_loaded(&clients[1], 1);
    group_assert_loaded(&clients[2], 1);
}

/* --- cancelling ----------------------------------------------------------------------------------------------------- */

static struct {
    struct loop_task task;
    struct stage_client clients[2];
    enum ticket_state state;
    unsigned n_cancelled;
} cancelling;

static void cancel_who_is_in_the_state(struct loop_task *task)
{
    (void)task;
    for (int i = 0; i < 2; i++) {
        const struct stage_client *client = &cancelling.clients[i];
        if (!client->ticket || client->is_done || ticket_state(client->ticket) != cancelling.state)
            continue;
        ticket_cancel(client->ticket);
        cancelling.n_cancelled++;
    }
    if (cancelling.state == TICKET_ECHO) /* no other rank will come */
        ticket_cancel(cancelling.clients[0].ticket);
}

static void send_one(struct group_stage *group)
{
    stage_client_init(&group->stage, &cancelling.clients[0], "memory:m");
    stage_submit(&cancelling.clients[0]);
}

static void send_one_rank(struct group_stage *group)
{
    group_send(group, &cancelling.clients[0], 0, 2, NULL);
}

static void send_one_rank_twice(struct group_stage *group)
{
    group_send(group, &cancelling.clients[0], 0, 2, "a");
    group_await(group, &cancelling.clients[0], TICKET_ASSEMBLING);
    group_send(group, &cancelling.clients[1], 0, 2, "a");
}

static void send_both_ranks(struct group_stage *group)
{
    for (uint32_t rank = 0; rank < 2; rank++)
        group_send(group, &cancelling.clients[rank], rank, 2, NULL);
}

static void send_ranks_that_will_be_alone(struct group_stage *group)
{
    group_script.is_broken = true;
    send_both_ranks(group);
}

TEST_IN(a_request_may_be_cancelled_in_every_state, group_set_up, group_tear_down)
{
    static const struct {
        enum ticket_state state;
        void (*send)(struct group_stage *group);
        unsigned n_cancelled;
    } cases[] = {{TICKET_RESOLVING, send_one, 1},
                 {TICKET_PLANNING, send_one, 1},
                 {TICKET_ASSEMBLING, send_one_rank, 1},
                 {TICKET_ECHO, send_one_rank_twice, 1},
                 {TICKET_PLANNING_JOINTLY, send_both_ranks, 2},
                 {TICKET_PLANNING_ALONE, send_ranks_that_will_be_alone, 2},
                 {TICKET_WAITING, send_one, 1}};
    struct group_stage *group = *state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        memset(&cancelling, 0, sizeof cancelling);
        cancelling.task.run = cancel_who_is_in_the_state;
        cancelling.state = cases[i].state;
        group_script.is_broken = false;
        transitions_post_at(&ticket_machine, cases[i].state, group->stage.loop, &cancelling.task);
        cases[i].send(group);
        stage_run(&group->stage);
        assert_int_equal(cancelling.n_cancelled, cases[i].n_cancelled);
        for (unsigned c = 0; c < cancelling.n_cancelled; c++)
            assert_int_equal(cancelling.clients[cases[i].state == TICKET_ECHO ? 1 : c].code, ERROR_CANCELLED);
        group_assert_nothing_is_left(group);
    }
}

/* The last of all tests. */
TEST(every_transition_that_is_drawn_was_taken)
{
    assert_true(transitions_all_taken(&ticket_machine));
}

/* Three ranks, two of them with one view. The first delivery between them waits. */
static void start_two_loads(struct group_stage *group, struct stage_client clients[3])
{
    static const uint32_t views[] = {0, 0, 1};
    may_go_on = false;
    group_script.in_the_middle = hold;
    for (uint32_t rank = 0; rank < 3; rank++) {
        group_prepare(group, &clients[rank], views[rank], rank, 3, NULL);
        clients[rank].input.pid = 100 + (pid_t)rank;
        stage_submit(&clients[rank]);
    }
    group_await(group, &clients[2], TICKET_WAITING);
}

static void let_them_end(struct group_stage *group, struct stage_client clients[3])
{
    __atomic_store_n(&may_go_on, true, __ATOMIC_RELEASE);
    stage_run(&group->stage);
    for (uint32_t rank = 0; rank < 3; rank++)
        group_assert_loaded(&clients[rank], rank == 2 ? 1 : 0);
}

struct seen {
    unsigned n_loads, n_tickets;
    uint64_t total_bytes, pids;
};

static void see_load(void *data, const struct load_info *info)
{
    struct seen *seen = data;
    assert_string_equal(info->artifact, "memory:m");
    assert_string_equal(info->stage, "read");
    assert_int_equal(strlen(info->id), LOAD_ID_CHARS - 1);
    assert_true(info->done_bytes <= info->total_bytes);
    seen->n_loads++;
    seen->n_tickets += (unsigned)info->n_tickets;
    seen->total_bytes += info->total_bytes;
    seen->pids += (uint64_t)info->pid;
}

TEST_IN(every_load_in_flight_is_told_with_those_who_wait_for_it, group_set_up, group_tear_down)
{
    struct group_stage *group = *state;
    struct stage_client clients[3];
    struct seen seen = {0};
    assert_true(load_table_idle(group->stage.loads));
    start_two_loads(group, clients);
    assert_false(load_table_idle(group->stage.loads));
    load_table_each(group->stage.loads, see_load, &seen);
    assert_int_equal(seen.n_loads, 2);
    assert_int_equal(seen.n_tickets, 3);
    assert_int_equal(seen.total_bytes, group_bytes_of(0) + group_bytes_of(1));
    assert_int_equal(seen.pids, 100 + 102); /* of the two who wait for one load, the first */
    let_them_end(group, clients);
    assert_true(load_table_idle(group->stage.loads));
}

struct watcher {
    struct ticket *ticket;
    unsigned n_told;
    bool leaves, is_done;
};

static void on_progress(void *data, const struct load_info *info)
{
    struct watcher *watcher = data;
    assert_int_equal(info->total_bytes, group_bytes_of(1));
    watcher->n_told++;
    if (watcher->leaves)
        ticket_cancel(watcher->ticket);
}

static void on_done(void *data, const struct load_result *result, const struct error *error)
{
    struct watcher *watcher = data;
    assert_true(watcher->leaves == (error != NULL));
    assert_int_equal(result->origin, LOAD_JOINED);
    watcher->is_done = true;
}

static bool was_told_twice(const void *data)
{
    return ((const struct watcher *)data)->n_told >= 2;
}

static bool watcher_is_done(const void *data)
{
    return ((const struct watcher *)data)->is_done;
}

TEST_IN(who_waits_is_told_of_progress_again_and_again_also_when_one_leaves_meanwhile, group_set_up, group_tear_down)
{
    static const struct ticket_events events = {.progress = on_progress, .done = on_done};
    struct group_stage *group = *state;
    struct stage_client clients[3], like;
    struct watcher watchers[3] = {{.leaves = false}, {.leaves = true}, {.leaves = false}};
    start_two_loads(group, clients);
    group_prepare(group, &like, 1, 2, 3, NULL);
    like.input.request.has_group = false;
    for (int i = 0; i < 3; i++) {
        struct ticket_input input = like.input;
        input.request.has_group = false;
        watchers[i].ticket = ticket_create(group->stage.loads, &input);
        ticket_submit(watchers[i].ticket, GOAL_REPLICA, &events, &watchers[i]);
    }
    stage_run_until(&group->stage, was_told_twice, &watchers[0]);
    stage_run_until(&group->stage, was_told_twice, &watchers[2]);
    assert_true(watchers[1].is_done && watchers[1].n_told == 1);
    let_them_end(group, clients);
    for (int i = 0; i < 3; i++) {
        stage_run_until(&group->stage, watcher_is_done, &watchers[i]);
        ticket_destroy(watchers[i].ticket);
    }
    group_assert_nothing_is_left(group);
}

TEST_IN(whoever_else_claims_the_rank_is_refused, group_set_up, group_tear_down)
{
    struct group_stage *group = *state;
    struct stage_client first, other;
    static const char *const attempts[] = {"b", "", NULL};
    group_send(group, &first, 0, 2, "a");
    group_await(group, &first, TICKET_ASSEMBLING);
    for (size_t i = 0; i < sizeof attempts / sizeof attempts[0]; i++) {
        group_send(group, &other, 0, 2, attempts[i]);
        stage_run_until(&group->stage, is_done, &other);
        assert_int_equal(other.code, ERROR_ALREADY_EXISTS);
        assert_non_null(strstr(other.message, ticket_result(first.ticket)->load_id));
    }
    ticket_cancel(first.ticket);
    assert_int_equal(first.code, ERROR_CANCELLED);
}

TEST_IN(a_retry_that_is_cancelled_hurts_nobody, group_set_up, group_tear_down)
{
    struct group_stage *group = *state;
    struct stage_client first, again, other;
    group_send(group, &first, 0, 2, "a");
    group_await(group, &first, TICKET_ASSEMBLING);
    group_send(group, &again, 0, 2, "a");
    group_await(group, &again, TICKET_ECHO);
    ticket_cancel(again.ticket);
    assert_int_equal(again.code, ERROR_CANCELLED);
    group_send(group, &other, 1, 2, "b");
    stage_run(&group->stage);
    group_assert_loaded(&first, 0);
    group_assert_loaded(&other, 1);
}

static int set_up_all_tests(void **state)
{
    log_set_level(LOG_ERROR);
    transitions_watch();
    (void)state;
    return 0;
}

TESTS_IN(set_up_all_tests, NULL)
