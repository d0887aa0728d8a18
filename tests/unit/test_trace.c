/* Stages of a request without gaps, the bounded list of the last ones, and which of them were beside each other. Then whole requests:
 * each goes through the stages that its way takes. */
#include "tests/support/unit.h"

#include "base/memory.h"
#include "load/trace.h"
#include "tests/support/group_stage.h"

#define MS ((uint64_t)1000000)

static struct trace *trace_of(const char *load_id)
{
    struct trace *trace = trace_create();
    snprintf(trace->facts.load_id, sizeof trace->facts.load_id, "%s", load_id);
    trace_enter(trace, TRACE_QUEUE, 100 * MS);
    trace->end_ns = 200 * MS;
    return trace;
}

TEST(a_stage_lasts_until_the_next_one_or_the_end)
{
    struct trace *trace = trace_of("a");
    trace_enter(trace, TRACE_RESOLVE, 110 * MS);
    trace_enter(trace, TRACE_RESOLVE, 120 * MS);
    trace_enter(trace, TRACE_PLAN, 150 * MS);
    assert_int_equal(trace->n_steps, 3);
    assert_int_equal(trace_step_ns(trace, 0), 10 * MS);
    assert_int_equal(trace_step_ns(trace, 1), 40 * MS);
    assert_int_equal(trace_step_ns(trace, 2), 50 * MS);
    assert_int_equal(trace_total_ns(trace), 100 * MS);
    trace_destroy(trace);
}

TEST(a_stage_that_began_before_takes_the_place_of_the_last_one)
{
    struct trace *trace = trace_of("a");
    trace_enter(trace, TRACE_PLAN, 120 * MS);
    trace_enter(trace, TRACE_EXECUTE, 50 * MS);
    assert_int_equal(trace->n_steps, 2);
    assert_int_equal(trace->steps[1].kind, TRACE_EXECUTE);
    assert_int_equal(trace->steps[1].begin_ns, 120 * MS);
    trace_destroy(trace);
}

TEST(there_is_room_for_24_stages_and_the_last_one_goes_on)
{
    struct trace *trace = trace_of("a");
    for (uint64_t i = 1; i <= 2 * TRACE_MAX_STAGES; i++)
        trace_enter(trace, i % 2 ? TRACE_RESOLVE : TRACE_QUEUE, (100 + i) * MS);
    assert_int_equal(trace->n_steps, TRACE_MAX_STAGES);
    uint64_t sum_ns = 0;
    for (size_t i = 0; i < trace->n_steps; i++)
        sum_ns += trace_step_ns(trace, i);
    assert_int_equal(sum_ns, trace_total_ns(trace));
    trace_destroy(trace);
}

TEST(the_last_256_are_kept)
{
    struct traces traces = {0};
    char id[LOAD_ID_CHARS];
    for (int i = 0; i <= TRACES_KEPT; i++) {
        snprintf(id, sizeof id, "%d", i);
        traces_keep(&traces, trace_of(id));
    }
    assert_int_equal(traces.n, TRACES_KEPT);
    assert_null(traces_find(&traces, "0"));
    assert_non_null(traces_find(&traces, "1"));
    assert_ptr_equal(traces_find(&traces, id), traces_get(&traces, 0));
    assert_string_equal(traces_get(&traces, TRACES_KEPT - 1)->facts.load_id, "1");
    traces_fini(&traces);
    assert_null(traces_find(&traces, id));
}

static struct trace *rank_of(uint32_t rank, const char *group_id, uint64_t begin_ms, uint64_t end_ms)
{
    struct trace *trace = trace_create();
    trace_enter(trace, TRACE_QUEUE, begin_ms * MS);
    trace->end_ns = end_ms * MS;
    trace->facts.rank = rank;
    trace->facts.world_size = 4;
    trace->facts.group_id = memory_copy_text(group_id);
    return trace;
}

TEST(ranks_of_a_group_are_beside_each_other_while_their_times_overlap)
{
    struct trace *trace = rank_of(0, "g", 10, 20);
    struct {
        struct trace *other;
        bool is_beside;
    } rows[] = {{rank_of(1, "g", 15, 30), true},
                {rank_of(1, "h", 15, 30), false},
                {rank_of(0, "g", 15, 30), false},
                {rank_of(1, "g", 20, 30), false},
                {rank_of(1, NULL, 15, 30), false}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(trace_is_beside(trace, rows[i].other), rows[i].is_beside);
        assert_int_equal(trace_is_beside(rows[i].other, trace), rows[i].is_beside);
        rows[i].other->facts.uid = 1000;
        assert_false(trace_is_beside(trace, rows[i].other));
        trace_destroy(rows[i].other);
    }
    trace_destroy(trace);
}

/* --- whole requests -------------------------------------------------------------------------------------------------- */

static uint64_t stage_bit(enum trace_kind kind)
{
    return (uint64_t)1 << kind;
}

/* The stages that it went through. It has an end, and nothing of its time is missing. */
static uint64_t stages_of(const struct trace *trace)
{
    uint64_t stages = 0, sum_ns = 0;
    assert_int_equal(trace->steps[0].kind == TRACE_QUEUE || trace->steps[0].kind == TRACE_RESOLVE, true);
    for (size_t i = 0; i < trace->n_steps; i++) {
        stages |= stage_bit(trace->steps[i].kind);
        sum_ns += trace_step_ns(trace, i);
    }
    assert_int_equal(sum_ns, trace_total_ns(trace));
    return stages;
}

static const struct trace *newest(const struct group_stage *group)
{
    const struct traces *traces = load_table_traces(group->stage.loads);
    return traces->n ? traces_get(traces, 0) : NULL;
}

TEST_IN(a_load_executes_and_commits_and_a_resident_one_does_not, group_set_up, group_tear_down)
{
    struct group_stage *group = *state;
    struct stage_client client, again;
    const uint64_t reads = stage_bit(TRACE_RESOLVE) | stage_bit(TRACE_PLAN) | stage_bit(TRACE_EXECUTE);
    stage_client_init(&group->stage, &client, "memory:m");
    client.input.pid = 4711;
    stage_submit(&client);
    stage_run(&group->stage);
    const struct trace *trace = ticket_result(client.ticket)->trace;
    assert_int_equal(stages_of(trace) & reads, reads);
    assert_string_equal(trace->facts.artifact, "memory:m");
    assert_int_equal(trace->facts.pid, 4711);
    assert_int_equal(trace->spent.report.read_bytes, STAGE_TENSOR_BYTES);
    assert_non_null(trace->lanes);
    stage_client_init(&group->stage, &again, "memory:m");
    stage_submit(&again);
    stage_run(&group->stage);
    trace = ticket_result(again.ticket)->trace;
    assert_int_equal(stages_of(trace) & stage_bit(TRACE_EXECUTE), 0);
    assert_int_equal(trace->facts.origin, LOAD_FROM_REPLICA);
    assert_null(newest(group)); /* they are there as long as their tickets */
    stage_let_go(&client);
    assert_string_equal(newest(group)->facts.executor, trace->facts.executor);
    stage_let_go(&again);
    assert_int_equal(load_table_traces(group->stage.loads)->n, 2);
}

TEST_IN(a_request_that_fails_is_kept_with_its_code, group_set_up, group_tear_down)
{
    struct group_stage *group = *state;
    struct stage_client client;
    stage_client_init(&group->stage, &client, "memory:nobody");
    stage_submit(&client);
    stage_run(&group->stage);
    const struct trace *trace = newest(group);
    assert_int_equal(trace->facts.code, client.code);
    assert_true(trace->facts.code != ERROR_OK);
    assert_string_equal(trace->facts.artifact, "memory:nobody");
    stages_of(trace);
}

TEST_IN(a_rank_waits_for_its_group, group_set_up, group_tear_down)
{
    struct group_stage *group = *state;
    struct stage_client clients[2];
    group_send(group, &clients[0], 0, 2, NULL);
    group_await(group, &clients[0], TICKET_ASSEMBLING);
    group_send(group, &clients[1], 1, 2, NULL);
    stage_run(&group->stage);
    for (uint32_t rank = 0; rank < 2; rank++) {
        const struct trace *trace = ticket_result(clients[rank].ticket)->trace;
        assert_true(stages_of(trace) & stage_bit(TRACE_GROUP));
        assert_string_equal(trace->facts.group_id, "g");
        assert_int_equal(trace->facts.rank, rank);
        group_assert_loaded(&clients[rank], rank);
    }
    assert_true(trace_is_beside(newest(group), traces_get(load_table_traces(group->stage.loads), 1)));
}

TEST_IN(a_rank_that_leaves_has_waited_for_its_group, group_set_up, group_tear_down)
{
    struct group_stage *group = *state;
    struct stage_client client;
    group_send(group, &client, 0, 2, NULL);
    group_await(group, &client, TICKET_ASSEMBLING);
    ticket_cancel(client.ticket);
    stage_run(&group->stage);
    const struct trace *trace = newest(group);
    assert_int_equal(trace->facts.code, ERROR_CANCELLED);
    assert_int_equal(trace->steps[trace->n_steps - 1].kind, TRACE_GROUP);
    stages_of(trace);
}
