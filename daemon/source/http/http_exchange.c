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
#include <strings.h>

#include "base/clock.h"
#include "base/copy.h"
#include "base/crc.h"
#include "base/memory.h"
#include "base/metadata.h"
#include "observe/counters.h"

enum {
    MAX_REFUSAL = 64 << 10,
    BUFFER_BYTES = 512 << 10 /* what libcurl receives at once: less costs more CPU, more saves none */
};

/* --- the request --- */

static void free_header(struct http_header *header)
{
    memory_free_const(header->name);
    memory_free_const(header->value);
}

void http_attempt_clear(struct http_attempt *attempt)
{
    for (size_t i = 0; i < attempt->n_headers; i++)
        free_header(&attempt->headers[i]);
    free(attempt->headers);
    free(attempt->url);
    *attempt = (struct http_attempt){0};
}

void http_attempt_set_url(struct http_attempt *attempt, const char *url)
{
    char *copy = memory_copy_text(url);
    free(attempt->url);
    attempt->url = copy;
}

static struct http_header *find_header(const struct http_attempt *attempt, const char *name)
{
    for (size_t i = 0; i < attempt->n_headers; i++)
        if (strcasecmp(attempt->headers[i].name, name) == 0)
            return &attempt->headers[i];
    return NULL;
}

bool http_attempt_has_header(const struct http_attempt *attempt, const char *name)
{
    return find_header(attempt, name) != NULL;
}

void http_attempt_add_header(struct http_attempt *attempt, const char *name, const char *value)
{
    if (strpbrk(name, "\r\n: ") || !*name || strpbrk(value, "\r\n")) {
        attempt->is_malformed = true;
        return;
    }
    struct http_header copy = {.name = memory_copy_text(name), .value = memory_copy_text(value)};
    struct http_header *header = find_header(attempt, name);
    if (header) {
        free_header(header);
    } else {
        ARRAY_RESERVE(attempt->headers, attempt->n_headers, attempt->headers_room);
        header = &attempt->headers[attempt->n_headers++];
    }
    *header = copy;
}

/* --- where the bytes go --- */

bool http_sink_sums(const struct http_sink *sink)
{
    return sink->checksum == CHECKSUM_CRC32C || sink->checksum == CHECKSUM_CRC32 || sink->checksum == CHECKSUM_CRC64NVME;
}

static void sum_bytes(struct http_sink *sink, const char *bytes, size_t count)
{
    if (http_sink_sums(sink))
        sink->checksum_value = crc_update(sink->checksum, sink->checksum_value, bytes, count);
}

static void move_on(struct http_sink *sink, size_t count)
{
    sink->left_bytes -= count;
    sink->used += count;
    while (sink->index < sink->n_iov && sink->used == sink->iov[sink->index].iov_len) {
        sink->index++;
        sink->used = 0;
    }
}

char *http_sink_place(const struct http_sink *sink, size_t *room)
{
    *room = 0;
    if (sink->index == sink->n_iov)
        return NULL;
    const struct iovec *target = &sink->iov[sink->index];
    *room = target->iov_len - sink->used;
    return target->iov_base ? (char *)target->iov_base + sink->used : NULL;
}

void http_sink_advance(struct http_sink *sink, size_t count)
{
    size_t room;
    sum_bytes(sink, http_sink_place(sink, &room), count);
    move_on(sink, count);
    arrival_tell(sink->arrival, count);
}

/* False, and nothing written, when it is more than is left. */
static bool write_to_sink(struct http_sink *sink, const char *bytes, size_t count)
{
    if (count > sink->left_bytes)
        return false;
    sum_bytes(sink, bytes, count);
    arrival_tell(sink->arrival, count);
    while (count > 0) {
        size_t room;
        char *place = http_sink_place(sink, &room);
        size_t part = count < room ? count : room;
        if (place)
            copy_streaming(place, bytes, part);
        move_on(sink, part);
        bytes += part;
        count -= part;
    }
    return true;
}

/* --- the answer --- */

void http_exchange_sent(struct http_exchange *exchange)
{
    __atomic_store_n(&exchange->seen.sent_ns, clock_now_ns(), __ATOMIC_SEQ_CST);
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

/* All lines of it are here: an answer, or the hint of one. */
static bool end_head(struct http_exchange *exchange)
{
    const struct http_head *head = &exchange->answer.head.head;
    const struct http_store *store = exchange->order.store;
    struct http_race *race = exchange->order.race;
    struct http_exchange *none = NULL;
    if (head->status < 200)
        return true;
    uint64_t now_ns = clock_now_ns();
    exchange->answer.has_head = true;
    __atomic_store_n(&exchange->seen.last_byte_ns, now_ns, __ATOMIC_SEQ_CST);
    __atomic_store_n(&exchange->seen.head_ns, now_ns, __ATOMIC_SEQ_CST);
    exchange->answer.max_body = MAX_REFUSAL;
    if (head->status >= 300)
        return true;
    enum http_fault fault =
        http_answer_check(exchange->order.expected, head, &exchange->answer.announced_bytes, &exchange->outcome.error);
    if (fault == HTTP_FAULT_NONE && store && store->check && store->check(store->data, head, &exchange->outcome.error))
        fault = exchange->outcome.error.code == ERROR_ABORTED ? HTTP_FAULT_PASSING : HTTP_FAULT_FINAL;
    if (fault != HTTP_FAULT_NONE)
        return refuse_answer(exchange, fault);
    exchange->answer.max_body = exchange->order.has_sink ? 0 : exchange->order.expected->max_bytes;
    exchange->answer.is_accepted =
        __atomic_compare_exchange_n(&race->winner, &none, exchange, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    if (exchange->answer.is_accepted) {
        pthread_mutex_lock(&race->lock);
        pthread_cond_signal(&race->changed);
        pthread_mutex_unlock(&race->lock);
    }
    return exchange->answer.is_accepted;
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

void http_exchange_count(struct http_exchange *exchange, size_t count)
{
    __atomic_store_n(&exchange->seen.last_byte_ns, clock_now_ns(), __ATOMIC_RELAXED);
    __atomic_fetch_add(&exchange->seen.body_bytes, count, __ATOMIC_RELAXED);
    __atomic_fetch_add(&exchange->order.origin->received_bytes, count, __ATOMIC_RELAXED);
    http_origin_count(exchange->order.origin, COUNTER_HTTP_RECEIVED_BYTES, count);
}

bool http_exchange_take_body(struct http_exchange *exchange, const char *bytes, size_t count)
{
    uint64_t taken = __atomic_load_n(&exchange->seen.body_bytes, __ATOMIC_RELAXED);
    if (!exchange->answer.has_head)
        return false;
    if (!exchange->answer.is_accepted || !exchange->order.has_sink) {
        if (!collect_body(exchange, bytes, count))
            return false;
    } else if (count > exchange->answer.announced_bytes - taken || !write_to_sink(&exchange->sink, bytes, count)) {
        fail(&exchange->outcome.error, ERROR_UNAVAILABLE, "BAD_ANSWER",
             "the answer goes on after the %" PRIu64 " bytes that its Content-Range announces",
             exchange->answer.announced_bytes);
        return refuse_answer(exchange, HTTP_FAULT_PROTOCOL);
    }
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

/* libcurl asks for the next bytes of a large body, so that it is seen to move. */
static size_t on_take(char *to, size_t size, size_t count, void *data)
{
    struct http_exchange *exchange = data;
    size_t room = size * count, left = exchange->order.attempt->body_bytes - exchange->curl.n_taken;
    size_t taken = left < room ? left : room;
    memcpy(to, (const char *)exchange->order.attempt->body + exchange->curl.n_taken, taken);
    exchange->curl.n_taken += taken;
    __atomic_store_n(&exchange->seen.last_taken_ns, clock_now_ns(), __ATOMIC_SEQ_CST);
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

static CURLcode set_handle(struct http_exchange *exchange)
{
    const struct http_attempt *attempt = exchange->order.attempt;
    const struct http_expectation *expected = exchange->order.expected;
    const char *method = attempt->method;
    bool sends = attempt->body_bytes > 0 || strcmp(method, "POST") == 0 || strcmp(method, "PUT") == 0;
    CURL *easy = exchange->curl.easy;
    curl_easy_reset(easy);
    http_gate_set(easy, &exchange->curl.gate);
    curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, (long)BUFFER_BYTES);
    curl_easy_setopt(easy, CURLOPT_FRESH_CONNECT, exchange->order.is_fresh ? 1L : 0L);
    curl_easy_setopt(easy, CURLOPT_PRIVATE, exchange);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, exchange->curl.message);
    curl_easy_setopt(easy, CURLOPT_PREREQFUNCTION, on_sent);
    curl_easy_setopt(easy, CURLOPT_PREREQDATA, exchange);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, exchange);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, exchange);
    if (sends)
        set_body(exchange);
    if (strcmp(method, "HEAD") == 0)
        curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
    else if (sends || strcmp(method, "GET") != 0)
        curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, method);
    for (size_t i = 0; i < attempt->n_headers; i++)
        add_header(exchange, attempt->headers[i].name, attempt->headers[i].value);
    if (!http_attempt_has_header(attempt, "Content-Type"))
        exchange->curl.headers = curl_slist_append(exchange->curl.headers, "Content-Type:");
    exchange->curl.headers = curl_slist_append(exchange->curl.headers, "Expect:");
    if (expected->is_range) {
        char range[64];
        snprintf(range, sizeof range, "bytes=%" PRIu64 "-%" PRIu64, expected->first_byte, expected->end - 1);
        add_header(exchange, "Range", range);
    }
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, exchange->curl.headers);
    return curl_easy_setopt(easy, CURLOPT_URL, attempt->url);
}

int http_exchange_set_up(struct http_exchange *exchange, const struct http_wire *wire, struct error *error)
{
    if (exchange->order.attempt->is_malformed)
        return fail(error, ERROR_INVALID_ARGUMENT, "BAD_HEADER", "a header of the request holds a line break");
    exchange->curl.wire = *wire;
    exchange->curl.wire.guard = exchange->order.attempt->guard;
    exchange->curl.gate.wire = &exchange->curl.wire;
    CURLcode code = exchange->curl.easy ? set_handle(exchange) : CURLE_OK;
    if (code != CURLE_OK)
        return fail(error, ERROR_INTERNAL, "HTTP_SETUP_FAILED", "libcurl: %s", curl_easy_strerror(code));
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
        return __atomic_load_n(&exchange->is_cancelled, __ATOMIC_SEQ_CST) ? HTTP_END_CANCELLED : HTTP_END_BROKEN;
    return HTTP_END_COMPLETE;
}

void http_exchange_finish(struct http_exchange *exchange)
{
    struct http_race *race = exchange->order.race;
    if (exchange->curl.easy)
        http_exchange_note_connection(exchange, exchange->curl.easy);
    uint64_t n_bytes = __atomic_load_n(&exchange->seen.body_bytes, __ATOMIC_SEQ_CST),
             announced_bytes = exchange->answer.announced_bytes;
    /* a body without a length ends where its connection does; libcurl cannot know whether that was too early */
    if (exchange->curl.code == CURLE_OK && exchange->answer.is_accepted && !exchange->order.expected->has_no_body &&
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
    free(exchange->direct.words);
    free(exchange->answer.body);
    quota_charge_end(&exchange->answer.charge);
}
