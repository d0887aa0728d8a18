/* Verdicts on attempts; see http_settle.h. What is not counted as a try is bounded otherwise: redirects and renewals by
 * their own counts, a stale connection because the next one is new, short answers by what they must bring, turns that
 * others cut off by the time without progress. */
#include "source/http/http_settle.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/redact.h"
#include "source/http/http_failure.h"
#include "source/http/http_retry.h"

/* MAX_UNRESOLVED: of a document, within a second or two; a range is of a server whose name was known just before */
enum { MAX_REDIRECTS = 5, MAX_FAULTS = 2, MAX_PIECES = 64, MAX_UNRESOLVED = 4 };

static void now_uncounted(struct http_run *run, struct http_next *next)
{
    next->step = HTTP_STEP_NOW;
    run->counts.n_tries--;
}

static void later(struct http_run *run, struct http_next *next, bool on_new_connection)
{
    next->step = HTTP_STEP_LATER;
    run->is_fresh = on_new_connection;
}

/* One more try, on another connection: a front end may misbehave where another does not. */
static void later_once(struct http_run *run, struct http_next *next)
{
    if (++run->counts.n_faults >= MAX_FAULTS)
        next->step = HTTP_STEP_FAIL;
    else
        later(run, next, true);
}

/* Keeps the bytes that came before an end that is nobody's lie; only they need not be asked for again. False: none came. */
static bool keep_bytes(struct http_run *run, const struct http_exchange *exchange)
{
    uint64_t bytes = run->sink.left_bytes - exchange->sink.left_bytes;
    if (!run->has_sink || bytes == 0)
        return false;
    run->sink = exchange->sink;
    run->expected.first_byte += bytes;
    run->counts.n_fruitless = run->counts.n_idle_turns = 0;
    return true;
}

static void settle_complete(struct http_run *run, const struct http_exchange *exchange, struct http_next *next,
                            struct error *error)
{
    keep_bytes(run, exchange);
    if (!run->has_sink || run->sink.left_bytes == 0) {
        next->step = HTTP_STEP_DONE;
    } else if (++run->counts.n_pieces <= MAX_PIECES) {
        run->is_fresh = false;
        now_uncounted(run, next);
    } else {
        fail(error, ERROR_UNAVAILABLE, "BAD_ANSWER", "the server answers in pieces of %llu bytes",
             (unsigned long long)atomic_load(&exchange->seen.body_bytes));
        next->step = HTTP_STEP_FAIL;
    }
}

static bool is_redirect(const struct http_run *run, const struct http_exchange *exchange)
{
    int status = exchange->answer.head.head.status;
    bool redirects = status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
    return run->call.follow_redirects && redirects && http_head_find(&exchange->answer.head.head, "location");
}

static int follow_redirect(struct http_run *run, const struct http_exchange *exchange, struct error *error)
{
    const struct http_hop hop = {run->attempt.url, http_head_find(&exchange->answer.head.head, "location"),
                                 run->call.is_confined};
    int status = exchange->answer.head.head.status;
    if (run->counts.n_redirects++ >= MAX_REDIRECTS)
        return fail(error, ERROR_UNAVAILABLE, "TOO_MANY_REDIRECTS", "the server redirects more than %d times",
                    MAX_REDIRECTS);
    char *target = http_fence_follow(&run->engine->options.fence, &hop, error);
    if (!target)
        return -1;
    bool becomes_get = status == 303 || (status < 303 && run->call.body_bytes > 0);
    free(run->url);
    run->url = target;
    run->is_foreign = run->is_foreign || !url_is_same_origin(run->attempt.url, target);
    if (becomes_get && !(run->call.method && strcmp(run->call.method, "HEAD") == 0)) {
        run->call.method = "GET";
        run->call.body = NULL;
        run->call.body_bytes = 0;
    }
    if (run->is_foreign && run->call.body_bytes > 0) {
        char shown[REDACT_CHARS];
        redact(run->url, shown, sizeof shown);
        return fail(error, ERROR_FAILED_PRECONDITION, "REDIRECTED", "the server redirects what is sent to another host, %s",
                    shown);
    }
    return 0;
}

static enum http_verdict judge_refusal(const struct http_run *run, const struct http_exchange *exchange, struct error *error)
{
    const struct http_store *store = run->call.store;
    struct http_reply reply = {.head = exchange->answer.head.head,
                               .body = exchange->answer.body ? exchange->answer.body : "",
                               .body_bytes = exchange->answer.n_body,
                               .url = run->attempt.url,
                               .credential = run->attempt.credential};
    if (exchange->answer.body)
        exchange->answer.body[exchange->answer.n_body] = '\0';
    if (reply.head.status == 407) {
        http_failure_proxy(&run->attempt.where, reply.head.status, error);
        return HTTP_FAIL;
    }
    enum http_verdict verdict = http_judge(&reply, error);
    return store && store->judge ? store->judge(store->data, &reply, error) : verdict;
}

static void settle_refused(struct http_run *run, const struct http_exchange *exchange, struct http_next *next,
                           struct error *error)
{
    if (is_redirect(run, exchange)) {
        if (follow_redirect(run, exchange, error))
            next->step = HTTP_STEP_FAIL;
        else
            now_uncounted(run, next);
        return;
    }
    enum http_verdict verdict = judge_refusal(run, exchange, error);
    if (verdict == HTTP_RETRY_RENEWED && !run->counts.has_renewed) {
        run->counts.has_renewed = true;
        /* what the store knows of how to ask is for the first host */
        free(run->url);
        run->url = memory_copy_text(run->call.url);
        run->is_foreign = false;
        now_uncounted(run, next);
    } else if (verdict == HTTP_RETRY || verdict == HTTP_THROTTLED) {
        next->retry_after_ns = http_retry_after_ns(http_head_find(&exchange->answer.head.head, "retry-after"));
        later(run, next, false);
    } else if (run->call.accept_any_status && verdict == HTTP_FAIL) {
        next->step = HTTP_STEP_DONE;
    } else {
        next->step = HTTP_STEP_FAIL;
    }
}

static void settle_unacceptable(struct http_run *run, const struct http_exchange *exchange, struct http_next *next,
                                struct error *error)
{
    *error = exchange->outcome.error;
    if (exchange->outcome.fault == HTTP_FAULT_PASSING)
        later(run, next, false);
    else if (exchange->outcome.fault == HTTP_FAULT_PROTOCOL)
        later_once(run, next);
    else
        next->step = HTTP_STEP_FAIL;
}

static void settle_broken(struct http_run *run, const struct http_exchange *exchange, struct http_next *next,
                          struct error *error)
{
    struct http_failure failure = http_failure_of(exchange, &run->wire, error);
    keep_bytes(run, exchange);
    if (failure.is_final)
        next->step = HTTP_STEP_FAIL;
    else if (failure.is_unresolved && !run->has_sink && ++run->counts.n_unresolved >= MAX_UNRESOLVED)
        next->step = HTTP_STEP_FAIL;
    else if (failure.is_protocol)
        later_once(run, next);
    else if (failure.is_stale) {
        run->is_fresh = true;
        now_uncounted(run, next);
    } else
        later(run, next, !failure.is_refused); /* where no more connections are taken one that is there will do */
}

static void settle_cut_off(struct http_run *run, const struct http_entry *entry, struct http_next *next, struct error *error)
{
    const struct http_engine_options *limits = &run->engine->options;
    bool has_brought = keep_bytes(run, entry->exchange);
    switch (entry->cause) {
    case HTTP_CAUSE_FIRST_BYTE:
        fail(error, ERROR_UNAVAILABLE, "FIRST_BYTE_TIMEOUT", "no answer within %.1f s",
             (double)limits->first_byte_timeout_ms / 1e3);
        break;
    case HTTP_CAUSE_STALLED:
        fail(error, ERROR_UNAVAILABLE, "STALLED", "no byte for %.1f s in the middle of the answer",
             (double)limits->stall_timeout_ms / 1e3);
        break;
    case HTTP_CAUSE_SLOW:
        fail(error, ERROR_UNAVAILABLE, "STALLED", "less than %llu bytes/s", (unsigned long long)limits->minimum_bytes_per_s);
        break;
    case HTTP_CAUSE_PROGRESS:
        fail(error, ERROR_DEADLINE_EXCEEDED, "NO_PROGRESS", "no byte for %.1f s in all tries",
             (double)limits->progress_timeout_ms / 1e3);
        next->step = HTTP_STEP_FAIL;
        return;
    case HTTP_CAUSE_DEADLINE:
        fail(error, ERROR_DEADLINE_EXCEEDED, "DEADLINE", "not done within %.1f s", (double)run->call.timeout_ms / 1e3);
        next->step = HTTP_STEP_FAIL;
        return;
    case HTTP_CAUSE_RECALLED:
        run->counts.n_idle_turns += !has_brought;
        now_uncounted(run, next);
        return;
    default:
        fail(error, ERROR_CANCELLED, "CANCELLED", "cancelled");
        next->step = HTTP_STEP_FAIL;
        return;
    }
    later(run, next, true);
}

void http_settle(struct http_run *run, const struct http_entry *decided, struct http_next *next, struct error *error)
{
    const struct http_exchange *exchange = decided->exchange;
    switch (exchange->outcome.end) {
    case HTTP_END_COMPLETE:
        settle_complete(run, exchange, next, error);
        break;
    case HTTP_END_REFUSED:
        settle_refused(run, exchange, next, error);
        break;
    case HTTP_END_UNACCEPTABLE:
        settle_unacceptable(run, exchange, next, error);
        break;
    case HTTP_END_BROKEN:
        settle_broken(run, exchange, next, error);
        break;
    default:
        settle_cut_off(run, decided, next, error);
    }
}
