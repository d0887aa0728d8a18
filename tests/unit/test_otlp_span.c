/* A trace as OTLP's JSON: ids in hexadecimal, numbers as strings, children below the root, and whose child the root is. */
#include "tests/support/unit.h"

#include "base/json.h"
#include "tracing/otlp_span.h"

#undef fail

#define MS ((uint64_t)1000000)

static const struct otlp_resource resource = {"host \"1\"", "7.8.9", 4711};

static struct trace trace_of(void)
{
    struct trace trace = {.begin_unix_ns = 1700000000000000000u,
                          .n_steps = 2,
                          .steps = {{TRACE_RESOLVE, 1000 * MS}, {TRACE_EXECUTE, 1100 * MS}},
                          .end_ns = 2000 * MS};
    trace.facts = (struct trace_facts){.load_id = "0123456789abcdef",
                                       .artifact = "disk:/m",
                                       .executor = "generic_byte_range",
                                       .memory = "thp",
                                       .verified = "",
                                       .pid = 12};
    trace.spent.ns[CAUSE_DISK] = 900 * MS;
    trace.spent.report.read_bytes = 12345678901;
    return trace;
}

static void assert_has(const char *text, const char *word)
{
    if (!strstr(text, word))
        fail_msg("%s is not in %s", word, text);
}

/* It is JSON. */
static char *span_text(const struct trace *trace)
{
    char *text = otlp_span_write(trace, &resource);
    struct arena arena = {0};
    struct json json;
    json_init(&json, text, strlen(text), &arena);
    assert_true(json_skip(&json) && json_end(&json));
    arena_fini(&arena);
    return text;
}

TEST(a_load_is_a_root_with_a_child_for_each_stage)
{
    const struct trace trace = trace_of();
    char *text = span_text(&trace);
    assert_has(text, "{\"key\":\"service.name\",\"value\":{\"stringValue\":\"tensorcastd\"}}");
    assert_has(text, "{\"key\":\"host.name\",\"value\":{\"stringValue\":\"host \\\"1\\\"\"}}");
    assert_has(text, "\"name\":\"load\",\"kind\":2,");
    assert_has(text, "{\"key\":\"tensorcast.bytes.read\",\"value\":{\"intValue\":\"12345678901\"}}");
    assert_has(text, "\"startTimeUnixNano\":\"1700000000000000000\",\"endTimeUnixNano\":\"1700000001000000000\"");
    assert_has(text, "\"name\":\"resolve\",\"kind\":1,\"attributes\":[],\"startTimeUnixNano\":\"1700000000000000000\","
                     "\"endTimeUnixNano\":\"1700000000100000000\"");
    assert_has(text, "{\"key\":\"tensorcast.disk_ms\",\"value\":{\"doubleValue\":900}}");
    assert_has(text, "\"status\":{\"code\":1}");
    const char *root = strstr(text, "\"spanId\":\"") + strlen("\"spanId\":\""), *parent = strstr(text, "parentSpanId");
    assert_non_null(parent); /* of the first child: the root has none */
    assert_true(parent > strstr(text, "\"name\":\"load\""));
    assert_memory_equal(parent + strlen("parentSpanId\":\""), root, 16);
    free(text);
}

TEST(ids_differ_from_load_to_load)
{
    const struct trace trace = trace_of();
    char *one = span_text(&trace), *other = span_text(&trace);
    assert_memory_not_equal(strstr(one, "traceId"), strstr(other, "traceId"), strlen("traceId\":\"") + 32);
    free(one);
    free(other);
}

TEST(the_root_is_the_child_of_the_clients_span)
{
    static const char parent[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    struct trace trace = trace_of();
    trace.parent = traceparent_parse(parent, strlen(parent));
    char *text = span_text(&trace);
    const char *root = strstr(text, "\"traceId\":\"4bf92f3577b34da6a3ce929d0e0e4736\",\"spanId\":\"");
    assert_non_null(root);
    assert_has(root, "\"parentSpanId\":\"00f067aa0ba902b7\",\"name\":\"load\"");
    free(text);
}

TEST(a_failed_load_is_a_failed_span)
{
    struct trace trace = trace_of();
    trace.facts.code = ERROR_NOT_FOUND;
    trace.facts.executor = trace.facts.memory = "";
    char *text = span_text(&trace);
    assert_has(text, "\"status\":{\"code\":2,\"message\":\"NOT_FOUND\"}");
    assert_null(strstr(text, "tensorcast.executor"));
    free(text);
}
