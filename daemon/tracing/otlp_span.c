/* Ids are hexadecimal, 64-bit numbers are strings: OTLP's JSON is not protobuf's own. */
#include "tracing/otlp_span.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/digest.h"
#include "base/json.h"
#include "load/blame.h"

enum { KIND_INTERNAL = 1, KIND_SERVER = 2, STATUS_OK = 1, STATUS_ERROR = 2 };

struct span_ids {
    char trace[2 * TRACE_ID_BYTES + 1], parent[2 * SPAN_ID_BYTES + 1];
};

static void random_id(size_t n_bytes, char *hex)
{
    unsigned char bytes[TRACE_ID_BYTES];
    if (getrandom(bytes, n_bytes, 0) != (ssize_t)n_bytes)
        abort();
    bytes[0] |= 1; /* never zero */
    digest_hex(bytes, n_bytes, hex);
}

static void put_value(struct json_writer *json, const char *key, const char *kind)
{
    json_write_open(json, '{');
    json_put_text(json, "key", key);
    json_put_open(json, "value", '{');
    json_write_key(json, kind);
}

static void end_value(struct json_writer *json)
{
    json_write_close(json, '}');
    json_write_close(json, '}');
}

static void put_text(struct json_writer *json, const char *key, const char *text)
{
    if (!*text)
        return;
    put_value(json, key, "stringValue");
    json_write_text(json, text);
    end_value(json);
}

static void put_number(struct json_writer *json, const char *key, uint64_t number)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, number);
    put_value(json, key, "intValue");
    json_write_text(json, text);
    end_value(json);
}

static void put_time(struct json_writer *json, const char *key, const struct trace *trace, uint64_t ns)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, trace->begin_unix_ns + (ns - trace_begin_ns(trace)));
    json_put_text(json, key, text);
}

/* Its attributes are open. Returns its id in `id`. */
static void begin_span(struct json_writer *json, const struct span_ids *ids, const char *name, int kind,
                       char id[2 * SPAN_ID_BYTES + 1])
{
    random_id(SPAN_ID_BYTES, id);
    json_write_open(json, '{');
    json_put_text(json, "traceId", ids->trace);
    json_put_text(json, "spanId", id);
    if (ids->parent[0])
        json_put_text(json, "parentSpanId", ids->parent);
    json_put_text(json, "name", name);
    json_put_u64(json, "kind", (uint64_t)kind);
    json_put_open(json, "attributes", '[');
}

static void end_span(struct json_writer *json, const struct trace *trace, uint64_t begin_ns, uint64_t ns)
{
    json_write_close(json, ']');
    put_time(json, "startTimeUnixNano", trace, begin_ns);
    put_time(json, "endTimeUnixNano", trace, begin_ns + ns);
    json_write_close(json, '}');
}

static void put_status(struct json_writer *json, enum error_code code)
{
    json_put_open(json, "status", '{');
    json_put_u64(json, "code", code == ERROR_OK ? STATUS_OK : STATUS_ERROR);
    if (code != ERROR_OK)
        json_put_text(json, "message", error_code_name(code));
    json_write_close(json, '}');
}

static void put_root(struct json_writer *json, const struct trace *trace, const struct span_ids *ids,
                     char id[2 * SPAN_ID_BYTES + 1])
{
    const struct trace_facts *facts = &trace->facts;
    const struct run_report *report = &trace->spent.report;
    begin_span(json, ids, "load", KIND_SERVER, id);
    put_text(json, "tensorcast.load_id", facts->load_id);
    put_text(json, "tensorcast.artifact", facts->artifact);
    put_text(json, "tensorcast.executor", facts->executor);
    put_text(json, "tensorcast.origin", trace_origin_names[facts->origin]);
    put_text(json, "tensorcast.memory", facts->memory);
    put_text(json, "tensorcast.verified", facts->verified);
    put_text(json, "tensorcast.waited_for", cause_names[blame_largest(trace)]);
    put_number(json, "tensorcast.client.pid", (uint64_t)facts->pid);
    put_number(json, "tensorcast.client.uid", facts->uid);
    put_number(json, "tensorcast.bytes.view", facts->view_bytes);
    put_number(json, "tensorcast.bytes.read", report->read_bytes);
    put_number(json, "tensorcast.bytes.cached", report->cached_bytes);
    put_number(json, "tensorcast.bytes.shared", report->shared_bytes);
    put_number(json, "tensorcast.bytes.copied", report->copied_bytes);
    put_number(json, "tensorcast.bytes.peer", report->peer_bytes);
    put_number(json, "tensorcast.requests", report->requests);
    if (facts->group_id) {
        put_text(json, "tensorcast.group.id", facts->group_id);
        put_number(json, "tensorcast.group.rank", facts->rank);
        put_number(json, "tensorcast.group.world_size", facts->world_size);
    }
    if (facts->code != ERROR_OK)
        put_text(json, "tensorcast.code", error_code_name(facts->code));
    json_write_close(json, ']');
    put_status(json, facts->code);
    put_time(json, "startTimeUnixNano", trace, trace_begin_ns(trace));
    put_time(json, "endTimeUnixNano", trace, trace->end_ns);
    json_write_close(json, '}');
}

/* The stage that executes tells what its time went to. */
static void put_stage(struct json_writer *json, const struct trace *trace, const struct span_ids *ids, size_t step)
{
    char id[2 * SPAN_ID_BYTES + 1], key[64];
    enum trace_kind kind = trace->steps[step].kind;
    begin_span(json, ids, trace_kind_names[kind], KIND_INTERNAL, id);
    for (int i = 0; i < CAUSES && kind == TRACE_EXECUTE; i++) {
        if (trace->spent.ns[i] == 0)
            continue;
        snprintf(key, sizeof key, "tensorcast.%s_ms", cause_names[i]);
        put_value(json, key, "doubleValue");
        json_write_double(json, clock_ms(trace->spent.ns[i]));
        end_value(json);
    }
    end_span(json, trace, trace->steps[step].begin_ns, trace_step_ns(trace, step));
}

char *otlp_span_write(const struct trace *trace, const struct otlp_resource *resource)
{
    const struct traceparent *parent = &trace->parent;
    struct json_writer writer = {0}, *json = &writer;
    struct span_ids ids = {0}, children;
    random_id(TRACE_ID_BYTES, ids.trace);
    if (parent->is_given) {
        digest_hex(parent->trace_id, sizeof parent->trace_id, ids.trace);
        digest_hex(parent->span_id, sizeof parent->span_id, ids.parent);
    }
    children = ids;
    json_write_open(json, '{');
    json_put_open(json, "resource", '{');
    json_put_open(json, "attributes", '[');
    put_text(json, "service.name", "tensorcastd");
    put_text(json, "service.version", resource->version);
    put_text(json, "host.name", resource->host);
    put_number(json, "process.pid", (uint64_t)resource->pid);
    json_write_close(json, ']');
    json_write_close(json, '}');
    json_put_open(json, "scopeSpans", '[');
    json_write_open(json, '{');
    json_put_open(json, "scope", '{');
    json_put_text(json, "name", "tensorcast");
    json_put_text(json, "version", resource->version);
    json_write_close(json, '}');
    json_put_open(json, "spans", '[');
    put_root(json, trace, &ids, children.parent);
    for (size_t i = 0; i < trace->n_steps; i++)
        put_stage(json, trace, &children, i);
    json_write_close(json, ']');
    json_write_close(json, '}');
    json_write_close(json, ']');
    json_write_close(json, '}');
    return writer.text;
}
