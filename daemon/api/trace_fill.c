#include "api/trace_fill.h"

#include <stdio.h>
#include <string.h>

#include "api/codec.h"
#include "base/clock.h"
#include "load/blame.h"

typedef Tensorcast__Daemon__V1__LoadTrace load_trace_row;
typedef Tensorcast__Daemon__V1__TraceLink trace_link;
typedef Tensorcast__Daemon__V1__TraceLane trace_lane;

static void fill_waited(load_trace_row *row, const struct trace *trace, struct arena *arena)
{
    uint64_t waited_ns[CAUSES];
    blame_waited(trace, waited_ns);
    row->causes = arena_array(arena, CAUSES, sizeof *row->causes);
    row->cause_ms = arena_array(arena, CAUSES, sizeof *row->cause_ms);
    for (int i = 0; i < CAUSES; i++) {
        if (waited_ns[i] == 0)
            continue;
        row->causes[row->n_causes++] = cause_names[i];
        row->cause_ms[row->n_cause_ms++] = clock_ms(waited_ns[i]);
    }
}

static trace_link *new_link(const char *name, int64_t start_ns, uint64_t ns, struct arena *arena)
{
    trace_link *link = CODEC_NEW(trace_link, arena);
    link->name = name;
    link->start_ms = (double)start_ns / NS_PER_MS;
    link->ms = clock_ms(ns);
    return link;
}

/* shift_ns: from the moment that times count from to the trace's beginning. */
static void fill_chain(load_trace_row *row, const struct trace *trace, int64_t shift_ns, struct arena *arena)
{
    struct blame_link links[BLAME_MAX_LINKS];
    char texts[BLAME_MAX_ADVICE][BLAME_TEXT_CHARS];
    size_t n = blame_chain(trace, links);
    row->chain = arena_array(arena, n, sizeof *row->chain);
    for (size_t i = 0; i < n; i++) {
        trace_link *link = new_link(cause_names[links[i].cause], shift_ns + (int64_t)links[i].start_ns, links[i].ns, arena);
        blame_detail(trace, &links[i], texts[0]);
        link->detail = arena_text(arena, texts[0], strlen(texts[0]));
        row->chain[row->n_chain++] = link;
    }
    n = blame_advise(trace, texts);
    row->advice = arena_array(arena, n, sizeof *row->advice);
    for (size_t i = 0; i < n; i++)
        row->advice[row->n_advice++] = arena_text(arena, texts[i], strlen(texts[i]));
    row->stages = arena_array(arena, trace->n_steps, sizeof *row->stages);
    for (size_t i = 0; i < trace->n_steps; i++) {
        int64_t start_ns = shift_ns + (int64_t)(trace->steps[i].begin_ns - trace_begin_ns(trace));
        row->stages[row->n_stages++] =
            new_link(trace_kind_names[trace->steps[i].kind], start_ns, trace_step_ns(trace, i), arena);
    }
}

static trace_lane *new_lane(const struct lane *from, size_t n_spans, struct arena *arena)
{
    static const char *const crews[] = {[LANE_WORKER] = "worker", [LANE_STORE] = "store"};
    char name[32];
    trace_lane *lane = CODEC_NEW(trace_lane, arena);
    snprintf(name, sizeof name, "%s %u", crews[from->crew], from->number);
    lane->name = arena_text(arena, name, strlen(name));
    lane->kinds = arena_array(arena, n_spans, sizeof *lane->kinds);
    lane->start_ms = arena_array(arena, n_spans, sizeof *lane->start_ms);
    lane->ms = arena_array(arena, n_spans, sizeof *lane->ms);
    lane->bytes = arena_array(arena, n_spans, sizeof *lane->bytes);
    lane->items = arena_array(arena, n_spans, sizeof *lane->items);
    lane->read_ms = arena_array(arena, n_spans, sizeof *lane->read_ms);
    lane->memory_ms = arena_array(arena, n_spans, sizeof *lane->memory_ms);
    return lane;
}

static void add_span(trace_lane *lane, const struct lane_span *span, double start_ms)
{
    lane->kinds[lane->n_kinds++] = span_names[span->kind];
    lane->start_ms[lane->n_start_ms++] = start_ms;
    lane->ms[lane->n_ms++] = clock_ms(span->end_ns - span->begin_ns);
    lane->bytes[lane->n_bytes++] = span->bytes;
    lane->items[lane->n_items++] = span->n_items;
    lane->read_ms[lane->n_read_ms++] = span->read_us / 1e3;
    lane->memory_ms[lane->n_memory_ms++] = span->memory_us / 1e3;
}

static void fill_lanes(load_trace_row *row, const struct trace *trace, uint64_t since_ns, struct arena *arena)
{
    struct lanes_copy copy = lanes_copy(trace->lanes);
    row->lanes = arena_array(arena, copy.n_lanes, sizeof *row->lanes);
    for (size_t i = 0; i < copy.n_lanes; i++) {
        size_t n_spans = 0;
        for (size_t k = 0; k < copy.n_spans; k++)
            n_spans += copy.spans[k].lane == i;
        trace_lane *lane = row->lanes[row->n_lanes++] = new_lane(&copy.lanes[i], n_spans, arena);
        for (size_t k = 0; k < copy.n_spans; k++)
            if (copy.spans[k].lane == i)
                add_span(lane, &copy.spans[k], ((double)copy.spans[k].begin_ns - (double)since_ns) / NS_PER_MS);
    }
    row->left_out = copy.n_left_out;
    lanes_copy_free(&copy);
}

load_trace_row *trace_fill(const struct trace *trace, enum trace_part part, uint64_t since_ns, struct arena *arena)
{
    const struct trace_facts *facts = &trace->facts;
    load_trace_row *row = CODEC_NEW(load_trace, arena);
    row->load_id = facts->load_id;
    row->artifact = codec_file_name(facts->artifact, arena);
    row->uid = facts->uid;
    row->pid = (uint64_t)facts->pid;
    row->code = facts->code == ERROR_OK ? "OK" : error_code_name(facts->code);
    row->origin = trace_origin_names[facts->origin];
    row->executor = facts->executor;
    row->begun_unix_s = (double)trace->begin_unix_ns / 1e9;
    row->total_ms = clock_ms(trace_total_ns(trace));
    row->group_id = facts->group_id ? codec_file_name(facts->group_id, arena) : "";
    row->rank = facts->rank;
    row->world_size = facts->world_size;
    row->read_bytes = trace->spent.report.read_bytes;
    fill_waited(row, trace, arena);
    if (part >= TRACE_PART_CHAIN)
        fill_chain(row, trace, (int64_t)(trace_begin_ns(trace) - since_ns), arena);
    if (part == TRACE_PART_LANES)
        fill_lanes(row, trace, since_ns, arena);
    return row;
}
