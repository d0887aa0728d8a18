/* Groups from their tickets to their replicas: transports, the joint plan, and what goes wrong while a group is running. */
#include "tests/support/unit.h"

#include "base/memory.h"
#include "load/load.h"
#include "load/team.h"
#include "observe/log.h"
#include "tests/support/group_stage.h"
#include "tests/support/transitions.h"

#include <time.h>
#include <unistd.h>

/* --- transports ----------------------------------------------------------------------------------------------------- */

static const char *executor_of(const struct stage_client *client)
{
    return executor_names[ticket_result(client->ticket)->plan->executor];
}

TEST_IN(a_group_uses_the_transport_that_the_configuration_names, group_set_up, group_tear_down)
{
    struct group_stage *group = *state;
    struct stage_client clients[2];
    for (uint32_t rank = 0; rank < 2; rank++)
        group_send(group, &clients[rank], rank, 2, NULL);
    stage_run(&group->stage);
    assert_string_equal(executor_of(&clients[0]), "owner_file_collective");
    assert_string_equal(ticket_result(clients[0].ticket)->plan->transport.ops->name, "nccl");
    assert_true(group_script.n_deliveries > 0);
    for (uint32_t rank = 0; rank < 2; rank++)
        group_assert_loaded(&clients[rank], rank);
    group_assert_nothing_is_left(group);
}

TEST_IN(among_equals_auto_takes_the_loopback, group_set_up, group_tear_down)
{
    struct group_stage *group = *state;
    struct stage_client clients[2];
    group->stage.config.engine.collective_transport = COLLECTIVE_TRANSPORT_AUTO;
    for (uint32_t rank = 0; rank < 2; rank++)
        group_send(group, &clients[rank], rank, 2, NULL);
    stage_run(&group->stage);
    assert_string_equal(ticket_result(clients[0].ticket)->plan->transport.ops->name, "loopback");
    assert_int_equal(ticket_result(clients[0].ticket)->plan->transport.n_options, 2);
    assert_int_equal(group_script.n_deliveries, 0);
    for (uint32_t rank = 0; rank < 2; rank++)
        group_assert_loaded(&clients[rank], rank);
}

TEST_IN(a_transport_that_cannot_be_opened_leaves_every_rank_its_own_plan, group_set_up, group_tear_down)
{
    struct group_stage *group = *state;
    struct stage_client clients[2];
    group_script.is_broken = true;
    for (uint32_t rank = 0; rank < 2; rank++)
        group_send(group, &clients[rank], rank, 2, NULL);
    stage_run(&group->stage);
    for (uint32_t rank = 0; rank < 2; rank++) {
        const struct candidate *candidate =
            &ticket_result(clients[rank].ticket)->plan->candidates[EXECUTOR_OWNER_FILE_COLLECTIVE];
        assert_string_equal(candidate->reason.text, "transport_failed:nccl:NO_LINK");
        group_assert_loaded(&clients[rank], rank);
    }
}

/* --- staging -------------------------------------------------------------------------------------------------------- */

static bool may_go_on; /* atomic */

static void hold(void)
{
    while (!__atomic_load_n(&may_go_on, __ATOMIC_ACQUIRE))
        usleep(100);
}

TEST_IN(what_is_staged_is_charged_to_the_memory_it_is_in_until_the_loads_have_ended, group_set_up, group_tear_down)
{
    struct group_stage *group = *state;
    struct stage_client clients[2];
    struct replica_table *table = group_stage_batches(group, (uint64_t)1 << 30);
    may_go_on = false;
    group_script.in_the_middle = hold;
    for (uint32_t rank = 0; rank < 2; rank++)
        group_send(group, &clients[rank], rank, 2, NULL);
    group_await(group, &clients[1], TICKET_WAITING);
    assert_in_range(replica_used_bytes(table), 2 * TRANSPORT_STAGING_UNIT + 1, 3 * TRANSPORT_STAGING_UNIT - 1);
    assert_int_equal(ticket_result(clients[0].ticket)->plan->transport.staging_bytes, TRANSPORT_STAGING_UNIT);
    __atomic_store_n(&may_go_on, true, __ATOMIC_RELEASE);
    stage_run(&group->stage);
    assert_in_range(replica_used_bytes(table), 1, TRANSPORT_STAGING_UNIT - 1);
    for (uint32_t rank = 0; rank < 2; rank++)
        group_assert_loaded(&clients[rank], rank);
    group_assert_nothing_is_left(group);
}

static void assert_alone_without_staging(struct group_stage *group, struct stage_client clients[2])
{
    for (uint32_t rank = 0; rank < 2; rank++)
        group_send(group, &clients[rank], rank, 2, NULL);
    stage_run(&group->stage);
    for (uint32_t rank = 0; rank < 2; rank++) {
        const struct candidate *candidate =
            &ticket_result(clients[rank].ticket)->plan->candidates[EXECUTOR_OWNER_FILE_COLLECTIVE];
        assert_string_equal(candidate->reason.text, "transport_device_budget_exceeded:nccl");
        group_assert_loaded(&clients[rank], rank);
    }
    group_assert_nothing_is_left(group);
}

TEST_IN(ranks_whose_memory_has_no_room_to_stage_load_alone, group_set_up, group_tear_down)
{
    struct stage_client clients[2];
    group_stage_batches(*state, TRANSPORT_STAGING_UNIT);
    assert_alone_without_staging(*state, clients);
    assert_int_equal(group_script.n_deliveries, 0);
}

static struct replica_table *shrinking;

static void shrink(void)
{
    replica_table_configure(shrinking, &(struct replica_limits){TRANSPORT_STAGING_UNIT, 0, 10});
}

/* Another load took it meanwhile. */
TEST_IN(room_that_is_gone_when_it_is_needed_is_like_none, group_set_up, group_tear_down)
{
    struct stage_client clients[2];
    shrinking = group_stage_batches(*state, (uint64_t)1 << 30);
    group_script.while_planning = shrink;
    assert_alone_without_staging(*state, clients);
    assert_int_equal(group_script.n_deliveries, 0);
}

static void run_required(struct group_stage *group, struct stage_client clients[2])
{
    for (uint32_t rank = 0; rank < 2; rank++)
        group_send_required(group, &clients[rank], rank, 2, NULL);
    stage_run(&group->stage);
}

TEST_IN(a_required_group_without_room_to_stage_is_refused, group_set_up, group_tear_down)
{
    struct group_stage *group = *state;
    struct stage_client clients[2];
    group_stage_batches(group, TRANSPORT_STAGING_UNIT);
    run_required(group, clients);
    for (uint32_t rank = 0; rank < 2; rank++) {
        assert_int_equal(clients[rank].code, ERROR_FAILED_PRECONDITION);
        assert_non_null(strstr(clients[rank].message, "transport_device_budget_exceeded:nccl"));
    }
    group_assert_nothing_is_left(group);
}

/* --- the joint plan ------------------------------------------------------------------------------------------------- */

/* The joint plan of two ranks that were loaded and dropped again; the caller unrefs it. */
static struct collective_plan *plan_once(struct group_stage *group)
{
    struct stage_client clients[2];
    for (uint32_t rank = 0; rank < 2; rank++)
        group_send(group, &clients[rank], rank, 2, NULL);
    stage_run(&group->stage);
    struct collective_plan *plan = collective_plan_ref(ticket_result(clients[0].ticket)->plan->group);
    for (uint32_t rank = 0; rank < 2; rank++)
        group_assert_loaded(&clients[rank], rank);
    return plan;
}

TEST_IN(as_many_joint_plans_are_kept_as_the_configuration_says, group_set_up, group_tear_down)
{
    struct group_stage *group = *state;
    static const uint64_t n_kept[] = {0, 1, 0}; /* as reloads change it */
    for (size_t i = 0; i < 3; i++) {
        group->stage.config.engine.strategy.owner_file_collective_planner_cache_entries = n_kept[i];
        struct collective_plan *first = plan_once(group), *second = plan_once(group);
        assert_int_equal(first == second, n_kept[i] == 1);
        collective_plan_unref(first);
        collective_plan_unref(second);
    }
}

/* --- in the middle of a run ----------------------------------------------------------------------------------------- */

static void replace_the_source(void)
{
    stage_put_artifact("m", 77);
}

TEST_IN(a_source_that_changes_under_a_running_group_fails_all_ranks_and_publishes_nothing, group_set_up, group_tear_down)
{
    struct group_stage *group = *state;
    struct stage_client clients[3];
    group_script.in_the_middle = replace_the_source;
    for (uint32_t rank = 0; rank < 3; rank++)
        group_send(group, &clients[rank], rank, 3, NULL);
    stage_run(&group->stage);
    for (uint32_t rank = 0; rank < 3; rank++)
        assert_int_equal(clients[rank].code, ERROR_FAILED_PRECONDITION);
    group_assert_nothing_is_left(group);
}

TEST_IN(a_device_that_fails_under_a_running_group_costs_the_others_nothing, group_set_up, group_tear_down)
{
    struct group_stage *group = *state;
    struct stage_client clients[3];
    group_script.lost_rank = 1;
    for (uint32_t rank = 0; rank < 3; rank++)
        group_send(group, &clients[rank], rank, 3, NULL);
    stage_run(&group->stage);
    assert_int_equal(clients[1].code, ERROR_FAILED_PRECONDITION);
    group_assert_loaded(&clients[0], 0);
    group_assert_loaded(&clients[2], 2);
    group_assert_nothing_is_left(group);
}

/* Rank 3's client leaves; client 4 wants what rank 1 wants, and knows nothing of a group. */
TEST_IN(bytes_that_are_lost_between_the_ranks_are_read_again_by_whoever_still_wants_them, group_set_up, group_tear_down)
{
    struct group_stage *group = *state;
    struct stage_client clients[5];
    group_script.loses_bytes = true;
    may_go_on = false;
    group_script.in_the_middle = hold;
    for (uint32_t rank = 0; rank < 4; rank++)
        group_send(group, &clients[rank], rank, 4, NULL);
    group_await(group, &clients[3], TICKET_WAITING);
    group_prepare(group, &clients[4], 1, 1, 4, NULL);
    clients[4].input.request.has_group = false;
    stage_submit(&clients[4]);
    group_await(group, &clients[4], TICKET_WAITING);
    ticket_cancel(clients[3].ticket);
    __atomic_store_n(&may_go_on, true, __ATOMIC_RELEASE);
    stage_run(&group->stage);
    assert_int_equal(clients[3].code, ERROR_CANCELLED);
    for (uint32_t rank = 0; rank < 3; rank++)
        assert_string_not_equal(executor_of(&clients[rank]), "owner_file_collective");
    const struct candidate *collective = &ticket_result(clients[0].ticket)->plan->candidates[EXECUTOR_OWNER_FILE_COLLECTIVE];
    assert_string_equal(collective->reason.text, "transport_failed:nccl:LINK_LOST");
    for (uint32_t rank = 0; rank < 3; rank++)
        group_assert_loaded(&clients[rank], rank);
    group_assert_loaded(&clients[4], 1);
    group_assert_nothing_is_left(group);
}

TEST_IN(a_required_group_that_loses_bytes_fails, group_set_up, group_tear_down)
{
    struct group_stage *group = *state;
    struct stage_client clients[2];
    group_script.loses_bytes = true;
    run_required(group, clients);
    for (uint32_t rank = 0; rank < 2; rank++) {
        assert_int_equal(clients[rank].code, ERROR_UNAVAILABLE);
        assert_string_equal(clients[rank].message, "the link is gone");
    }
    group_assert_nothing_is_left(group);
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

TEST_IN(a_client_that_dies_under_a_running_group_is_not_waited_for, group_set_up, group_tear_down)
{
    struct group_stage *group = *state;
    for (uint32_t doomed = 0; doomed < 3; doomed++) {
        struct stage_client clients[3];
        departure.loop = group->stage.loop;
        departure.client = &clients[doomed];
        departure.is_gone = false;
        group_script.n_deliveries = 0;
        group_script.in_the_middle = let_the_client_die;
        for (uint32_t rank = 0; rank < 3; rank++)
            group_send(group, &clients[rank], rank, 3, NULL);
        stage_run(&group->stage);
        for (uint32_t rank = 0; rank < 3; rank++) {
            if (rank == doomed)
                assert_int_equal(clients[rank].code, ERROR_CANCELLED);
            else
                group_assert_loaded(&clients[rank], rank);
        }
        group_assert_nothing_is_left(group);
    }
}

/* The last of all tests. */
TEST(every_transition_that_is_drawn_was_taken)
{
    assert_true(transitions_all_taken(&team_machine));
}

/* --- memory for the joint plan -------------------------------------------------------------------------------------- */

struct outcomes {
    size_t refused, alone, together;
};

static bool has_ended(const void *data)
{
    const struct stage_client *clients = data;
    bool has_failed = (clients[0].is_done && clients[0].code) || (clients[1].is_done && clients[1].code);
    return has_failed || (clients[0].is_done && clients[1].is_done);
}

/* A rank that waits for a refused rank is told to go. */
static void run_two(struct group_stage *group, struct stage_client clients[2])
{
    stage_run_until(&group->stage, has_ended, clients);
    for (uint32_t rank = 0; rank < 2; rank++)
        if (!clients[rank].is_done)
            ticket_cancel(clients[rank].ticket);
    stage_run(&group->stage);
}

/* The header is known from there on, and belongs to no load. */
static struct quota *count_metadata(struct group_stage *group)
{
    struct quota *quota = quota_create();
    struct stage_client client;
    group->stage.config.engine.strategy.owner_file_collective_planner_cache_entries = 0;
    group_send(group, &client, 0, 1, NULL);
    stage_run(&group->stage);
    group_assert_loaded(&client, 0);
    quota_set_kept(quota, 0);
    group->stage.services.quota = quota;
    return quota;
}

static void note_outcome(struct group_stage *group, struct stage_client clients[2], struct outcomes *outcomes)
{
    bool is_loaded = clients[0].code == ERROR_OK && clients[1].code == ERROR_OK;
    if (is_loaded && strcmp(executor_of(&clients[0]), "owner_file_collective") == 0) {
        outcomes->together++;
    } else if (is_loaded) {
        outcomes->alone++;
        for (uint32_t rank = 0; rank < 2; rank++)
            assert_string_equal(
                ticket_result(clients[rank].ticket)->plan->candidates[EXECUTOR_OWNER_FILE_COLLECTIVE].reason.text,
                "joint_plan_memory_exceeded:METADATA_EXCEEDED");
    } else {
        outcomes->refused++;
    }
    for (uint32_t rank = 0; rank < 2; rank++) {
        if (clients[rank].code == ERROR_OK) {
            group_assert_loaded(&clients[rank], rank);
            continue;
        }
        if (clients[rank].code == ERROR_CANCELLED)
            continue;
        assert_int_equal(clients[rank].code, ERROR_RESOURCE_EXHAUSTED);
        assert_non_null(strstr(clients[rank].message, "metadata bytes"));
    }
    group_assert_nothing_is_left(group);
}

/* From a budget that does for no rank to one that does for all and what they have in common. */
TEST_IN(ranks_load_by_themselves_when_there_is_no_memory_for_their_joint_plan, group_set_up, group_tear_down)
{
    struct group_stage *group = *state;
    struct quota *quota = count_metadata(group);
    struct outcomes outcomes = {0};
    struct stage_client clients[2];
    for (uint64_t limit = 0; outcomes.together < 2; limit += 512) {
        quota_set_limits(quota, QUOTA_METADATA, limit, 0);
        for (uint32_t rank = 0; rank < 2; rank++)
            group_send(group, &clients[rank], rank, 2, NULL);
        run_two(group, clients);
        note_outcome(group, clients, &outcomes);
        assert_int_equal(quota_taken(quota, QUOTA_METADATA), 0);
    }
    assert_true(outcomes.refused > 0);
    assert_true(outcomes.alone > 0);
    group->stage.services.quota = NULL;
    quota_destroy(quota);
}

TEST_IN(a_required_collective_says_that_there_is_no_memory_for_its_joint_plan, group_set_up, group_tear_down)
{
    struct group_stage *group = *state;
    struct quota *quota = count_metadata(group);
    struct stage_client clients[2];
    size_t n_refused = 0;
    for (uint64_t limit = 0;; limit += 512) {
        quota_set_limits(quota, QUOTA_METADATA, limit, 0);
        for (uint32_t rank = 0; rank < 2; rank++)
            group_send_required(group, &clients[rank], rank, 2, NULL);
        run_two(group, clients);
        if (clients[0].code == ERROR_OK && clients[1].code == ERROR_OK)
            break;
        for (uint32_t rank = 0; rank < 2; rank++) {
            if (clients[rank].code == ERROR_OK) {
                stage_let_go(&clients[rank]);
                continue;
            }
            if (clients[rank].code != ERROR_CANCELLED)
                assert_int_equal(clients[rank].code, ERROR_RESOURCE_EXHAUSTED);
            n_refused += strstr(clients[rank].message, "joint_plan_memory_exceeded:METADATA_EXCEEDED") != NULL;
        }
    }
    assert_true(n_refused > 0);
    for (uint32_t rank = 0; rank < 2; rank++)
        group_assert_loaded(&clients[rank], rank);
    group->stage.services.quota = NULL;
    quota_destroy(quota);
}

enum { N_PLANS = 4 };

struct shelf {
    struct joint_plans *plans;
    struct collective_plan *own[N_PLANS];
    unsigned char keys[N_PLANS][DIGEST_BYTES];
};

static int set_up(void **state)
{
    struct shelf *shelf = test_calloc(1, sizeof *shelf);
    shelf->plans = joint_plans_create();
    for (size_t i = 0; i < N_PLANS; i++) {
        shelf->own[i] = memory_alloc(sizeof *shelf->own[i]);
        shelf->own[i]->references = 1;
        memset(shelf->keys[i], (int)i + 1, DIGEST_BYTES);
        joint_plans_add(shelf->plans, shelf->keys[i], shelf->own[i], N_PLANS);
    }
    *state = shelf;
    return 0;
}

static int tear_down(void **state)
{
    struct shelf *shelf = *state;
    joint_plans_destroy(shelf->plans);
    for (size_t i = 0; i < N_PLANS; i++) {
        assert_int_equal(shelf->own[i]->references, 1);
        collective_plan_unref(shelf->own[i]);
    }
    test_free(shelf);
    return 0;
}

static bool is_kept(struct shelf *shelf, size_t i, uint64_t n_kept)
{
    struct collective_plan *found = joint_plans_find(shelf->plans, shelf->keys[i], n_kept);
    if (found)
        assert_ptr_equal(found, shelf->own[i]);
    collective_plan_unref(found);
    return found != NULL;
}

TEST_IN(what_was_used_last_is_kept, set_up, tear_down)
{
    struct shelf *shelf = *state;
    assert_true(is_kept(shelf, 0, N_PLANS));
    assert_false(is_kept(shelf, 1, 2));
    assert_false(is_kept(shelf, 2, 2));
    assert_true(is_kept(shelf, 3, 2));
    assert_true(is_kept(shelf, 0, 2));
}

TEST_IN(none_is_kept_where_none_is_to_be, set_up, tear_down)
{
    struct shelf *shelf = *state;
    joint_plans_add(shelf->plans, shelf->keys[0], shelf->own[0], 0);
    for (size_t i = 0; i < N_PLANS; i++)
        assert_false(is_kept(shelf, i, N_PLANS));
    assert_false(joint_plans_shrink(shelf->plans));
}

TEST_IN(room_is_made_by_the_one_that_was_used_longest_ago, set_up, tear_down)
{
    struct shelf *shelf = *state;
    assert_true(is_kept(shelf, 0, N_PLANS));
    assert_true(joint_plans_shrink(shelf->plans));
    assert_false(is_kept(shelf, 1, N_PLANS));
    assert_true(is_kept(shelf, 2, N_PLANS));
    for (size_t i = 0; i + 1 < N_PLANS; i++)
        assert_true(joint_plans_shrink(shelf->plans));
    assert_false(joint_plans_shrink(shelf->plans));
}

static int set_up_all_tests(void **state)
{
    log_set_level(LOG_ERROR);
    transitions_watch();
    (void)state;
    return 0;
}

TESTS_IN(set_up_all_tests, NULL)
