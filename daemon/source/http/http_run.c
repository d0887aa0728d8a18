/* A call pursued to its end; see http_run.h. */
#include "source/http/http_run.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/redact.h"
#include "base/text.h"
#include "base/waiting.h"
#include "source/http/http_failure.h"
#include "source/http/http_settle.h"
#include "source/http/http_wait.h"

enum { SHOWN_URL_CHARS = 300, MAX_DOUBLINGS = 5, SHOWN_WHY_CHARS = 60 };

/* What failed, where, how often and for how long: the message of whoever looked at the answer alone is its middle. */
static int tell_failure(struct http_run *run, struct error *error)
{
    char url[SHOWN_URL_CHARS], name[TEXT_NAME_CHARS];
    if (run->is_unprepared && run->counts.n_tries == 0)
        return -1; /* its URL has no part in that */
    redact(run->attempt.url ? run->attempt.url : run->url, url, sizeof url);
    if (run->counts.n_tries > 0) /* else nothing was sent */
        error_append(error, " (%" PRIu32 " %s in %.1f s%s%s)", run->counts.n_tries,
                     run->counts.n_tries == 1 ? "try" : "tries", (double)(clock_now_ns() - run->started_ns) / 1e9,
                     run->request_id[0] ? ", request id " : "", run->request_id);
    if (run->name)
        return error_prefix(error, "bytes %" PRIu64 "-%" PRIu64 " of %s from %s", run->expected.first_byte,
                            run->expected.end - 1, text_escape(run->name, strlen(run->name), name), url);
    return error_prefix(error, "%s %s", run->call.method ? run->call.method : "GET", url);
}

static int prepare_attempt(struct http_run *run, struct error *error)
{
    const struct http_store *store = run->call.store;
    char name[URL_ORIGIN_CHARS];
    http_attempt_begin(&run->attempt, &run->call, run->url, run->is_foreign);
    run->wire.ca_file = run->engine->options.ca_file;
    run->is_unprepared =
        store && store->prepare && !run->is_foreign && store->prepare(store->data, &run->attempt, error) != 0;
    if (run->is_unprepared)
        return -1;
    if (run->attempt.ca_file && !run->engine->is_ca_configured)
        run->wire.ca_file = run->attempt.ca_file;
    if (http_attempt_admit(&run->attempt, &run->call, &run->engine->options.fence, error))
        return -1;
    http_origin_unref(&run->engine->origins, run->origin);
    run->origin = http_origin_ref(&run->engine->origins, url_origin(&run->attempt.where, name), error);
    return run->origin ? 0 : -1;
}

/* How long a slot is kept although others want it: longer after turns that brought nothing, or a slow server would never
 * come to its answer. A document begins anew in its next turn, and what is sent may not be sent twice. */
static uint64_t turn_ns(const struct http_run *run)
{
    bool sends = run->call.body_bytes > 0 ||
                 (run->call.method && strcmp(run->call.method, "GET") != 0 && strcmp(run->call.method, "HEAD") != 0);
    uint32_t n_doublings = run->counts.n_idle_turns + (run->has_sink ? 0 : 2);
    uint64_t least_ns = run->engine->options.turn_ms * NS_PER_MS;
    return sends ? UINT64_MAX : least_ns << (n_doublings < MAX_DOUBLINGS ? n_doublings : MAX_DOUBLINGS);
}

/* Waiting for others to leave is no lack of the server's progress; it has a limit of its own. */
static int enter_slot(struct http_run *run, struct error *error)
{
    uint64_t before_ns = clock_now_ns();
    run->wish.turn_ns = turn_ns(run);
    if (http_slots_enter(&run->engine->slots, run->origin, &run->wish, &run->slot, error))
        return -1;
    run->progress_ns += clock_now_ns() - before_ns;
    if (run->counts.n_tries++ > 0)
        http_origin_count_retry(&run->engine->origins, run->origin);
    return 0;
}

static int send_attempt(struct http_run *run, struct http_entry *decided, struct error *error)
{
    struct http_watch watch = {.engine = run->engine,
                               .origin = run->origin,
                               .wire = run->wire,
                               .wish = &run->wish,
                               .slot = &run->slot,
                               .progress_ns = run->progress_ns,
                               .may_hedge = run->may_hedge};
    struct http_exchange *exchange = memory_alloc(sizeof *exchange);
    exchange->order.attempt = &run->attempt;
    exchange->order.store = run->call.store;
    exchange->order.expected = &run->expected;
    exchange->sink = run->sink;
    exchange->order.has_sink = run->has_sink;
    exchange->order.is_fresh = run->is_fresh;
    const struct http_entry *entry = http_watch_run(&watch, exchange, error);
    if (!entry)
        return -1;
    *decided = *entry;
    run->progress_ns = watch.progress_ns;
    const char *id = http_head_request_id(&decided->exchange->answer.head.head);
    char text[TEXT_NAME_CHARS];
    if (id)
        snprintf(run->request_id, sizeof run->request_id, "%s", text_escape(id, strlen(id), text));
    return 0;
}

static int sleep_until(struct http_run *run, uint64_t until_ns, struct error *error)
{
    while (clock_now_ns() < until_ns) {
        if (cancel_is_set(run->call.cancel))
            return fail(error, ERROR_CANCELLED, "CANCELLED", "cancelled while waiting for the next try");
        uint64_t next_ns = http_sooner(until_ns, clock_now_ns() + HTTP_ASK_AGAIN_NS);
        struct timespec next = {.tv_sec = (time_t)(next_ns / 1000000000u), .tv_nsec = (long)(next_ns % 1000000000u)};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
    }
    return 0;
}

/* "https://host: the server answered 503: the server is overloaded, try 4 of 8". What is long loses its details. */
static void tell_wait(const struct http_run *run, uint64_t until_ns, const struct error *error)
{
    char text[WAITING_CHARS], why[TEXT_NAME_CHARS], *details = why;
    text_escape(error->message, strlen(error->message), why);
    while (strlen(why) > SHOWN_WHY_CHARS && (details = strrchr(why, ':')))
        *details = '\0';
    snprintf(text, sizeof text, "%.64s: %.*s, try %" PRIu32 " of %" PRIu32, run->origin->name, SHOWN_WHY_CHARS, why,
             run->counts.n_tries + 1, run->max_tries);
    waiting_begin(waiting_current(), text, until_ns);
}

/* The error says why the last try failed, and is the call's when there is no time for another. */
static int wait_before_retry(struct http_run *run, uint64_t retry_after_ns, struct error *error)
{
    const struct http_engine_options *options = &run->engine->options;
    uint64_t now_ns = clock_now_ns(), budget_ns = http_budget_take(&run->origin->budget, now_ns);
    uint64_t backoff_ns = http_backoff_ns(options->backoff_ms * NS_PER_MS, ++run->counts.n_fruitless);
    uint64_t until_ns = now_ns + (retry_after_ns > budget_ns ? retry_after_ns : budget_ns) + backoff_ns;
    uint64_t give_up_ns = run->progress_ns + options->progress_timeout_ms * NS_PER_MS;
    bool is_call = run->wish.deadline_ns > 0 && run->wish.deadline_ns < give_up_ns;
    http_origin_tell_retry(&run->engine->origins, run->origin, run->call.uid, run->counts.n_tries, run->max_tries, error);
    if (until_ns < (is_call ? run->wish.deadline_ns : give_up_ns)) {
        tell_wait(run, until_ns, error);
        int failed = sleep_until(run, until_ns, error);
        waiting_end(waiting_current());
        return failed;
    }
    return fail(error, ERROR_DEADLINE_EXCEEDED, is_call ? "DEADLINE" : "NO_PROGRESS",
                "%s; the next try would be in %.1f s, after the %s", error->message, (double)(until_ns - now_ns) / 1e9,
                is_call ? "call's deadline" : "limit on time without progress");
}

static int pursue(struct http_run *run, struct error *error)
{
    for (;;) {
        struct http_entry decided;
        struct http_next next = {0};
        if (cancel_is_set(run->call.cancel))
            return fail(error, ERROR_CANCELLED, "CANCELLED", "cancelled");
        if (prepare_attempt(run, error) || enter_slot(run, error) || send_attempt(run, &decided, error))
            return -1;
        http_settle(run, &decided, &next, error);
        if (next.step == HTTP_STEP_DONE) {
            run->answer = decided.exchange;
            return 0;
        }
        http_exchange_drop(run->engine, decided.exchange);
        if (next.step == HTTP_STEP_FAIL || (next.step == HTTP_STEP_LATER && run->counts.n_tries >= run->max_tries))
            return -1;
        if (next.step == HTTP_STEP_LATER && wait_before_retry(run, next.retry_after_ns, error))
            return -1;
    }
}

int http_run_pursue(struct http_run *run, struct error *error)
{
    run->url = memory_copy_text(run->call.url);
    run->wire = http_engine_wire(run->engine, run->call.no_proxy);
    run->max_tries = run->call.max_tries ? run->call.max_tries : run->engine->options.max_tries;
    run->started_ns = run->progress_ns = clock_now_ns();
    run->wish = (struct http_wish){
        .uid = run->call.uid,
        .cancel = run->call.cancel,
        .deadline_ns = run->call.timeout_ms ? run->started_ns + run->call.timeout_ms * NS_PER_MS : 0,
        .patience_ns = run->engine->options.progress_timeout_ms * NS_PER_MS,
    };
    return pursue(run, error) ? tell_failure(run, error) : 0;
}

void http_run_fini(struct http_run *run)
{
    if (run->answer)
        http_exchange_drop(run->engine, run->answer);
    http_origin_unref(&run->engine->origins, run->origin);
    http_attempt_clear(&run->attempt);
    free(run->url);
}
