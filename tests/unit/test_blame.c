/* What a trace is made into: a chain that adds up, details, and advice that fits. */
#include "tests/support/unit.h"

#include "load/blame.h"

#undef fail

#define MS ((uint64_t)1000000)

/* 100 ms in the queue, 100 ms of headers, then 1000 ms of a run. */
static struct trace trace_with(uint64_t store_ms, uint64_t disk_ms, uint64_t copy_ms, uint64_t memory_ms)
{
    struct trace trace = {.n_steps = 3,
                          .steps = {{TRACE_QUEUE, 1000 * MS}, {TRACE_RESOLVE, 1100 * MS}, {TRACE_EXECUTE, 1200 * MS}},
                          .end_ns = 2200 * MS};
    trace.facts = (struct trace_facts){.executor = "generic_byte_range",
                                       .memory = "4k",
                                       .verified = "",
                                       .view_bytes = ((uint64_t)48 << 20) + 1,
                                       .n_files = 3,
                                       .n_tensors = 7,
                                       .has_plan = true,
                                       .reads_direct = true,
                                       .is_remote = store_ms > 0};
    trace.spent.ns[CAUSE_STORE] = store_ms * MS;
    trace.spent.ns[CAUSE_DISK] = disk_ms * MS;
    trace.spent.ns[CAUSE_COPY] = copy_ms * MS;
    trace.spent.ns[CAUSE_MEMORY] = memory_ms * MS;
    trace.spent.report = (struct run_report){.read_bytes = 48 << 20, .requests = 12};
    return trace;
}

static size_t check_chain(const struct trace *trace, struct blame_link links[BLAME_MAX_LINKS])
{
    size_t n = blame_chain(trace, links);
    uint64_t at_ns = 0;
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(links[i].start_ns, at_ns);
        assert_true(links[i].ns > 0);
        at_ns += links[i].ns;
    }
    assert_int_equal(at_ns, trace_total_ns(trace));
    return n;
}

TEST(a_run_is_divided_as_its_time_was)
{
    const struct trace trace = trace_with(300, 0, 100, 100); /* half a second of it is in flight still */
    struct blame_link links[BLAME_MAX_LINKS];
    size_t n = check_chain(&trace, links);
    assert_int_equal(n, 5);
    static const enum cause causes[] = {CAUSE_QUEUE, CAUSE_HEADERS, CAUSE_MEMORY, CAUSE_STORE, CAUSE_COPY};
    for (size_t i = 0; i < n; i++)
        assert_int_equal(links[i].cause, causes[i]);
    assert_in_range(links[3].ns, 599 * MS, 601 * MS);
    assert_int_equal(blame_largest(&trace), CAUSE_STORE);
    uint64_t waited_ns[CAUSES];
    blame_waited(&trace, waited_ns);
    assert_int_equal(waited_ns[CAUSE_QUEUE], 100 * MS);
    assert_int_equal(waited_ns[CAUSE_VERIFY], 0);
}

TEST(a_run_of_which_nothing_is_known_read_its_source)
{
    struct trace trace = trace_with(0, 0, 0, 0);
    struct blame_link links[BLAME_MAX_LINKS];
    assert_int_equal(check_chain(&trace, links), 3);
    assert_int_equal(links[2].cause, CAUSE_DISK);
    trace.facts.is_remote = true;
    check_chain(&trace, links);
    assert_int_equal(links[2].cause, CAUSE_STORE);
}

TEST(stages_of_one_cause_are_one_link)
{
    struct trace trace = trace_with(0, 0, 0, 500);
    trace.steps[1].kind = TRACE_ALLOCATE;
    struct blame_link links[BLAME_MAX_LINKS];
    assert_int_equal(check_chain(&trace, links), 2);
    assert_int_equal(links[1].ns, 1100 * MS);
}

TEST(a_request_of_many_stages_has_a_chain_that_adds_up)
{
    struct trace trace = trace_with(1, 1, 1, 1);
    trace.n_steps = TRACE_MAX_STAGES;
    for (size_t i = 0; i < CAUSES; i++)
        trace.spent.ns[i] = MS;
    for (size_t i = 0; i < TRACE_MAX_STAGES; i++)
        trace.steps[i] = (struct trace_step){i % 2 ? TRACE_EXECUTE : TRACE_QUEUE, (1000 + i) * MS};
    struct blame_link links[BLAME_MAX_LINKS];
    check_chain(&trace, links);
}

TEST(details_say_how_much_there_was)
{
    const struct trace trace = trace_with(1000, 0, 0, 0);
    struct blame_link link = {.cause = CAUSE_STORE, .ns = 3000 * MS};
    char text[BLAME_TEXT_CHARS];
    blame_detail(&trace, &link, text);
    assert_string_equal(text, "48.0 MiB in 12 requests, 16.0 MiB/s");
    link.cause = CAUSE_HEADERS;
    blame_detail(&trace, &link, text);
    assert_string_equal(text, "3 files, 7 tensors");
    for (int i = 0; i < CAUSES; i++) {
        link.cause = (enum cause)i;
        blame_detail(&trace, &link, text);
    }
}

static bool advises(const struct trace *trace, const char *word)
{
    char texts[BLAME_MAX_ADVICE][BLAME_TEXT_CHARS];
    size_t n = blame_advise(trace, texts);
    for (size_t i = 0; i < n; i++)
        if (strstr(texts[i], word))
            return true;
    return false;
}

TEST(a_request_that_joined_a_load_has_no_rate_of_its_own)
{
    struct trace trace = trace_with(0, 10, 0, 0);
    char text[BLAME_TEXT_CHARS];
    const struct blame_link disk = {CAUSE_DISK, 0, 10 * MS}, peers = {CAUSE_PEERS, 0, 10 * MS};
    trace.facts.origin = LOAD_JOINED;
    blame_detail(&trace, &disk, text);
    assert_string_equal(text, "48.0 MiB in 12 reads of the load it joined, 0 % of it in the page cache");
    blame_detail(&trace, &peers, text);
    assert_string_equal(text, "0 B from other hosts");
}

TEST(advice_names_what_would_have_helped)
{
    struct trace store = trace_with(900, 0, 100, 0), disk = trace_with(0, 900, 100, 0), memory = trace_with(0, 500, 0, 500);
    assert_true(advises(&store, "prewarm") && advises(&store, "slow store"));
    assert_false(advises(&store, "cold cache") || advises(&store, "pool_budget"));
    assert_true(advises(&disk, "cold cache"));
    assert_false(advises(&disk, "read-ahead") || advises(&disk, "slow store"));
    disk.facts.reads_direct = false;
    assert_true(advises(&disk, "read-ahead"));
    disk.spent.report.cached_bytes = disk.spent.report.read_bytes;
    assert_false(advises(&disk, "read-ahead") || advises(&disk, "cold cache"));
    assert_true(advises(&memory, "memory.pool_budget: with 49MiB "));
    memory.facts.pool_budget_bytes = memory.facts.view_bytes;
    assert_false(advises(&memory, "pool_budget"));
}

TEST(a_load_that_was_quick_or_read_nothing_needs_no_advice)
{
    struct trace trace = trace_with(900, 0, 100, 0);
    char texts[BLAME_MAX_ADVICE][BLAME_TEXT_CHARS];
    trace.facts.origin = LOAD_FROM_REPLICA;
    assert_int_equal(blame_advise(&trace, texts), 0);
    trace.facts.origin = LOAD_OWN;
    assert_true(blame_advise(&trace, texts) > 0);
    trace.steps[1].begin_ns = trace.steps[2].begin_ns = 1000 * MS;
    trace.end_ns = 1099 * MS;
    assert_int_equal(blame_advise(&trace, texts), 0);
}

TEST(no_load_has_more_advice_than_there_is_room_for)
{
    struct trace trace = trace_with(0, 0, 0, 0);
    char texts[BLAME_MAX_ADVICE][BLAME_TEXT_CHARS];
    trace.n_steps = 1;
    trace.steps[0].kind = TRACE_EXECUTE;
    trace.facts.reads_direct = false;
    static const enum cause causes[] = {CAUSE_DISK, CAUSE_STORE, CAUSE_MEMORY};
    for (size_t i = 0; i < 3; i++)
        trace.spent.ns[causes[i]] = MS;
    assert_int_equal(blame_advise(&trace, texts), 5);
}
