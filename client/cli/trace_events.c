#include "trace_events.h"

#include "base/json.h"
#include "blame_text.h"

typedef Tensorcast__Daemon__V1__LoadTrace load_trace;
typedef Tensorcast__Daemon__V1__TraceLane trace_lane;

enum { LOAD_LANE = 1 };

struct events {
    struct json_writer json;
    const load_trace *load;
};

/* Both ends are rounded alike, so that what lies within a span does so in the file. */
static uint64_t microseconds(const load_trace *load, double ms)
{
    ms = ms < 0 ? 0 : ms > load->total_ms ? load->total_ms : ms;
    return (uint64_t)(ms * 1e3);
}

static void begin_event(struct events *events, const char *phase, const char *name, uint64_t lane)
{
    struct json_writer *json = &events->json;
    json_write_open(json, '{');
    json_put_text(json, "ph", phase);
    json_put_text(json, "name", name);
    json_put_u64(json, "pid", events->load->pid);
    json_put_u64(json, "tid", lane);
}

static void put_name(struct events *events, const char *what, uint64_t lane, const char *name)
{
    begin_event(events, "M", what, lane);
    json_put_open(&events->json, "args", '{');
    json_put_text(&events->json, "name", name);
    json_write_close(&events->json, '}');
    json_write_close(&events->json, '}');
}

/* Its "args" are open. */
static void begin_span(struct events *events, const char *name, uint64_t lane, double start_ms, double ms)
{
    uint64_t start_us = microseconds(events->load, start_ms), end_us = microseconds(events->load, start_ms + ms);
    begin_event(events, "X", name, lane);
    json_put_u64(&events->json, "ts", start_us);
    json_put_u64(&events->json, "dur", end_us - start_us);
    json_put_open(&events->json, "args", '{');
}

static void end_span(struct events *events)
{
    json_write_close(&events->json, '}');
    json_write_close(&events->json, '}');
}

static void put_load(struct events *events)
{
    const load_trace *load = events->load;
    put_name(events, "process_name", LOAD_LANE, load->artifact);
    put_name(events, "thread_name", LOAD_LANE, "load");
    begin_span(events, "load", LOAD_LANE, 0, load->total_ms);
    blame_put_load(&events->json, load);
    json_put_u64(&events->json, "read_bytes", load->read_bytes);
    end_span(events);
    for (size_t i = 0; i < load->n_stages; i++) {
        begin_span(events, load->stages[i]->name, LOAD_LANE, load->stages[i]->start_ms, load->stages[i]->ms);
        end_span(events);
    }
}

static void put_thread(struct events *events, const trace_lane *lane, uint64_t number)
{
    size_t n = lane->n_kinds;
    if (lane->n_start_ms != n || lane->n_ms != n || lane->n_bytes != n || lane->n_items != n || lane->n_read_ms != n ||
        lane->n_memory_ms != n)
        return;
    put_name(events, "thread_name", number, lane->name);
    for (size_t i = 0; i < n; i++) {
        begin_span(events, lane->kinds[i], number, lane->start_ms[i], lane->ms[i]);
        json_put_u64(&events->json, "bytes", lane->bytes[i]);
        json_put_u64(&events->json, "blocks", lane->items[i]);
        json_put_double(&events->json, "read_ms", lane->read_ms[i]);
        json_put_double(&events->json, "memory_ms", lane->memory_ms[i]);
        end_span(events);
    }
}

char *trace_events(const load_trace *load)
{
    struct events events = {.load = load};
    json_write_open(&events.json, '{');
    json_put_open(&events.json, "traceEvents", '[');
    put_load(&events);
    for (size_t i = 0; i < load->n_lanes; i++)
        put_thread(&events, load->lanes[i], LOAD_LANE + 1 + i);
    json_write_close(&events.json, ']');
    json_put_text(&events.json, "displayTimeUnit", "ms");
    json_write_close(&events.json, '}');
    return events.json.text;
}
