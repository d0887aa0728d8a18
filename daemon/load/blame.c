#include "load/blame.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"

/* Quicker loads get no advice. */
static const uint64_t quick_ns = 100 * (uint64_t)NS_PER_MS;

static const enum cause stage_causes[TRACE_KINDS] = {
    [TRACE_QUEUE] = CAUSE_QUEUE,   [TRACE_RESOLVE] = CAUSE_HEADERS, [TRACE_PLAN] = CAUSE_PLAN,
    [TRACE_GROUP] = CAUSE_GROUP,   [TRACE_ALLOCATE] = CAUSE_MEMORY, [TRACE_EXECUTE] = CAUSE_DISK,
    [TRACE_COMMIT] = CAUSE_VERIFY, [TRACE_HANDOFF] = CAUSE_HANDOFF};

/* --- the chain ------------------------------------------------------------------------------------------------------ */

static size_t add_link(struct blame_link *links, size_t n, enum cause cause, uint64_t start_ns, uint64_t ns)
{
    if (ns == 0)
        return n;
    if (n > 0 && (links[n - 1].cause == cause || n == BLAME_MAX_LINKS)) {
        links[n - 1].ns += ns;
        return n;
    }
    links[n] = (struct blame_link){cause, start_ns, ns};
    return n + 1;
}

/* The stage that executes, divided as the run's time was. Of two such stages, of a request that was loaded again, each is
 * divided alike. */
static size_t add_run(const struct trace *trace, struct blame_link *links, size_t n, uint64_t start_ns, uint64_t ns)
{
    double all_ns = 0, done_ns = 0;
    uint64_t at_ns = 0;
    enum cause last = trace->facts.is_remote ? CAUSE_STORE : CAUSE_DISK;
    for (int i = 0; i < CAUSES; i++)
        all_ns += (double)trace->spent.ns[i];
    for (int i = 0; i < CAUSES && all_ns > 0; i++) {
        done_ns += (double)trace->spent.ns[i];
        uint64_t end_ns = (uint64_t)((double)ns * (done_ns / all_ns));
        end_ns = end_ns < ns ? end_ns : ns;
        n = add_link(links, n, (enum cause)i, start_ns + at_ns, end_ns - at_ns);
        last = end_ns > at_ns ? (enum cause)i : last;
        at_ns = end_ns;
    }
    return add_link(links, n, last, start_ns + at_ns, ns - at_ns); /* what rounding has left */
}

size_t blame_chain(const struct trace *trace, struct blame_link links[BLAME_MAX_LINKS])
{
    size_t n = 0;
    for (size_t i = 0; i < trace->n_steps; i++) {
        uint64_t start_ns = trace->steps[i].begin_ns - trace_begin_ns(trace), ns = trace_step_ns(trace, i);
        if (trace->steps[i].kind == TRACE_EXECUTE)
            n = add_run(trace, links, n, start_ns, ns);
        else
            n = add_link(links, n, stage_causes[trace->steps[i].kind], start_ns, ns);
    }
    return n;
}

void blame_waited(const struct trace *trace, uint64_t waited_ns[CAUSES])
{
    struct blame_link links[BLAME_MAX_LINKS];
    size_t n = blame_chain(trace, links);
    memset(waited_ns, 0, CAUSES * sizeof *waited_ns);
    for (size_t i = 0; i < n; i++)
        waited_ns[links[i].cause] += links[i].ns;
}

enum cause blame_largest(const struct trace *trace)
{
    uint64_t waited_ns[CAUSES];
    int largest = 0;
    blame_waited(trace, waited_ns);
    for (int i = 1; i < CAUSES; i++)
        largest = waited_ns[i] > waited_ns[largest] ? i : largest;
    return (enum cause)largest;
}

/* --- words ---------------------------------------------------------------------------------------------------------- */

/* "48 MiB in 12 requests, 15.8 MiB/s". A request that joined a load waited for a part of its reads only, so their rate is unknown. */
static int put_read(char *text, const struct trace *trace, uint64_t ns, const char *what)
{
    const struct run_report *report = &trace->spent.report;
    uint64_t bytes = report->read_bytes;
    return snprintf(text, BLAME_TEXT_CHARS, "%s in %" PRIu64 " %s%s%s%s", text_show_amount(bytes), report->requests, what,
                    text_plural(report->requests), trace->facts.origin == LOAD_JOINED ? " of the load it joined" : ", ",
                    trace->facts.origin == LOAD_JOINED ? "" : text_show_rate((double)bytes / ((double)ns / 1e9)));
}

static double cached_share(const struct trace *trace)
{
    const struct run_report *report = &trace->spent.report;
    return report->read_bytes ? (double)report->cached_bytes / (double)report->read_bytes : 0;
}

void blame_detail(const struct trace *trace, const struct blame_link *link, char text[BLAME_TEXT_CHARS])
{
    const struct trace_facts *facts = &trace->facts;
    const struct run_report *report = &trace->spent.report;
    int used;
    text[0] = '\0';
    switch (link->cause) {
    case CAUSE_QUEUE:
        snprintf(text, BLAME_TEXT_CHARS, "a thread of the daemon, or its turn among other loads");
        break;
    case CAUSE_GROUP:
        if (facts->group_id)
            snprintf(text, BLAME_TEXT_CHARS, "rank %" PRIu32 " of %" PRIu32 ": the other ranks of its group", facts->rank,
                     facts->world_size);
        break;
    case CAUSE_HEADERS:
        if (facts->has_plan)
            snprintf(text, BLAME_TEXT_CHARS, "%" PRIu64 " file%s, %" PRIu64 " tensor%s", facts->n_files,
                     text_plural(facts->n_files), facts->n_tensors, text_plural(facts->n_tensors));
        break;
    case CAUSE_PLAN:
        snprintf(text, BLAME_TEXT_CHARS, "%s", facts->executor);
        break;
    case CAUSE_MEMORY:
        if (facts->has_plan)
            snprintf(text, BLAME_TEXT_CHARS, "%s%s%s", text_show_amount(facts->view_bytes),
                     *facts->memory ? " in pages: " : "", facts->memory);
        break;
    case CAUSE_STORE:
        put_read(text, trace, link->ns, "request");
        break;
    case CAUSE_DISK:
        used = put_read(text, trace, link->ns, "read");
        snprintf(text + used, BLAME_TEXT_CHARS - (size_t)used, ", %.0f %% of it in the page cache",
                 100 * cached_share(trace));
        break;
    case CAUSE_COPY:
        snprintf(text, BLAME_TEXT_CHARS, "%s copied, %s landed in place", text_show_amount(report->copied_bytes),
                 text_show_amount(report->direct_bytes));
        break;
    case CAUSE_VERIFY:
        snprintf(text, BLAME_TEXT_CHARS, "%s", facts->verified);
        break;
    case CAUSE_PEERS:
        used = snprintf(text, BLAME_TEXT_CHARS, "%s from other hosts", text_show_amount(report->peer_bytes));
        if (facts->origin != LOAD_JOINED)
            snprintf(text + used, BLAME_TEXT_CHARS - (size_t)used, ", %s",
                     text_show_rate((double)report->peer_bytes / ((double)link->ns / 1e9)));
        break;
    case CAUSE_HANDOFF:
    case CAUSES:
        break;
    }
}

/* --- advice --------------------------------------------------------------------------------------------------------- */

struct advice {
    enum cause cause;
    unsigned percent; /* of the time, from which on it is given */
    bool (*applies)(const struct trace *trace);
    const char *before, *after; /* with `after`, the size of the view stands between */
};

static bool is_cold(const struct trace *trace)
{
    return cached_share(trace) < 0.5;
}

static bool reads_ahead(const struct trace *trace)
{
    return is_cold(trace) && !trace->facts.reads_direct;
}

static bool lacks_pool(const struct trace *trace)
{
    return trace->facts.pool_budget_bytes < trace->facts.view_bytes;
}

/* ARTIFACT stays a word: a name from outside is not for a line that people copy into a shell. */
static const struct advice advices[] = {
    {CAUSE_STORE, 30, NULL, "prewarm: 'tensorcast prewarm ARTIFACT' brings it from the store before a client waits for it",
     NULL},
    {CAUSE_STORE, 30, NULL,
     "slow store: 'tensorcast status' has rate and connections of each; 'tensorcast fetch' copies the files to a disk",
     NULL},
    {CAUSE_DISK, 30, is_cold,
     "cold cache: most of it came from the device; 'tensorcast prewarm ARTIFACT' reads it before a client waits for it",
     NULL},
    {CAUSE_DISK, 30, reads_ahead,
     "read-ahead: this file system is read through the page cache; raise read_ahead_kb of its device to 4096 or more", NULL},
    {CAUSE_MEMORY, 15, lacks_pool, "memory.pool_budget: with ", " the daemon has pages ready before a load comes"},
    {CAUSE_HEADERS, 30, NULL, "headers: 'tensorcast prewarm ARTIFACT' reads them before; later loads find them in the cache",
     NULL},
    {CAUSE_GROUP, 30, NULL, "group: start all ranks together; this one waited for others", NULL},
    {CAUSE_QUEUE, 30, NULL, "queue: other loads had the threads; 'tensorcast prewarm ARTIFACT' at a quieter time", NULL},
    {CAUSE_VERIFY, 30, NULL, "verify: 'tensorcast prewarm ARTIFACT' compares the checksums before a client waits for it",
     NULL},
};

size_t blame_advise(const struct trace *trace, char texts[BLAME_MAX_ADVICE][BLAME_TEXT_CHARS])
{
    const uint64_t whole = 1 << 20;
    uint64_t waited_ns[CAUSES], total_ns = trace_total_ns(trace);
    size_t n = 0;
    if (trace->facts.origin == LOAD_FROM_REPLICA || trace->facts.origin == LOAD_MAPPED || total_ns < quick_ns)
        return 0;
    blame_waited(trace, waited_ns);
    for (size_t i = 0; i < sizeof advices / sizeof advices[0] && n < BLAME_MAX_ADVICE; i++) {
        const struct advice *advice = &advices[i];
        char size[TEXT_SIZE_CHARS];
        bool is_much = (double)waited_ns[advice->cause] * 100 >= (double)advice->percent * (double)total_ns;
        if (is_much && (!advice->applies || advice->applies(trace)))
            snprintf(texts[n++], BLAME_TEXT_CHARS, "%s%s%s", advice->before,
                     advice->after ? text_format_bytes((trace->facts.view_bytes + whole - 1) / whole * whole, size) : "",
                     advice->after ? advice->after : "");
    }
    return n;
}
