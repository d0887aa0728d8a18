#include "tracing/otlp.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/clock.h"
#include "base/condition.h"
#include "base/memory.h"
#include "base/redact.h"
#include "base/text.h"
#include "base/url.h"
#include "base/version.h"
#include "observe/log.h"
#include "source/http/http.h"
#include "tracing/otlp_span.h"

enum {
    HOST_CHARS = 256,
    BATCH_BYTES = 512 << 10,
    CALL_MS = 10000, /* with all tries of it */
    ANSWER_MS = 3000,
    LAST_MS = 1000,
    COMPLAIN_MS = 60000
};

struct waiting_span {
    STAILQ_ENTRY(waiting_span) link;
    char *text;
};

struct otlp {
    struct trace_sink sink; /* first */
    char *url;
    char host[HOST_CHARS];
    struct otlp_resource resource;
    const char *endpoint;
    struct http_engine *http;
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock; /* of the rest */
    pthread_cond_t turned;
    STAILQ_HEAD(, waiting_span) waiting;
    size_t n_waiting;
    uint64_t n_dropped; /* since it was told */
    uint64_t complained_ns;
    bool is_stopping, is_sending;
    _Atomic bool is_cut_off;
};

/* --- the queue ------------------------------------------------------------------------------------------------------ */

static void take_trace(struct trace_sink *sink, const struct trace *trace)
{
    struct otlp *otlp = (struct otlp *)sink;
    if (trace->parent.is_given && !trace->parent.is_sampled)
        return;
    pthread_mutex_lock(&otlp->lock);
    bool has_room = otlp->n_waiting < OTLP_MAX_WAITING;
    otlp->n_dropped += !has_room;
    pthread_mutex_unlock(&otlp->lock);
    if (!has_room)
        return;
    struct waiting_span *span = memory_alloc(sizeof *span);
    span->text = otlp_span_write(trace, &otlp->resource);
    pthread_mutex_lock(&otlp->lock);
    STAILQ_INSERT_TAIL(&otlp->waiting, span, link);
    otlp->n_waiting++;
    pthread_cond_broadcast(&otlp->turned);
    pthread_mutex_unlock(&otlp->lock);
}

/* Under the lock: as many as a request may hold, at least one; malloced. */
static char *take_batch(struct otlp *otlp, size_t *n, size_t *length)
{
    struct waiting_span *span;
    char *text;
    size_t bytes = 0;
    FILE *out = memory_stream(&text, length);
    fputs("{\"resourceSpans\":[", out);
    for (*n = 0; (span = STAILQ_FIRST(&otlp->waiting)) && (*n == 0 || bytes + strlen(span->text) <= BATCH_BYTES); ++*n) {
        bytes += strlen(span->text);
        fprintf(out, "%s%s", *n ? "," : "", span->text);
        STAILQ_REMOVE_HEAD(&otlp->waiting, link);
        otlp->n_waiting--;
        free(span->text);
        free(span);
    }
    fputs("]}", out);
    fclose(out);
    return text;
}

/* --- the thread ----------------------------------------------------------------------------------------------------- */

static bool is_cut_off(void *data)
{
    return ((const struct otlp *)data)->is_cut_off;
}

static int post(struct otlp *otlp, const char *text, size_t length, struct error *error)
{
    static const struct http_header headers[] = {{"Content-Type", "application/json"}};
    const struct cancel cancel = {is_cut_off, otlp};
    const struct http_call call = {.method = "POST",
                                   .url = otlp->url,
                                   .headers = headers,
                                   .n_headers = sizeof headers / sizeof headers[0],
                                   .body = text,
                                   .body_bytes = length,
                                   .max_reply_bytes = 64 << 10,
                                   .timeout_ms = CALL_MS,
                                   .cancel = &cancel};
    struct http_reply reply = {0};
    int result = http_fetch(otlp->http, &call, &reply, error);
    http_reply_clear(&reply);
    return result;
}

/* Under the lock, once a minute. */
static void tell_failure(struct otlp *otlp, const struct error *error)
{
    uint64_t now_ns = clock_now_ns();
    if (otlp->complained_ns && now_ns - otlp->complained_ns < COMPLAIN_MS * (uint64_t)NS_PER_MS)
        return;
    otlp->complained_ns = now_ns;
    log_at_of(LOG_WARN, "tracing_failed", 0, LOG_TEXT("endpoint", redact_show(otlp->endpoint)),
              LOG_U64("dropped", otlp->n_dropped), LOG_TEXT("message", error->message));
    otlp->n_dropped = 0;
}

static void *send_batches(void *data)
{
    struct otlp *otlp = data;
    struct error error;
    pthread_mutex_lock(&otlp->lock);
    for (;;) {
        while (STAILQ_EMPTY(&otlp->waiting) && !otlp->is_stopping)
            pthread_cond_wait(&otlp->turned, &otlp->lock);
        if (STAILQ_EMPTY(&otlp->waiting) || otlp->is_cut_off)
            break;
        size_t n, length;
        char *text = take_batch(otlp, &n, &length);
        otlp->is_sending = true;
        pthread_mutex_unlock(&otlp->lock);
        int result = post(otlp, text, length, &error);
        free(text);
        pthread_mutex_lock(&otlp->lock);
        otlp->is_sending = false;
        if (result != 0) {
            otlp->n_dropped += n;
            tell_failure(otlp, &error);
        }
        pthread_cond_broadcast(&otlp->turned);
    }
    pthread_mutex_unlock(&otlp->lock);
    return NULL;
}

/* --- life ----------------------------------------------------------------------------------------------------------- */

/* ENDPOINT/v1/traces */
static char *find_url(const char *endpoint, struct error *error)
{
    struct url url;
    struct error cause;
    if (url_parse(endpoint, &url, &cause) != 0) {
        fail(error, ERROR_INVALID_ARGUMENT, "CONFIG_INVALID_VALUE", "tracing.otlp_endpoint: %s", cause.message);
        return NULL;
    }
    if (url.query_length) {
        fail(error, ERROR_INVALID_ARGUMENT, "CONFIG_INVALID_VALUE",
             "tracing.otlp_endpoint: %s has a query; it is a base URL such as http://127.0.0.1:4318", redact_show(endpoint));
        return NULL;
    }
    char origin[URL_ORIGIN_CHARS];
    size_t length = url.path_length;
    while (length && url.path[length - 1] == '/')
        length--;
    return memory_print("%s%.*s/v1/traces", url_origin(&url, origin), (int)length, url.path);
}

static int open_engine(struct otlp *otlp, struct error *error)
{
    const struct http_engine_options options = {
        .max_connections = 1,
        .max_tries = 3,
        .connect_timeout_ms = ANSWER_MS,
        .first_byte_timeout_ms = ANSWER_MS,
        .stall_timeout_ms = ANSWER_MS,
        .hedge_percent = 101,
        .is_uncounted = true,
        .fence = {.allow_plain = true, .endpoints = &otlp->endpoint, .n_endpoints = 1}};
    return http_engine_create(&options, &otlp->http, error);
}

int otlp_check(const struct config *config, struct error *error)
{
    const char *endpoint = config->tracing.otlp_endpoint;
    char *url = *endpoint ? find_url(endpoint, error) : NULL;
    int failed = *endpoint && !url ? -1 : 0;
    free(url);
    return failed;
}

int otlp_create(const struct config *config, struct otlp **made, struct error *error)
{
    *made = NULL;
    if (!*config->tracing.otlp_endpoint)
        return 0;
    struct otlp *otlp = memory_alloc(sizeof *otlp);
    *made = otlp;
    otlp->sink.take = take_trace;
    otlp->endpoint = config->tracing.otlp_endpoint;
    gethostname(otlp->host, sizeof otlp->host - 1);
    otlp->resource = (struct otlp_resource){otlp->host, version_text(), getpid()};
    STAILQ_INIT(&otlp->waiting);
    pthread_mutex_init(&otlp->lock, NULL);
    condition_init(&otlp->turned);
    otlp->url = find_url(otlp->endpoint, error);
    if (!otlp->url || open_engine(otlp, error) != 0)
        return -1;
    int why = pthread_create(&otlp->thread, NULL, send_batches, otlp);
    otlp->has_thread = why == 0;
    return why ? fail_errno(error, why, "starting the thread that sends traces") : 0;
}

struct trace_sink *otlp_sink(struct otlp *otlp)
{
    return otlp ? &otlp->sink : NULL;
}

/* Until everything is sent, or the time is over. */
static void wait_for_last(struct otlp *otlp)
{
    uint64_t until_ns = clock_now_ns() + LAST_MS * (uint64_t)NS_PER_MS;
    pthread_mutex_lock(&otlp->lock);
    otlp->is_stopping = true;
    pthread_cond_broadcast(&otlp->turned);
    while ((otlp->is_sending || !STAILQ_EMPTY(&otlp->waiting)) && clock_now_ns() < until_ns)
        condition_wait_until(&otlp->turned, &otlp->lock, until_ns);
    otlp->is_cut_off = true;
    pthread_mutex_unlock(&otlp->lock);
    pthread_join(otlp->thread, NULL);
}

void otlp_destroy(struct otlp *otlp)
{
    struct waiting_span *span;
    if (!otlp)
        return;
    if (otlp->has_thread)
        wait_for_last(otlp);
    http_engine_destroy(otlp->http);
    while ((span = STAILQ_FIRST(&otlp->waiting))) {
        STAILQ_REMOVE_HEAD(&otlp->waiting, link);
        free(span->text);
        free(span);
    }
    pthread_cond_destroy(&otlp->turned);
    pthread_mutex_destroy(&otlp->lock);
    free(otlp->url);
    free(otlp);
}
