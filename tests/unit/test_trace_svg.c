/* The picture of a load: lanes in order, nothing beyond its edges, and only what is whole. */
#include "tests/support/unit.h"

#include "client/cli/trace_svg.h"

typedef Tensorcast__Daemon__V1__LoadTrace load_trace;
typedef Tensorcast__Daemon__V1__TraceLink trace_link;
typedef Tensorcast__Daemon__V1__TraceLane trace_lane;

static load_trace load_of(uint32_t rank, uint32_t world_size)
{
    load_trace load = TENSORCAST__DAEMON__V1__LOAD_TRACE__INIT;
    load.load_id = "0123456789abcdef";
    load.artifact = "disk:/a<b>&\"c\"";
    load.code = "OK";
    load.rank = rank;
    load.world_size = world_size;
    load.total_ms = 100;
    return load;
}

static char *draw(load_trace **loads, size_t n)
{
    Tensorcast__Daemon__V1__BlameResponse response = TENSORCAST__DAEMON__V1__BLAME_RESPONSE__INIT;
    response.loads = loads;
    response.n_loads = n;
    return trace_svg(&response);
}

static size_t place_of(const char *text, const char *word)
{
    const char *found = strstr(text, word);
    assert_non_null(found);
    return (size_t)(found - text);
}

TEST(ranks_are_in_order_whichever_was_asked_for)
{
    load_trace loads[] = {load_of(2, 3), load_of(1, 3), load_of(0, 3)};
    char *text = draw((load_trace *[]){&loads[0], &loads[1], &loads[2]}, 3);
    assert_true(place_of(text, "data-lane=\"rank 0\"") < place_of(text, "data-lane=\"rank 1\""));
    assert_true(place_of(text, "data-lane=\"rank 1\"") < place_of(text, "data-lane=\"rank 2\""));
    assert_null(strstr(text, "data-lane=\"load\""));
    assert_non_null(strstr(text, "disk:/a&lt;b&gt;&amp;&quot;c&quot;"));
    free(text);
}

TEST(what_lies_beyond_the_end_is_cut_off)
{
    load_trace load = load_of(0, 0);
    trace_link inside = TENSORCAST__DAEMON__V1__TRACE_LINK__INIT, outside = inside;
    inside.name = "execute";
    inside.start_ms = 50;
    inside.ms = 1000;
    outside.name = "commit";
    outside.start_ms = 101;
    outside.ms = 10;
    load.stages = (trace_link *[]){&inside, &outside};
    load.n_stages = 2;
    char *text = draw((load_trace *[]){&load}, 1);
    assert_non_null(strstr(text, "x=\"645.0\" y=\"118\" width=\"535.0\"")); /* half of the axis */
    assert_null(strstr(text, "commit"));
    free(text);
}

TEST(a_lane_whose_columns_do_not_fit_together_is_left_out)
{
    double times[] = {1, 2};
    uint64_t bytes[] = {10, 20};
    uint32_t items[] = {1, 1};
    const char *kinds[] = {"blocks", "blocks"};
    trace_lane lane = {.base = {.descriptor = &tensorcast__daemon__v1__trace_lane__descriptor},
                       .name = "store 7",
                       .kinds = kinds,
                       .n_kinds = 2,
                       .start_ms = times,
                       .n_start_ms = 2,
                       .ms = times,
                       .n_ms = 2,
                       .bytes = bytes,
                       .n_bytes = 2,
                       .items = items,
                       .n_items = 2,
                       .read_ms = times,
                       .n_read_ms = 2,
                       .memory_ms = times,
                       .n_memory_ms = 2};
    load_trace load = load_of(0, 0);
    load.lanes = (trace_lane *[]){&lane};
    load.n_lanes = 1;
    char *text = draw((load_trace *[]){&load}, 1);
    assert_non_null(strstr(text, "data-lane=\"store 7\""));
    assert_non_null(strstr(text, "<title>store 1.00 ms: 10 B in 1 block</title>"));
    free(text);
    lane.n_bytes = 1;
    text = draw((load_trace *[]){&load}, 1);
    assert_null(strstr(text, "data-lane=\"store 7\""));
    free(text);
}
