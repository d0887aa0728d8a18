/* One request in flight and its answer, and the checks on what comes. Most are driven by libcurl; a range that goes into
 * memory is `direct`, on a connection of libcurl's but without it between the socket and the memory (http_direct.h); so is a
 * large body that goes out of memory over plain HTTP.
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
#include "source/http/http_framing.h"
#include "source/http/http_head.h"
#include "source/http/http_origin.h"
#include "source/http/http_sink.h"
#include "source/http/http_wire.h"

enum { HTTP_LARGE_BODY = 32 << 10 }; /* sending more than this is a matter of rate, not of the first byte's patience */

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

enum http_direct_wait {
    HTTP_WAIT_NOTHING /* go on */,
    HTTP_WAIT_READABLE,
    HTTP_WAIT_WRITABLE,
    HTTP_WAIT_EITHER,
    HTTP_WAIT_OVER
};

struct http_sending {
    char *words; /* request line and headers; NULL: libcurl drives the exchange */
    size_t words_bytes, n_words_sent;
    size_t n_body_sent; /* of the attempt's body */
    bool is_cut_short;  /* it was answered before its end, or ... */
    bool has_failed;    /* ... the connection takes no more: what came is read, and nothing is waited for */
};

struct http_direct {
    struct http_sending sending;
    char origin[URL_ORIGIN_CHARS];      /* that the request is for; its connection has to lead there */
    struct http_connection *connection; /* not open yet while is_connecting */
    bool is_connecting, is_old /* HTTP/1.0 */;
    enum http_direct_wait wait;
    struct http_framing framing;
};

struct http_order { /* what is asked for, and how; the caller's until it is given away, constant then */
    const struct http_attempt *attempt;
    const struct http_store *store;
    const struct http_expectation *expected;
    struct http_origin *origin;
    struct http_race *race;
    bool has_sink; /* otherwise the body is collected */
    bool is_fresh; /* a new connection */
};

struct http_progress { /* what the caller watches */
    uint64_t started_ns;
    _Atomic uint64_t sent_ns, head_ns, last_byte_ns, body_bytes;
    _Atomic uint64_t last_taken_ns; /* bytes of a large request body were taken; 0 = none yet */
};

struct http_transfer { /* what libcurl has of it */
    CURL *easy;        /* lent by the engine; NULL when direct */
    size_t n_taken;    /* of the attempt's body */
    struct curl_slist *headers;
    struct http_wire wire;
    struct http_gate gate;
    char message[CURL_ERROR_SIZE];
    CURLcode code;
    long n_connects, proxy_status;
};

struct http_arriving { /* what has come */
    struct http_head_builder head;
    bool has_head, is_accepted;
    uint64_t announced_bytes;
    char *body;
    size_t n_body, body_room, max_body;
    struct quota_charge charge; /* of the body, to who asks */
};

struct http_outcome {
    enum http_fault fault;
    enum http_end end;
    uint64_t ended_ns;
    struct error error;
};

struct http_exchange {
    struct http_order order;
    struct http_sink sink; /* a copy, good once it is over */
    struct http_progress seen;
    bool is_over; /* under the race's lock */
    /* the mover's until it is over */
    struct http_mover *mover;
    struct http_exchange *next;
    atomic_bool is_cancelled;
    struct http_direct direct;
    struct http_transfer curl;
    struct http_arriving answer;
    struct http_outcome outcome;
};

void http_race_init(struct http_race *race);
void http_race_fini(struct http_race *race);

/* Caller's thread, before it is given away: what libcurl drives gets every option of its handle. */
int http_exchange_set_up(struct http_exchange *exchange, const struct http_wire *wire, struct error *error);
/* Mover's thread: what the handle that tried to connect knows. */
void http_exchange_note_connection(struct http_exchange *exchange, CURL *easy);
/* Mover's thread. The request goes out; a line of the head; bytes of the body; bytes that were put into the sink. False: the
 * answer is to be cut off, what was noted says why. */
void http_exchange_sent(struct http_exchange *exchange);
bool http_exchange_take_line(struct http_exchange *exchange, const char *line, size_t count);
bool http_exchange_take_body(struct http_exchange *exchange, const char *bytes, size_t count);
void http_exchange_count(struct http_exchange *exchange, size_t count);
/* Mover's thread, off the multi handle: how it ended; the caller may free it from then on. */
void http_exchange_finish(struct http_exchange *exchange, CURLcode code);
/* Caller's thread, over or never given away. */
void http_exchange_clear(struct http_exchange *exchange);

#endif
