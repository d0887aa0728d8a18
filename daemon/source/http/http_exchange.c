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
    struct http_race *race = exchange->race;
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
    atomic_store(&exchange->sent_ns, clock_now_ns());
}

static int on_sent(void *data, char *peer, char *local, int peer_port, int local_port)
{
    (void)peer, (void)local, (void)peer_port, (void)local_port;
    http_exchange_sent(data);
    return CURL_PREREQFUNC_OK;
}

static bool refuse(struct http_exchange *exchange, enum http_fault fault)
{
    exchange->fault = fault;
    return false;
}

static bool accept_head(struct http_exchange *exchange)
{
    const struct http_head *head = &exchange->head.head;
    const struct http_store *store = exchange->store;
    enum http_fault fault = http_answer_check(exchange->expected, head, &exchange->announced_bytes, &exchange->error);
    if (fault != HTTP_FAULT_NONE)
        return refuse(exchange, fault);
    if (store && store->check && store->check(store->data, head, &exchange->error))
        return refuse(exchange, exchange->error.code == ERROR_ABORTED ? HTTP_FAULT_PASSING : HTTP_FAULT_FINAL);
    exchange->is_accepted = wins(exchange);
    exchange->max_body = exchange->has_sink ? 0 : exchange->expected->max_bytes;
    return exchange->is_accepted;
}

static bool end_head(struct http_exchange *exchange)
{
    int status = exchange->head.head.status;
    if (status < 200)
        return true;
    uint64_t now_ns = clock_now_ns();
    exchange->has_head = true;
    atomic_store(&exchange->last_byte_ns, now_ns);
    atomic_store(&exchange->head_ns, now_ns);
    exchange->max_body = MAX_REFUSAL;
    return status >= 300 || accept_head(exchange);
}

bool http_exchange_take_line(struct http_exchange *exchange, const char *line, size_t count)
{
    if (exchange->has_head) /* trailers */
        return true;
    if (count <= 2 && (line[0] == '\r' || line[0] == '\n'))
        return end_head(exchange);
    return http_head_add_line(&exchange->head, line, count, &exchange->error) == 0 || refuse(exchange, HTTP_FAULT_PROTOCOL);
}

static size_t on_header(char *line, size_t size, size_t count, void *data)
{
    return http_exchange_take_line(data, line, size * count) ? size * count : 0;
}

static int grow_body(struct http_exchange *exchange, size_t room)
{
    if (quota_charge_add(&exchange->charge, room - exchange->body_room, &exchange->error) != 0)
        return -1;
    exchange->body = memory_grow(exchange->body, room, 1);
    exchange->body_room = room;
    return 0;
}

static bool collect(struct http_exchange *exchange, const char *bytes, size_t count)
{
    if (count > exchange->max_body - exchange->n_body) {
        fail(&exchange->error, ERROR_RESOURCE_EXHAUSTED, "ANSWER_TOO_LONG", "the answer is longer than %zu bytes",
             exchange->max_body);
        return exchange->is_accepted ? refuse(exchange, HTTP_FAULT_FINAL) : false;
    }
    if (exchange->n_body + count >= exchange->body_room && grow_body(exchange, (exchange->n_body + count + 1) * 2) != 0)
        return refuse(exchange, HTTP_FAULT_FINAL);
    memcpy(exchange->body + exchange->n_body, bytes, count);
    exchange->n_body += count;
    return true;
}

static bool take(struct http_exchange *exchange, const char *bytes, size_t count)
{
    uint64_t taken = atomic_load_explicit(&exchange->body_bytes, memory_order_relaxed);
    if (!exchange->is_accepted || !exchange->has_sink)
        return collect(exchange, bytes, count);
    if (count <= exchange->announced_bytes - taken && http_sink_write(&exchange->sink, bytes, count))
        return true;
    fail(&exchange->error, ERROR_UNAVAILABLE, "BAD_ANSWER",
         "the answer goes on after the %" PRIu64 " bytes that its Content-Range announces", exchange->announced_bytes);
    return refuse(exchange, HTTP_FAULT_PROTOCOL);
}

void http_exchange_count(struct http_exchange *exchange, size_t count)
{
    atomic_store_explicit(&exchange->last_byte_ns, clock_now_ns(), memory_order_relaxed);
    atomic_fetch_add_explicit(&exchange->body_bytes, count, memory_order_relaxed);
    atomic_fetch_add_explicit(&exchange->origin->received_bytes, count, memory_order_relaxed);
}

bool http_exchange_take_body(struct http_exchange *exchange, const char *bytes, size_t count)
{
    if (!exchange->has_head || !take(exchange, bytes, count))
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
    exchange->headers = curl_slist_append(exchange->headers, line);
    free(line);
}

static void set_headers(struct http_exchange *exchange)
{
    const struct http_attempt *attempt = exchange->attempt;
    for (size_t i = 0; i < attempt->n_headers; i++)
        add_header(exchange, attempt->headers[i].name, attempt->headers[i].value);
    if (!http_attempt_has_header(attempt, "Content-Type"))
        exchange->headers = curl_slist_append(exchange->headers, "Content-Type:");
    exchange->headers = curl_slist_append(exchange->headers, "Expect:");
    const struct http_expectation *expected = exchange->expected;
    if (expected->is_range) {
        char range[64];
        snprintf(range, sizeof range, "bytes=%" PRIu64 "-%" PRIu64, expected->first_byte, expected->end - 1);
        add_header(exchange, "Range", range);
    }
    curl_easy_setopt(exchange->easy, CURLOPT_HTTPHEADER, exchange->headers);
}

static void set_method(struct http_exchange *exchange)
{
    const struct http_attempt *attempt = exchange->attempt;
    bool is_get = strcmp(attempt->method, "GET") == 0, is_head = strcmp(attempt->method, "HEAD") == 0;
    bool sends = attempt->body_bytes > 0 || strcmp(attempt->method, "POST") == 0 || strcmp(attempt->method, "PUT") == 0;
    if (sends) {
        curl_easy_setopt(exchange->easy, CURLOPT_POST, 1L);
        curl_easy_setopt(exchange->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)attempt->body_bytes);
        curl_easy_setopt(exchange->easy, CURLOPT_POSTFIELDS, attempt->body_bytes > 0 ? attempt->body : "");
    }
    if (is_head)
        curl_easy_setopt(exchange->easy, CURLOPT_NOBODY, 1L);
    else if (sends || !is_get)
        curl_easy_setopt(exchange->easy, CURLOPT_CUSTOMREQUEST, attempt->method);
}

static void set_callbacks(struct http_exchange *exchange)
{
    CURL *easy = exchange->easy;
    curl_easy_setopt(easy, CURLOPT_PRIVATE, exchange);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, exchange->curl_message);
    curl_easy_setopt(easy, CURLOPT_PREREQFUNCTION, on_sent);
    curl_easy_setopt(easy, CURLOPT_PREREQDATA, exchange);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, exchange);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, exchange);
}

static int set_handle(struct http_exchange *exchange, struct error *error)
{
    curl_easy_reset(exchange->easy);
    http_wire_set(exchange->easy, &exchange->wire);
    curl_easy_setopt(exchange->easy, CURLOPT_BUFFERSIZE, (long)BUFFER_BYTES);
    curl_easy_setopt(exchange->easy, CURLOPT_FRESH_CONNECT, exchange->is_fresh ? 1L : 0L);
    set_callbacks(exchange);
    set_method(exchange);
    set_headers(exchange);
    CURLcode code = curl_easy_setopt(exchange->easy, CURLOPT_URL, exchange->attempt->url);
    if (code != CURLE_OK)
        return fail(error, ERROR_INTERNAL, "HTTP_SETUP_FAILED", "libcurl: %s", curl_easy_strerror(code));
    return 0;
}

int http_exchange_set_up(struct http_exchange *exchange, const struct http_wire *wire, struct error *error)
{
    if (exchange->attempt->is_malformed)
        return fail(error, ERROR_INVALID_ARGUMENT, "BAD_HEADER", "a header of the request holds a line break");
    exchange->gate = (struct http_gate){.guard = exchange->attempt->guard,
                                        .open_socket = wire->open_socket,
                                        .open_socket_data = wire->open_socket_data};
    exchange->wire = *wire;
    exchange->wire.guard = exchange->gate.guard;
    exchange->wire.gate = &exchange->gate;
    if (exchange->easy && set_handle(exchange, error))
        return -1;
    exchange->announced_bytes = UINT64_MAX;
    exchange->charge = metadata_charge();
    exchange->started_ns = clock_now_ns();
    return 0;
}

void http_exchange_note_connection(struct http_exchange *exchange, CURL *easy)
{
    curl_easy_getinfo(easy, CURLINFO_NUM_CONNECTS, &exchange->n_connects);
    curl_easy_getinfo(easy, CURLINFO_HTTP_CONNECTCODE, &exchange->proxy_status);
}

static enum http_end end_of(const struct http_exchange *exchange)
{
    if (exchange->fault != HTTP_FAULT_NONE)
        return HTTP_END_UNACCEPTABLE;
    if (exchange->has_head && exchange->head.head.status >= 300)
        return HTTP_END_REFUSED;
    if (exchange->has_head && !exchange->is_accepted)
        return HTTP_END_LOST;
    if (!exchange->has_head || exchange->code != CURLE_OK)
        return atomic_load(&exchange->is_cancelled) ? HTTP_END_CANCELLED : HTTP_END_BROKEN;
    return HTTP_END_COMPLETE;
}

/* A body without a length ends where its connection does; libcurl cannot know whether that was too early. */
static void check_end_of_body(struct http_exchange *exchange)
{
    if (exchange->code != CURLE_OK || !exchange->is_accepted || exchange->expected->has_no_body ||
        exchange->announced_bytes == UINT64_MAX || atomic_load(&exchange->body_bytes) == exchange->announced_bytes)
        return;
    exchange->code = CURLE_PARTIAL_FILE;
    snprintf(exchange->curl_message, sizeof exchange->curl_message,
             "the connection was closed after %" PRIu64 " of %" PRIu64 " bytes", atomic_load(&exchange->body_bytes),
             exchange->announced_bytes);
}

void http_exchange_finish(struct http_exchange *exchange, CURLcode code)
{
    struct http_race *race = exchange->race;
    exchange->code = code;
    if (exchange->easy)
        http_exchange_note_connection(exchange, exchange->easy);
    check_end_of_body(exchange);
    exchange->end = end_of(exchange);
    exchange->ended_ns = clock_now_ns();
    pthread_mutex_lock(&race->lock);
    exchange->is_over = true;
    pthread_cond_signal(&race->changed);
    pthread_mutex_unlock(&race->lock);
}

void http_exchange_clear(struct http_exchange *exchange)
{
    curl_slist_free_all(exchange->headers);
    http_head_clear(&exchange->head);
    free(exchange->direct.request);
    free(exchange->body);
    quota_charge_end(&exchange->charge);
}
