/* Calls pursued to their end; see http_run.h and http.h. What is not counted as a try is bounded otherwise: redirects and
 * renewals by their own counts, a stale connection because the next one is new, short answers by what they must bring, turns
 * that others cut off by the time without progress. */
#include "source/http/http_run.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <time.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/redact.h"
#include "base/text.h"
#include "base/waiting.h"

/* MAX_UNRESOLVED: of a document, within a second or two; a range is of a server whose name was known just before */
enum { MAX_REDIRECTS = 5, MAX_FAULTS = 2, MAX_PIECES = 64, MAX_UNRESOLVED = 4 };
enum { MAX_FACTOR = 80, MAX_RETRY_AFTER_S = 60, MAX_DOUBLINGS = 5 };
enum { SHOWN_WHY_CHARS = 60 };

/* --- what a status means --- */

static const struct status {
    int status;
    enum http_verdict verdict;
    enum error_code code;
    const char *reason, *text;
} statuses[] = {
    {401, HTTP_FAIL, ERROR_PERMISSION_DENIED, "NOT_AUTHENTICATED", "the credentials are missing or not accepted"},
    {403, HTTP_FAIL, ERROR_PERMISSION_DENIED, "ACCESS_DENIED", "these credentials may not do that"},
    {404, HTTP_FAIL, ERROR_NOT_FOUND, "NO_SUCH_OBJECT", "there is no such object"},
    {408, HTTP_RETRY, ERROR_UNAVAILABLE, "SERVER_BUSY", "the server lost its patience"},
    {410, HTTP_FAIL, ERROR_NOT_FOUND, "NO_SUCH_OBJECT", "the object is gone"},
    {412, HTTP_FAIL, ERROR_FAILED_PRECONDITION, REASON(OBJECT_CHANGED), "the object was replaced while being read"},
    {416, HTTP_FAIL, ERROR_FAILED_PRECONDITION, REASON(OBJECT_CHANGED),
     "the object ends before these bytes: it was replaced"},
    {429, HTTP_THROTTLED, ERROR_UNAVAILABLE, "THROTTLED", "too many requests"},
    {500, HTTP_RETRY, ERROR_UNAVAILABLE, "SERVER_ERROR", "the server failed"},
    {502, HTTP_RETRY, ERROR_UNAVAILABLE, "SERVER_ERROR", "the server behind the front end failed"},
    {503, HTTP_THROTTLED, ERROR_UNAVAILABLE, "SERVER_BUSY", "the server is overloaded"},
    {504, HTTP_RETRY, ERROR_UNAVAILABLE, "SERVER_ERROR", "the server behind the front end is too slow"},
};

static const struct status *find_status(int status)
{
    static const struct status redirect = {0, HTTP_FAIL, ERROR_UNAVAILABLE, "REDIRECTED", "a redirect that is not followed"};
    static const struct status refusal = {0, HTTP_FAIL, ERROR_INTERNAL, "REQUEST_REFUSED", "the server refuses the request"};
    static const struct status failure = {0, HTTP_FAIL, ERROR_UNAVAILABLE, "SERVER_ERROR", "the server failed"};
    for (size_t i = 0; i < sizeof statuses / sizeof statuses[0]; i++)
        if (statuses[i].status == status)
            return &statuses[i];
    return status < 400 ? &redirect : status < 500 ? &refusal : &failure;
}

enum http_verdict http_judge(const struct http_reply *reply, struct error *error)
{
    const struct status *means = find_status(reply->head.status);
    fail(error, means->code, means->reason, "the server answered %d: %s", reply->head.status, means->text);
    return means->verdict;
}

enum error_code http_error_code(int status, enum http_verdict verdict)
{
    const struct status *means = find_status(status);
    if (verdict == HTTP_RETRY || verdict == HTTP_THROTTLED)
        return ERROR_UNAVAILABLE;
    return means->status || status >= 500 ? means->code : ERROR_INVALID_ARGUMENT;
}

bool http_reply_is_page(const struct http_reply *reply)
{
    const char *body = reply->body + strspn(reply->body, " \t\r\n"), *type = http_head_find(&reply->head, "content-type");
    return strncasecmp(body, "<!doctype html", strlen("<!doctype html")) == 0 || strncasecmp(body, "<html", 5) == 0 ||
           (type && strncasecmp(type, "text/html", strlen("text/html")) == 0 && *body == '<');
}

/* --- when to try again --- */

uint64_t http_backoff_ns(uint64_t base_ns, uint32_t n)
{
    uint64_t factor = n > 7 ? MAX_FACTOR : (uint64_t)1 << (n > 0 ? n - 1 : 0), most = base_ns * factor, random;
    if (getrandom(&random, sizeof random, GRND_NONBLOCK) != sizeof random)
        random = most / 2;
    return most > 0 ? random % most : 0;
}

uint64_t http_retry_after_ns(const char *value)
{
    if (!value || !*value)
        return 0;
    char *rest;
    long long seconds = strtoll(value, &rest, 10);
    if (*rest) {
        time_t until = curl_getdate(value, NULL);
        seconds = until < 0 ? 0 : (long long)until - (long long)time(NULL);
    }
    seconds = seconds < 0 ? 0 : seconds;
    return (uint64_t)(seconds > MAX_RETRY_AFTER_S ? MAX_RETRY_AFTER_S : seconds) * 1000000000u;
}

/* The error says why the last try failed, and is the call's when there is no time for another. The client is told
 * "https://host: the server answered 503: the server is overloaded, try 4 of 8". What is long loses its details. */
static int wait_before_retry(struct http_run *run, struct error *error)
{
    const struct http_engine_options *options = &run->engine->options;
    uint64_t now_ns = clock_now_ns();
    uint64_t put_off_ns = http_origin_put_off_retry(&run->engine->origins, run->origin, run->call.uid, run->counts.n_tries,
                                                    run->max_tries, error);
    uint64_t backoff_ns = http_backoff_ns(options->backoff_ms * NS_PER_MS, ++run->counts.n_fruitless);
    uint64_t until_ns = now_ns + (run->retry_after_ns > put_off_ns ? run->retry_after_ns : put_off_ns) + backoff_ns;
    uint64_t give_up_ns = run->progress_ns + options->progress_timeout_ms * NS_PER_MS;
    bool is_call = run->wish.deadline_ns > 0 && run->wish.deadline_ns < give_up_ns;
    if (until_ns >= (is_call ? run->wish.deadline_ns : give_up_ns))
        return fail(error, ERROR_DEADLINE_EXCEEDED, is_call ? "DEADLINE" : "NO_PROGRESS",
                    "%s; the next try would be in %.1f s, after the %s", error->message, (double)(until_ns - now_ns) / 1e9,
                    is_call ? "call's deadline" : "limit on time without progress");
    char text[WAITING_CHARS], why[TEXT_NAME_CHARS], *details = why;
    text_escape(error->message, strlen(error->message), why);
    while (strlen(why) > SHOWN_WHY_CHARS && (details = strrchr(why, ':')))
        *details = '\0';
    snprintf(text, sizeof text, "%.64s: %.*s, try %" PRIu32 " of %" PRIu32, run->origin->name, SHOWN_WHY_CHARS, why,
             run->counts.n_tries + 1, run->max_tries);
    waiting_begin(waiting_current(), text, until_ns);
    int failed = 0;
    while (!failed && clock_now_ns() < until_ns) {
        uint64_t next_ns = http_sooner(until_ns, clock_now_ns() + HTTP_ASK_AGAIN_NS);
        struct timespec next = {.tv_sec = (time_t)(next_ns / 1000000000u), .tv_nsec = (long)(next_ns % 1000000000u)};
        if (cancel_is_set(run->call.cancel))
            failed = fail(error, ERROR_CANCELLED, "CANCELLED", "cancelled while waiting for the next try");
        else
            clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
    }
    waiting_end(waiting_current());
    return failed;
}

/* --- what the end of an attempt means for its call --- */

enum step { STEP_DONE, STEP_NOW /* not counted as a try */, STEP_LATER, STEP_FAIL };

static enum step try_later(struct http_run *run, bool on_new_connection)
{
    run->is_fresh = on_new_connection;
    return STEP_LATER;
}

/* One more try, on another connection: a front end may misbehave where another does not. */
static enum step try_later_once(struct http_run *run)
{
    return ++run->counts.n_faults >= MAX_FAULTS ? STEP_FAIL : try_later(run, true);
}

/* Keeps the bytes that came before an end that the server announced; only they need not be asked for again. False: none
 * came. */
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

static int follow_redirect(struct http_run *run, const struct http_head *head, struct error *error)
{
    const struct http_hop hop = {run->attempt.url, http_head_find(head, "location"), run->call.is_confined};
    if (run->counts.n_redirects++ >= MAX_REDIRECTS)
        return fail(error, ERROR_UNAVAILABLE, "TOO_MANY_REDIRECTS", "the server redirects more than %d times",
                    MAX_REDIRECTS);
    char *target = http_fence_follow(&run->engine->options.fence, &hop, error);
    if (!target)
        return -1;
    bool becomes_get = head->status == 303 || (head->status < 303 && run->call.body_bytes > 0);
    free(run->url);
    run->url = target;
    run->is_foreign = run->is_foreign || !url_is_same_origin(run->attempt.url, target);
    if (becomes_get && !(run->call.method && strcmp(run->call.method, "HEAD") == 0)) {
        run->call.method = "GET";
        run->call.body = NULL;
        run->call.body_bytes = 0;
    }
    if (run->is_foreign && run->call.body_bytes > 0)
        return fail(error, ERROR_FAILED_PRECONDITION, "REDIRECTED", "the server redirects an upload to another host, %s",
                    redact_show(run->url));
    return 0;
}

static const char *show_proxy(const struct url *url)
{
    const char *proxy = http_proxy_find(url);
    return redact_show(proxy ? proxy : "(none is set)");
}

/* An answer that is not 2xx. */
static enum step settle_refused(struct http_run *run, struct http_exchange *exchange, struct error *error)
{
    const struct http_store *store = run->call.store;
    const struct http_head *head = &exchange->answer.head.head;
    int status = head->status;
    bool redirects = status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
    if (run->call.follow_redirects && redirects && http_head_find(head, "location"))
        return follow_redirect(run, head, error) ? STEP_FAIL : STEP_NOW;
    if (exchange->answer.body)
        exchange->answer.body[exchange->answer.n_body] = '\0';
    const struct http_reply reply = {.head = *head,
                                     .body = exchange->answer.body ? exchange->answer.body : "",
                                     .body_bytes = exchange->answer.n_body,
                                     .url = run->attempt.url,
                                     .credential = run->attempt.credential};
    enum http_verdict verdict = http_judge(&reply, error);
    if (status == 407) {
        fail(error, ERROR_PERMISSION_DENIED, REASON(PROXY_FAILED), "the proxy %s answered %d and wants other credentials",
             show_proxy(&run->attempt.where), status);
    } else if (store && store->judge) {
        verdict = store->judge(store->data, &reply, error);
    }
    if (verdict == HTTP_RETRY_RENEWED && !run->counts.has_renewed) {
        run->counts.has_renewed = true;
        /* what the store knows of how to ask is for the first host */
        free(run->url);
        run->url = memory_copy_text(run->call.url);
        run->is_foreign = false;
        return STEP_NOW;
    }
    if (verdict == HTTP_RETRY || verdict == HTTP_THROTTLED) {
        run->retry_after_ns = http_retry_after_ns(http_head_find(head, "retry-after"));
        return try_later(run, false);
    }
    return run->call.accept_any_status && verdict == HTTP_FAIL ? STEP_DONE : STEP_FAIL;
}

static const struct failure {
    CURLcode code;
    enum { AGAIN, FINAL, TLS, PROXY, PROTOCOL, REFUSED, DROPPED } kind;
    const char *reason, *text;
} failures[] = {
    {CURLE_COULDNT_RESOLVE_HOST, AGAIN, "DNS_FAILED", "the host's name cannot be resolved"},
    {CURLE_COULDNT_RESOLVE_PROXY, PROXY, REASON(PROXY_FAILED), "the proxy's name cannot be resolved"},
    {CURLE_PROXY, PROXY, REASON(PROXY_FAILED), "the proxy failed"},
    {CURLE_COULDNT_CONNECT, REFUSED, "CONNECT_FAILED", "no connection"},
    {CURLE_OPERATION_TIMEDOUT, AGAIN, "CONNECT_TIMEOUT", "no connection in time"},
    {CURLE_GOT_NOTHING, DROPPED, "CONNECTION_LOST", "the connection was closed before an answer"},
    {CURLE_RECV_ERROR, DROPPED, "CONNECTION_LOST", "the connection was lost"},
    {CURLE_SEND_ERROR, DROPPED, "CONNECTION_LOST", "the connection was lost"},
    {CURLE_PARTIAL_FILE, AGAIN, "TRUNCATED", "the answer ended too early"},
    {CURLE_PEER_FAILED_VERIFICATION, TLS, REASON(TLS_FAILED), "the server's certificate is not trusted"},
    {CURLE_SSL_CACERT_BADFILE, TLS, REASON(TLS_FAILED), "the CA file cannot be used"},
    {CURLE_SSL_CERTPROBLEM, TLS, REASON(TLS_FAILED), "TLS failed"},
    {CURLE_SSL_CIPHER, TLS, REASON(TLS_FAILED), "TLS failed"},
    {CURLE_SSL_ISSUER_ERROR, TLS, REASON(TLS_FAILED), "TLS failed"},
    {CURLE_SSL_INVALIDCERTSTATUS, TLS, REASON(TLS_FAILED), "TLS failed"},
    {CURLE_SSL_CONNECT_ERROR, DROPPED, REASON(TLS_FAILED), "no TLS connection"},
    {CURLE_UNSUPPORTED_PROTOCOL, PROTOCOL, "BAD_ANSWER", "the answer is not HTTP"},
    {CURLE_WEIRD_SERVER_REPLY, PROTOCOL, "BAD_ANSWER", "the answer is not HTTP"},
    {CURLE_HTTP2, PROTOCOL, "BAD_ANSWER", "the answer is not HTTP/1.1"},
    {HTTP_CURLE_TOO_LARGE, PROTOCOL, "BAD_ANSWER", "the answer's header is too large"},
    {CURLE_OUT_OF_MEMORY /* until then */, PROTOCOL, "BAD_ANSWER", "the answer's header is too large"},
    {CURLE_URL_MALFORMAT, FINAL, "BAD_URL", "the URL cannot be understood"},
};

/* No answer, or not all of it. */
static enum step settle_broken(struct http_run *run, const struct http_exchange *exchange, struct error *error)
{
    static const struct failure unknown = {CURLE_OK, AGAIN, "HTTP_FAILED", "the request failed"};
    const struct failure *failure = &unknown;
    CURLcode code = exchange->curl.code;
    for (size_t i = 0; failure == &unknown && i < sizeof failures / sizeof failures[0]; i++)
        failure = failures[i].code == code ? &failures[i] : failure;
    const char *message = exchange->curl.message[0] ? exchange->curl.message : curl_easy_strerror(code);
    if (code == CURLE_OUT_OF_MEMORY)
        message = "libcurl takes no line longer than 100 KB";
    const char *details = text_show(message);
    long proxy_status = exchange->curl.proxy_status, n_connects = exchange->curl.n_connects;
    keep_bytes(run, exchange);
    if (!exchange->answer.has_head && http_gate_is_shut(&exchange->curl.gate)) {
        http_gate_fail(&exchange->curl.gate, error);
        return STEP_FAIL;
    }
    /* OpenSSL's own words begin with "error:"; without them the connection was lost during the handshake */
    if (failure->kind == TLS || (code == CURLE_SSL_CONNECT_ERROR && strstr(exchange->curl.message, "error:") &&
                                 !strstr(exchange->curl.message, "unexpected eof"))) {
        const char *system = curl_version_info(CURLVERSION_NOW)->cainfo;
        const char *from = run->wire.ca_file ? run->wire.ca_file : system ? system : "libcurl's own place";
        fail(error, ERROR_FAILED_PRECONDITION, REASON(TLS_FAILED), "%s: %s; CAs are read from %s",
             code == CURLE_SSL_CONNECT_ERROR ? "TLS failed" : failure->text, details, from);
        return STEP_FAIL;
    }
    bool is_answered = exchange->answer.has_head || __atomic_load_n(&exchange->seen.body_bytes, __ATOMIC_SEQ_CST) > 0;
    if (failure->kind == PROXY || (proxy_status >= 300 && !is_answered)) {
        bool is_refusal = proxy_status == 407;
        fail(error, is_refusal ? ERROR_PERMISSION_DENIED : ERROR_UNAVAILABLE, REASON(PROXY_FAILED),
             "the proxy %s failed: %s%s", show_proxy(&run->attempt.where), details,
             is_refusal ? "; it wants credentials" : "");
        return is_refusal ? STEP_FAIL : try_later(run, true);
    }
    fail(error, failure->kind == FINAL ? ERROR_INVALID_ARGUMENT : ERROR_UNAVAILABLE, failure->reason, "%s: %s",
         failure->text, details);
    if (failure->kind == FINAL)
        return STEP_FAIL;
    /* a name that DNS does not know is mostly wrong, or of another network */
    if (code == CURLE_COULDNT_RESOLVE_HOST && !run->has_sink && ++run->counts.n_unresolved >= MAX_UNRESOLVED)
        return STEP_FAIL;
    if (failure->kind == PROTOCOL) /* the peer does not speak HTTP */
        return try_later_once(run);
    bool is_dropped = failure->kind == DROPPED && !is_answered;
    if (is_dropped && n_connects == 0) { /* a kept connection that the server had closed meanwhile: no failure */
        run->is_fresh = true;
        return STEP_NOW;
    }
    /* before the server took the request: where no more connections are taken one that is there will do */
    return try_later(run, failure->kind != REFUSED && !is_dropped);
}

static enum step settle_cut_off(struct http_run *run, const struct http_ending *ending, struct error *error)
{
    const struct http_engine_options *limits = &run->engine->options;
    bool has_brought = keep_bytes(run, ending->exchange);
    switch (ending->cause) {
    case HTTP_CAUSE_FIRST_BYTE:
        fail(error, ERROR_UNAVAILABLE, "FIRST_BYTE_TIMEOUT", "no answer within %.1f s",
             (double)limits->first_byte_timeout_ms / 1e3);
        return try_later(run, true);
    case HTTP_CAUSE_STALLED:
        fail(error, ERROR_UNAVAILABLE, "STALLED", "no byte for %.1f s in the middle of the answer",
             (double)limits->stall_timeout_ms / 1e3);
        return try_later(run, true);
    case HTTP_CAUSE_SLOW:
        fail(error, ERROR_UNAVAILABLE, "STALLED", "less than %llu bytes/s", (unsigned long long)limits->minimum_bytes_per_s);
        return try_later(run, true);
    case HTTP_CAUSE_PROGRESS:
        fail(error, ERROR_DEADLINE_EXCEEDED, "NO_PROGRESS", "no byte for %.1f s in all tries",
             (double)limits->progress_timeout_ms / 1e3);
        return STEP_FAIL;
    case HTTP_CAUSE_DEADLINE:
        fail(error, ERROR_DEADLINE_EXCEEDED, "DEADLINE", "not done within %.1f s", (double)run->call.timeout_ms / 1e3);
        return STEP_FAIL;
    case HTTP_CAUSE_RECALLED:
        run->counts.n_idle_turns += !has_brought;
        return STEP_NOW;
    default:
        fail(error, ERROR_CANCELLED, "CANCELLED", "cancelled");
        return STEP_FAIL;
    }
}

/* Moves the call's cursor over what has come. `error` says what failed unless the step is DONE or NOW. */
static enum step settle_attempt(struct http_run *run, const struct http_ending *ending, struct error *error)
{
    struct http_exchange *exchange = ending->exchange;
    switch (exchange->outcome.end) {
    case HTTP_END_COMPLETE:
        keep_bytes(run, exchange);
        if (!run->has_sink || run->sink.left_bytes == 0)
            return STEP_DONE;
        run->is_fresh = false;
        if (++run->counts.n_pieces <= MAX_PIECES)
            return STEP_NOW;
        fail(error, ERROR_UNAVAILABLE, "BAD_ANSWER", "the server answers in pieces of %" PRIu64 " bytes",
             __atomic_load_n(&exchange->seen.body_bytes, __ATOMIC_SEQ_CST));
        return STEP_FAIL;
    case HTTP_END_REFUSED:
        return settle_refused(run, exchange, error);
    case HTTP_END_UNACCEPTABLE:
        *error = exchange->outcome.error;
        return exchange->outcome.fault == HTTP_FAULT_PASSING    ? try_later(run, false)
               : exchange->outcome.fault == HTTP_FAULT_PROTOCOL ? try_later_once(run)
                                                                : STEP_FAIL;
    case HTTP_END_BROKEN:
        return settle_broken(run, exchange, error);
    default:
        return settle_cut_off(run, ending, error);
    }
}

/* --- attempts --- */

/* What the call wants, what its store adds, what the fence says, and whose server it is. */
static int prepare_attempt(struct http_run *run, struct error *error)
{
    /* to another host than the call's; tokens and signatures have many names (x-amz-security-token, x-goog-..., cookie) */
    static const char *const may_go_anywhere[] = {"accept",        "content-type",      "if-match",
                                                  "if-none-match", "if-modified-since", NULL};
    const struct http_call *call = &run->call;
    const struct http_store *store = run->is_foreign ? NULL : call->store;
    const struct http_fence *fence = &run->engine->options.fence;
    struct http_attempt *attempt = &run->attempt;
    http_attempt_clear(attempt);
    attempt->method = call->method ? call->method : "GET";
    attempt->url = memory_copy_text(run->url);
    attempt->body = call->body;
    attempt->body_bytes = call->body_bytes;
    http_attempt_add_header(attempt, "Accept-Encoding", "identity");
    for (size_t i = 0; i < call->n_headers; i++) {
        const char *const *name = may_go_anywhere;
        while (run->is_foreign && *name && strcasecmp(*name, call->headers[i].name) != 0)
            name++;
        if (*name)
            http_attempt_add_header(attempt, call->headers[i].name, call->headers[i].value);
    }
    run->is_unprepared = store && store->prepare && store->prepare(store->data, attempt, error) != 0;
    if (run->is_unprepared)
        return -1;
    run->wire.ca_file = attempt->ca_file && !run->engine->is_ca_configured ? attempt->ca_file : run->engine->options.ca_file;
    /* the URL is final: through the fence, then into the one form in which it is sent */
    struct url home;
    if (url_parse(call->url, &home, error) < 0 || url_parse(attempt->url, &attempt->where, error) < 0 ||
        (!call->no_proxy && http_fence_check(fence, attempt->url, error) < 0))
        return -1;
    attempt->guard =
        call->no_proxy ? (struct http_guard){.may_be_reserved = true} : http_fence_guard(fence, &attempt->where, &home);
    char *url = url_print(&attempt->where), name[URL_ORIGIN_CHARS];
    free(attempt->url);
    attempt->url = url;
    if (url_parse(url, &attempt->where, error) < 0)
        return -1;
    http_origin_unref(&run->engine->origins, run->origin);
    run->origin = http_origin_ref(&run->engine->origins, url_origin(&attempt->where, name), error);
    return run->origin ? 0 : -1;
}

/* How long a slot is kept although others want it: longer after turns that brought nothing, or a slow server would never
 * come to its answer. A document begins anew in its next turn, and what is sent may not be sent twice. Waiting for others to
 * leave is no lack of the server's progress; it has a limit of its own. */
static int enter_slot(struct http_run *run, struct error *error)
{
    const char *method = run->attempt.method;
    bool sends = run->call.body_bytes > 0 || (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0);
    uint32_t n_doublings = run->counts.n_idle_turns + (run->has_sink ? 0 : 2);
    uint64_t before_ns = clock_now_ns(), least_ns = run->engine->options.turn_ms * NS_PER_MS;
    run->wish.turn_ns = sends ? UINT64_MAX : least_ns << (n_doublings < MAX_DOUBLINGS ? n_doublings : MAX_DOUBLINGS);
    run->wish.is_retry = run->counts.n_tries > 0;
    if (http_slots_enter(&run->engine->slots, run->origin, &run->wish, &run->slot, error))
        return -1;
    run->progress_ns += clock_now_ns() - before_ns;
    run->counts.n_tries++;
    return 0;
}

static int try_until_done(struct http_run *run, struct error *error)
{
    for (;;) {
        struct http_ending ending;
        run->retry_after_ns = 0;
        if (cancel_is_set(run->call.cancel))
            return fail(error, ERROR_CANCELLED, "CANCELLED", "cancelled");
        if (prepare_attempt(run, error) || enter_slot(run, error))
            return -1;
        if (run->sent_ns)
            *run->sent_ns = clock_now_ns();
        if (http_watch(run, &ending, error))
            return -1;
        const char *id = http_head_request_id(&ending.exchange->answer.head.head);
        if (id)
            snprintf(run->request_id, sizeof run->request_id, "%s", text_show(id));
        enum step step = settle_attempt(run, &ending, error);
        if (step == STEP_DONE) {
            run->answer = ending.exchange;
            return 0;
        }
        http_exchange_drop(run->engine, ending.exchange);
        if (step == STEP_NOW)
            run->counts.n_tries--;
        else if (step == STEP_FAIL || run->counts.n_tries >= run->max_tries || wait_before_retry(run, error))
            return -1;
    }
}

/* 0: run->answer is complete, and the range too if there is a sink. An error says what failed, where, how often and for how
 * long; the message of the code that looked at the answer alone is its middle. Either way fini_run() it. */
static int pursue(struct http_run *run, struct error *error)
{
    run->url = memory_copy_text(run->call.url);
    run->wire = (struct http_wire){.options = &run->engine->options, .no_proxy = run->call.no_proxy};
    run->max_tries = run->call.max_tries ? run->call.max_tries : run->engine->options.max_tries;
    run->started_ns = run->progress_ns = clock_now_ns();
    run->wish = (struct http_wish){
        .uid = run->call.uid,
        .cancel = run->call.cancel,
        .deadline_ns = run->call.timeout_ms ? run->started_ns + run->call.timeout_ms * NS_PER_MS : 0,
        .patience_ns = run->engine->options.progress_timeout_ms * NS_PER_MS,
    };
    if (try_until_done(run, error) == 0)
        return 0;
    if (run->is_unprepared && run->counts.n_tries == 0)
        return -1; /* its URL has no part in that */
    const char *url = redact_show(run->attempt.url ? run->attempt.url : run->url);
    if (run->counts.n_tries > 0) /* else nothing was sent */
        error_append(error, " (%" PRIu32 " %s in %.1f s%s%s)", run->counts.n_tries,
                     run->counts.n_tries == 1 ? "try" : "tries", (double)(clock_now_ns() - run->started_ns) / 1e9,
                     run->request_id[0] ? ", request id " : "", run->request_id);
    if (run->name)
        return error_prefix(error, "bytes %" PRIu64 "-%" PRIu64 " of %s from %s", run->expected.first_byte,
                            run->expected.end - 1, text_show(run->name), url);
    return error_prefix(error, "%s %s", run->call.method ? run->call.method : "GET", url);
}

static void fini_run(struct http_run *run)
{
    if (run->answer)
        http_exchange_drop(run->engine, run->answer);
    http_origin_unref(&run->engine->origins, run->origin);
    http_attempt_clear(&run->attempt);
    free(run->url);
}

/* --- the two calls --- */

void http_reply_clear(struct http_reply *reply)
{
    http_head_free(&reply->head);
    if (reply->body)
        explicit_bzero(reply->body, reply->body_bytes); /* it may hold a token */
    free(reply->body);
    quota_charge_end(&reply->charge);
    free(reply->url);
    *reply = (struct http_reply){0};
}

int http_fetch(struct http_engine *engine, const struct http_call *call, struct http_reply *reply, struct error *error)
{
    struct http_run run = {.engine = engine, .call = *call};
    run.expected = (struct http_expectation){.is_range = call->end > 0,
                                             .has_no_body = call->method && strcmp(call->method, "HEAD") == 0,
                                             .first_byte = call->first_byte,
                                             .end = call->end,
                                             .max_bytes = call->max_reply_bytes};
    if (call->end > 0 && call->first_byte >= call->end)
        return fail(error, ERROR_INVALID_ARGUMENT, "BAD_RANGE", "a range that ends before it begins");
    int result = pursue(&run, error);
    if (result == 0) {
        struct http_arriving *answer = &run.answer->answer;
        *reply = (struct http_reply){.head = http_head_take(&answer->head),
                                     .body = answer->body ? answer->body : memory_alloc(1),
                                     .body_bytes = answer->n_body,
                                     .charge = answer->charge,
                                     .url = memory_copy_text(run.attempt.url)};
        reply->body[reply->body_bytes] = '\0';
        answer->body = NULL;
        answer->charge = (struct quota_charge){0};
    }
    fini_run(&run);
    return result;
}

int http_read_range(struct http_engine *engine, const struct http_range *range, struct error *error)
{
    struct http_run run = {
        .engine = engine,
        .call = {.store = range->store, .url = range->url, .uid = range->uid, .cancel = range->cancel},
        .expected = {.is_range = true, .is_exact = true, .first_byte = range->offset, .object_bytes = range->object_bytes},
        .sink = {.iov = range->iov, .n_iov = range->n_iov, .checksum = range->checksum, .arrival = range->arrival},
        .has_sink = true,
        .is_fresh = range->fresh_connection,
        .sent_ns = range->sent_ns,
        .name = range->name};
    bool fits = true;
    for (int i = 0; i < range->n_iov; i++)
        fits = checked_add(run.sink.left_bytes, range->iov[i].iov_len, &run.sink.left_bytes) && fits;
    if (!fits || !checked_add(range->offset, run.sink.left_bytes, &run.expected.end) ||
        run.expected.end > range->object_bytes)
        return fail(error, ERROR_INVALID_ARGUMENT, "BAD_RANGE",
                    "%" PRIu64 " bytes from %" PRIu64 " of %s, which has %" PRIu64 ", were asked for", run.sink.left_bytes,
                    range->offset, text_show(range->name), range->object_bytes);
    int result = 0;
    if (run.sink.left_bytes > 0) {
        result = pursue(&run, error);
        fini_run(&run);
    }
    if (result == 0 && http_sink_sums(&run.sink))
        *range->checksum_value = run.sink.checksum_value;
    return result;
}
