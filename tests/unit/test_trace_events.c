/* A load as trace events: spans lie in the load also when they are rounded, and names from outside are JSON. */
#include "tests/support/unit.h"

#include "client/cli/trace_events.h"

typedef Tensorcast__Daemon__V1__TraceLink trace_link;
typedef Tensorcast__Daemon__V1__TraceLane trace_lane;

static char *write_events(trace_link *stage, trace_lane *lane)
{
    Tensorcast__Daemon__V1__LoadTrace load = TENSORCAST__DAEMON__V1__LOAD_TRACE__INIT;
    load.load_id = "0123456789abcdef";
    load.artifact = "disk:/a\"\n";
    load.code = "OK";
    load.pid = 4711;
    load.total_ms = 10.0009;
    load.stages = &stage;
    load.n_stages = 1;
    load.lanes = &lane;
    load.n_lanes = 1;
    return trace_events(&load);
}

static trace_link stage_of(const char *name, double start_ms, double ms)
{
    trace_link stage = TENSORCAST__DAEMON__V1__TRACE_LINK__INIT;
    stage.name = name;
    stage.start_ms = start_ms;
    stage.ms = ms;
    return stage;
}

TEST(a_span_ends_with_the_load_at_the_latest)
{
    trace_lane lane = TENSORCAST__DAEMON__V1__TRACE_LANE__INIT;
    trace_link stage = stage_of("execute", 2.0006, 100);
    lane.name = "worker 0";
    char *text = write_events(&stage, &lane);
    assert_non_null(strstr(text, "{\"ph\":\"X\",\"name\":\"load\",\"pid\":4711,\"tid\":1,\"ts\":0,\"dur\":10000,"));
    assert_non_null(strstr(text, "\"name\":\"execute\",\"pid\":4711,\"tid\":1,\"ts\":2000,\"dur\":8000,"));
    assert_non_null(strstr(text, "disk:/a\\\"\\n"));
    assert_non_null(
        strstr(text, "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":4711,\"tid\":2,\"args\":{\"name\":\"worker 0\"}}"));
    free(text);
}

TEST(a_lane_whose_columns_do_not_fit_together_is_left_out)
{
    const char *kinds[] = {"blocks"};
    double times[] = {1};
    trace_lane lane = TENSORCAST__DAEMON__V1__TRACE_LANE__INIT;
    trace_link stage = stage_of("execute", 0, 1);
    lane.name = "worker 0";
    lane.kinds = kinds;
    lane.n_kinds = 1;
    lane.start_ms = lane.ms = times;
    lane.n_start_ms = lane.n_ms = 1;
    char *text = write_events(&stage, &lane);
    assert_null(strstr(text, "worker 0"));
    free(text);
}
