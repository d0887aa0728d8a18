/* One request in flight and its answer: a libcurl handle, and the callbacks that check and take what comes.
 *
 * The caller makes it, gives it to a mover, watches the atomics, and may ask the mover to cancel it; it is the caller's
 * again once `is_over`, which the mover sets under the race's lock. Several exchanges of one race ask for the same thing;
 * the first with a good head wins, and only the winner ever writes into the sink's memory. */
#ifndef SOURCE_HTTP_EXCHANGE_H
#define SOURCE_HTTP_EXCHANGE_H

#include <curl/curl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "source/http/http.h"
#include "source/http/http_answer.h"
#include "source/http/http_attempt.h"
#include "source/http/http_head.h"
#include "source/http/http_origin.h"
#include "source/http/http_sink.h"

struct http_race {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* somebody won, or is over */
    _Atomic(struct http_exchange *) winner;
};

enum http_end {
    HTTP_END_NONE,
    HTTP_END_COMPLETE,     /* a good answer and all that its head announced */
    HTTP_END_REFUSED,      /* an answer that is not 2xx, with up to 64 KiB of its body */
    HTTP_END_UNACCEPTABLE, /* a 2xx that fails a check: `fault` and `error` */
    HTTP_END_BROKEN,       /* no answer, or not all of it: `code` */
    HTTP_END_CANCELLED,    /* by the caller */
    HTTP_END_LOST,         /* the race */
};

struct http_exchange {
    /* given */
    const struct http_attempt *attempt;
    const struct http_store *store;
    const struct http_expectation *expected;
    struct http_origin *origin;
    struct http_race *race;
    struct http_sink sink; /* a copy, good once it is over */
    bool has_sink;         /* otherwise the body is collected */
    bool is_fresh;         /* a new connection */
    /* what the caller watches */
    uint64_t started_ns;
    _Atomic uint64_t sent_ns, head_ns, last_byte_ns, body_bytes;
    bool is_over; /* under the race's lock */
    /* the mover's until it is over */
    struct http_mover *mover;
    struct http_exchange *next;
    atomic_bool is_cancelled;
    CURL *easy; /* lent by the engine */
    struct curl_slist *headers;
    char curl_message[CURL_ERROR_SIZE];
    CURLcode code;
    long n_connects, system_error, proxy_status;
    struct http_head_builder head;
    bool has_head, is_accepted;
    uint64_t announced_bytes;
    char *body;
    size_t n_body, body_room, max_body;
    enum http_fault fault;
    enum http_end end;
    uint64_t ended_ns;
    struct error error;
};

struct http_wire { /* settings of every request */
    const char *ca_file, *user_agent;
    uint64_t connect_timeout_ms;
    bool no_proxy;
};

void http_race_init(struct http_race *race);
void http_race_fini(struct http_race *race);

/* Caller's thread, before it is given away: every option of the handle. */
int http_exchange_set_up(struct http_exchange *exchange, const struct http_wire *wire, struct error *error);
/* Mover's thread, off the multi handle: how it ended; the caller may free it from then on. */
void http_exchange_finish(struct http_exchange *exchange, CURLcode code);
/* Caller's thread, over or never given away. */
void http_exchange_clear(struct http_exchange *exchange);

#endif
