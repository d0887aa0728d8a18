/* A request in flight; see http_exchange.h.
 *
 *   on_sent -> on_header ... blank line: is it the answer that was asked for? -> on_body ... -> finish
 *
 * A callback that returns too little makes libcurl end the transfer and close its connection: that is how an answer is cut
 * off, and what has been noted before says why. */
#include "source/http/http_exchange.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/condition.h"
#include "base/memory.h"
#include "base/metadata.h"

enum {
    MAX_REFUSAL = 64 << 10,
    BUFFER_BYTES = 512 << 10 /* what libcurl receives at once: less costs more CPU, more saves none */
};

void http_race_init(struct http_race *race)
{
    condition_init(&race->changed);
    pthread_mutex_init(&race->lock, NULL);
    atomic_init(&race->winner, NULL);
}

void http_race_fini(struct http_race *race)
{
    pthread_cond_destroy(&race->changed);
    pthread_mutex_destroy(&race->lock);
}

static bool wins(struct http_exchange *exchange)
{
    struct http_race *race = exchange->order.race;
    struct http_exchange *none = NULL;
    if (!atomic_compare_exchange_strong(&race->winner, &none, exchange))
        return false;
    pthread_mutex_lock(&race->lock);
    pthread_cond_signal(&race->changed);
    pthread_mutex_unlock(&race->lock);
    return true;
}

void http_exchange_sent(struct http_exchange *exchange)
{
    atomic_store(&exchange->seen.sent_ns, clock_now_ns());
}

static int on_sent(void *data, char *peer, char *local, int peer_port, int local_port)
{
    (void)peer, (void)local, (void)peer_port, (void)local_port;
    http_exchange_sent(data);
    return CURL_PREREQFUNC_OK;
}

static bool refuse_answer(struct http_exchange *exchange, enum http_fault fault)
{
    exchange->outcome.fault = fault;
    return false;
}

static bool accept_head(struct http_exchange *exchange)
{
    const struct http_head *head = &exchange->answer.head.head;
    const struct http_store *store = exchange->order.store;
    enum http_fault fault =
        http_answer_check(exchange->order.expected, head, &exchange->answer.announced_bytes, &exchange->outcome.error);
    if (fault != HTTP_FAULT_NONE)
        return refuse_answer(exchange, fault);
    if (store && store->check && store->check(store->data, head, &exchange->outcome.error))
        return refuse_answer(exchange,
                             exchange->outcome.error.code == ERROR_ABORTED ? HTTP_FAULT_PASSING : HTTP_FAULT_FINAL);
    exchange->answer.is_accepted = wins(exchange);
    exchange->answer.max_body = exchange->order.has_sink ? 0 : exchange->order.expected->max_bytes;
    return exchange->answer.is_accepted;
}

static bool end_head(struct http_exchange *exchange)
{
    int status = exchange->answer.head.head.status;
    if (status < 200)
        return true;
    uint64_t now_ns = clock_now_ns();
    exchange->answer.has_head = true;
    atomic_store(&exchange->seen.last_byte_ns, now_ns);
    atomic_store(&exchange->seen.head_ns, now_ns);
    exchange->answer.max_body = MAX_REFUSAL;
    return status >= 300 || accept_head(exchange);
}

bool http_exchange_take_line(struct http_exchange *exchange, const char *line, size_t count)
{
    if (exchange->answer.has_head) /* trailers */
        return true;
    if (count <= 2 && (line[0] == '\r' || line[0] == '\n'))
        return end_head(exchange);
    return http_head_add_line(&exchange->answer.head, line, count, &exchange->outcome.error) == 0 ||
           refuse_answer(exchange, HTTP_FAULT_PROTOCOL);
}

static size_t on_header(char *line, size_t size, size_t count, void *data)
{
    return http_exchange_take_line(data, line, size * count) ? size * count : 0;
}

static bool collect_body(struct http_exchange *exchange, const char *bytes, size_t count)
{
    if (count > exchange->answer.max_body - exchange->answer.n_body) {
        fail(&exchange->outcome.error, ERROR_RESOURCE_EXHAUSTED, "ANSWER_TOO_LONG", "the answer is longer than %zu bytes",
             exchange->answer.max_body);
        return exchange->answer.is_accepted ? refuse_answer(exchange, HTTP_FAULT_FINAL) : false;
    }
    if (exchange->answer.n_body + count >= exchange->answer.body_room) {
        size_t room = (exchange->answer.n_body + count + 1) * 2;
        if (quota_charge_add(&exchange->answer.charge, room - exchange->answer.body_room, &exchange->outcome.error) != 0)
            return refuse_answer(exchange, HTTP_FAULT_FINAL);
        char *grown = room <= SIZE_MAX / 4 ? realloc(exchange->answer.body, room) : NULL;
        if (!grown) {
            quota_charge_subtract(&exchange->answer.charge, room - exchange->answer.body_room);
            metadata_fail_memory(room, &exchange->outcome.error);
            return refuse_answer(exchange, HTTP_FAULT_FINAL);
        }
        exchange->answer.body = grown;
        exchange->answer.body_room = room;
    }
    memcpy(exchange->answer.body + exchange->answer.n_body, bytes, count);
    exchange->answer.n_body += count;
    return true;
}

static bool take_bytes(struct http_exchange *exchange, const char *bytes, size_t count)
{
    uint64_t taken = atomic_load_explicit(&exchange->seen.body_bytes, memory_order_relaxed);
    if (!exchange->answer.is_accepted || !exchange->order.has_sink)
        return collect_body(exchange, bytes, count);
    if (count <= exchange->answer.announced_bytes - taken && http_sink_write(&exchange->sink, bytes, count))
        return true;
    fail(&exchange->outcome.error, ERROR_UNAVAILABLE, "BAD_ANSWER",
         "the answer goes on after the %" PRIu64 " bytes that its Content-Range announces",
         exchange->answer.announced_bytes);
    return refuse_answer(exchange, HTTP_FAULT_PROTOCOL);
}

void http_exchange_count(struct http_exchange *exchange, size_t count)
{
    atomic_store_explicit(&exchange->seen.last_byte_ns, clock_now_ns(), memory_order_relaxed);
    atomic_fetch_add_explicit(&exchange->seen.body_bytes, count, memory_order_relaxed);
    atomic_fetch_add_explicit(&exchange->order.origin->received_bytes, count, memory_order_relaxed);
}

bool http_exchange_take_body(struct http_exchange *exchange, const char *bytes, size_t count)
{
    if (!exchange->answer.has_head || !take_bytes(exchange, bytes, count))
        return false;
    http_exchange_count(exchange, count);
    return true;
}

static size_t on_body(char *bytes, size_t size, size_t count, void *data)
{
    return http_exchange_take_body(data, bytes, size * count) ? size * count : 0;
}

static void add_header(struct http_exchange *exchange, const char *name, const char *value)
{
    size_t room = strlen(name) + strlen(value) + 4;
    char *line = memory_alloc(room);
    /* libcurl leaves out "Name:" and sends "Name;" as an empty one */
    snprintf(line, room, *value ? "%s: %s" : "%s;", name, value);
    exchange->curl.headers = curl_slist_append(exchange->curl.headers, line);
    free(line);
}

static void set_headers(struct http_exchange *exchange)
{
    const struct http_attempt *attempt = exchange->order.attempt;
    for (size_t i = 0; i < attempt->n_headers; i++)
        add_header(exchange, attempt->headers[i].name, attempt->headers[i].value);
    if (!http_attempt_has_header(attempt, "Content-Type"))
        exchange->curl.headers = curl_slist_append(exchange->curl.headers, "Content-Type:");
    exchange->curl.headers = curl_slist_append(exchange->curl.headers, "Expect:");
    const struct http_expectation *expected = exchange->order.expected;
    if (expected->is_range) {
        char range[64];
        snprintf(range, sizeof range, "bytes=%" PRIu64 "-%" PRIu64, expected->first_byte, expected->end - 1);
        add_header(exchange, "Range", range);
    }
    curl_easy_setopt(exchange->curl.easy, CURLOPT_HTTPHEADER, exchange->curl.headers);
}

/* libcurl asks for the next bytes of a large body, so that it is seen to move. */
static size_t on_take(char *to, size_t size, size_t count, void *data)
{
    struct http_exchange *exchange = data;
    size_t room = size * count, left = exchange->order.attempt->body_bytes - exchange->curl.n_taken;
    size_t taken = left < room ? left : room;
    memcpy(to, (const char *)exchange->order.attempt->body + exchange->curl.n_taken, taken);
    exchange->curl.n_taken += taken;
    atomic_store(&exchange->seen.last_taken_ns, clock_now_ns());
    return taken;
}

/* On another connection it begins anew. */
static int on_rewind(void *data, curl_off_t offset, int origin)
{
    struct http_exchange *exchange = data;
    if (origin != SEEK_SET || offset < 0 || (uint64_t)offset > exchange->order.attempt->body_bytes)
        return CURL_SEEKFUNC_FAIL;
    exchange->curl.n_taken = (size_t)offset;
    return CURL_SEEKFUNC_OK;
}

static void set_body(struct http_exchange *exchange)
{
    const struct http_attempt *attempt = exchange->order.attempt;
    CURL *easy = exchange->curl.easy;
    curl_easy_setopt(easy, CURLOPT_POST, 1L);
    curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)attempt->body_bytes);
    if (attempt->body_bytes <= HTTP_LARGE_BODY) {
        curl_easy_setopt(easy, CURLOPT_POSTFIELDS, attempt->body_bytes > 0 ? attempt->body : "");
        return;
    }
    curl_easy_setopt(easy, CURLOPT_UPLOAD_BUFFERSIZE, (long)BUFFER_BYTES);
    curl_easy_setopt(easy, CURLOPT_READFUNCTION, on_take);
    curl_easy_setopt(easy, CURLOPT_READDATA, exchange);
    curl_easy_setopt(easy, CURLOPT_SEEKFUNCTION, on_rewind);
    curl_easy_setopt(easy, CURLOPT_SEEKDATA, exchange);
}

static void set_method(struct http_exchange *exchange)
{
    const struct http_attempt *attempt = exchange->order.attempt;
    bool is_get = strcmp(attempt->method, "GET") == 0, is_head = strcmp(attempt->method, "HEAD") == 0;
    bool sends = attempt->body_bytes > 0 || strcmp(attempt->method, "POST") == 0 || strcmp(attempt->method, "PUT") == 0;
    if (sends)
        set_body(exchange);
    if (is_head)
        curl_easy_setopt(exchange->curl.easy, CURLOPT_NOBODY, 1L);
    else if (sends || !is_get)
        curl_easy_setopt(exchange->curl.easy, CURLOPT_CUSTOMREQUEST, attempt->method);
}

static int set_handle(struct http_exchange *exchange, struct error *error)
{
    curl_easy_reset(exchange->curl.easy);
    http_wire_set(exchange->curl.easy, &exchange->curl.wire);
    curl_easy_setopt(exchange->curl.easy, CURLOPT_BUFFERSIZE, (long)BUFFER_BYTES);
    curl_easy_setopt(exchange->curl.easy, CURLOPT_FRESH_CONNECT, exchange->order.is_fresh ? 1L : 0L);
    CURL *easy = exchange->curl.easy;
    curl_easy_setopt(easy, CURLOPT_PRIVATE, exchange);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, exchange->curl.message);
    curl_easy_setopt(easy, CURLOPT_PREREQFUNCTION, on_sent);
    curl_easy_setopt(easy, CURLOPT_PREREQDATA, exchange);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, exchange);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, exchange);
    set_method(exchange);
    set_headers(exchange);
    CURLcode code = curl_easy_setopt(exchange->curl.easy, CURLOPT_URL, exchange->order.attempt->url);
    if (code != CURLE_OK)
        return fail(error, ERROR_INTERNAL, "HTTP_SETUP_FAILED", "libcurl: %s", curl_easy_strerror(code));
    return 0;
}

int http_exchange_set_up(struct http_exchange *exchange, const struct http_wire *wire, struct error *error)
{
    if (exchange->order.attempt->is_malformed)
        return fail(error, ERROR_INVALID_ARGUMENT, "BAD_HEADER", "a header of the request holds a line break");
    exchange->curl.gate = (struct http_gate){.guard = exchange->order.attempt->guard,
                                             .open_socket = wire->open_socket,
                                             .open_socket_data = wire->open_socket_data};
    exchange->curl.wire = *wire;
    exchange->curl.wire.guard = exchange->curl.gate.guard;
    exchange->curl.wire.gate = &exchange->curl.gate;
    if (exchange->curl.easy && set_handle(exchange, error))
        return -1;
    exchange->answer.announced_bytes = UINT64_MAX;
    exchange->answer.charge = metadata_charge();
    exchange->seen.started_ns = clock_now_ns();
    return 0;
}

void http_exchange_note_connection(struct http_exchange *exchange, CURL *easy)
{
    curl_easy_getinfo(easy, CURLINFO_NUM_CONNECTS, &exchange->curl.n_connects);
    curl_easy_getinfo(easy, CURLINFO_HTTP_CONNECTCODE, &exchange->curl.proxy_status);
}

static enum http_end end_of(const struct http_exchange *exchange)
{
    if (exchange->outcome.fault != HTTP_FAULT_NONE)
        return HTTP_END_UNACCEPTABLE;
    if (exchange->answer.has_head && exchange->answer.head.head.status >= 300)
        return HTTP_END_REFUSED;
    if (exchange->answer.has_head && !exchange->answer.is_accepted)
        return HTTP_END_LOST;
    if (!exchange->answer.has_head || exchange->curl.code != CURLE_OK)
        return atomic_load(&exchange->is_cancelled) ? HTTP_END_CANCELLED : HTTP_END_BROKEN;
    return HTTP_END_COMPLETE;
}

void http_exchange_finish(struct http_exchange *exchange, CURLcode code)
{
    struct http_race *race = exchange->order.race;
    exchange->curl.code = code;
    if (exchange->curl.easy)
        http_exchange_note_connection(exchange, exchange->curl.easy);
    uint64_t n_bytes = atomic_load(&exchange->seen.body_bytes), announced_bytes = exchange->answer.announced_bytes;
    /* a body without a length ends where its connection does; libcurl cannot know whether that was too early */
    if (code == CURLE_OK && exchange->answer.is_accepted && !exchange->order.expected->has_no_body &&
        announced_bytes != UINT64_MAX && n_bytes != announced_bytes) {
        exchange->curl.code = CURLE_PARTIAL_FILE;
        snprintf(exchange->curl.message, sizeof exchange->curl.message,
                 "the connection was closed after %" PRIu64 " of %" PRIu64 " bytes", n_bytes, announced_bytes);
    }
    exchange->outcome.end = end_of(exchange);
    exchange->outcome.ended_ns = clock_now_ns();
    pthread_mutex_lock(&race->lock);
    exchange->is_over = true;
    pthread_cond_signal(&race->changed);
    pthread_mutex_unlock(&race->lock);
}

void http_exchange_clear(struct http_exchange *exchange)
{
    curl_slist_free_all(exchange->curl.headers);
    http_head_clear(&exchange->answer.head);
    free(exchange->direct.sending.words);
    free(exchange->answer.body);
    quota_charge_end(&exchange->answer.charge);
}
