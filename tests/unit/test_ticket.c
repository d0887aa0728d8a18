/* A request's way through its states: retries, what ends it in each state, and who cancels it there. Each transition that is
 * drawn in daemon/load/README.md is taken by some test. */
#include "observe/log.h"
#include "tests/support/group_stage.h"
#include "tests/support/transitions.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h> /* last: it has a macro called fail */

/* --- the same request again ----------------------------------------------------------------------------------------- */

/* Rank 0 of 2, which then waits for the other one. */
static void send_twice(struct group_stage *group, struct stage_client *first, struct stage_client *again)
{
    group_send(group, first, 0, 2, "a");
    group_await(group, first, TICKET_ASSEMBLING);
    group_send(group, again, 0, 2, "a");
    group_await(group, again, TICKET_ECHO);
}

static void the_same_request_again_waits_for_the_same_result(void **state)
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

static void the_same_attempt_with_another_view_is_refused(void **state)
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

static void a_retry_takes_the_place_of_a_request_whose_client_is_gone(void **state)
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

static void a_retry_shares_the_fate_of_a_group_that_dissolves(void **state)
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

static void a_retry_fails_with_a_group_that_cannot_run(void **state)
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

static void ranks_that_lost_bytes_load_again_alone(void **state)
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

static void a_rank_that_insists_on_ranks_that_do_not_come_fails(void **state)
{
    struct group_stage *group = *state;
    struct stage_client client;
    group->stage.config.engine.strategy.owner_file_collective_group_assemble_timeout_ms = 1;
    group_send_required(group, &client, 0, 2, NULL);
    stage_run(&group->stage);
    assert_int_equal(client.code, ERROR_DEADLINE_EXCEEDED);
}

static void ranks_without_a_transport_load_alone(void **state)
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

static void who_insists_on_a_group_and_names_none_fails(void **state)
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

static void a_request_without_a_group_is_served_by_what_there_is(void **state)
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

static void who_wants_only_what_is_in_memory_gets_no_load(void **state)
{
    struct group_stage *group = *state;
    struct stage_client clients[3];
    for (int i = 0; i < 3; i++) {
        group_prepare(group, &clients[i], 0, 0, 1, NULL);
        clients[i].input.request.has_group = false;
        clients[i].input.request.resident_only = i != 1;
        stage_submit(&clients[i]);
        stage_run(&group->stage);
    }
    assert_int_equal(clients[0].code, ERROR_FAILED_PRECONDITION);
    assert_non_null(strstr(clients[0].message, "not in memory"));
    assert_int_equal(load_table_totals(group->stage.loads).failed, 0); /* a question, and its answer */
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

static void a_request_without_a_group_joins_the_load_of_a_rank(void **state)
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
    if (cancelling.state == TICKET_ECHO) /* nobody else will come */
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

static void a_request_may_be_cancelled_in_every_state(void **state)
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
static void every_transition_that_is_drawn_was_taken(void **state)
{
    (void)state;
    assert_true(transitions_all_taken(&ticket_machine));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, group_set_up, group_tear_down)

int main(void)
{
    log_set_level(LOG_ERROR);
    transitions_watch();
    const struct CMUnitTest tests[] = {
        TEST(the_same_request_again_waits_for_the_same_result),
        TEST(the_same_attempt_with_another_view_is_refused),
        TEST(a_retry_takes_the_place_of_a_request_whose_client_is_gone),
        TEST(a_retry_shares_the_fate_of_a_group_that_dissolves),
        TEST(a_retry_fails_with_a_group_that_cannot_run),
        TEST(ranks_that_lost_bytes_load_again_alone),
        TEST(a_rank_that_insists_on_ranks_that_do_not_come_fails),
        TEST(ranks_without_a_transport_load_alone),
        TEST(who_insists_on_a_group_and_names_none_fails),
        TEST(a_request_without_a_group_is_served_by_what_there_is),
        TEST(who_wants_only_what_is_in_memory_gets_no_load),
        TEST(a_request_without_a_group_joins_the_load_of_a_rank),
        TEST(a_request_may_be_cancelled_in_every_state),
        cmocka_unit_test(every_transition_that_is_drawn_was_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
