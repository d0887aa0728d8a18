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
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "base/arrival.h"
#include "base/checksum.h"
#include "base/error.h"
#include "source/http/http.h"
#include "source/http/http_framing.h"
#include "source/http/http_head.h"
#include "source/http/http_origin.h"
#include "source/http/http_wire.h"

#define HTTP_CURLE_TOO_LARGE ((CURLcode)100) /* CURLE_TOO_LARGE, since libcurl 8.6 */
enum { HTTP_LARGE_BODY = 32 << 10 }; /* sending more than this is a matter of rate, not of the first byte's patience */

struct http_race {
    pthread_mutex_t lock;
    pthread_cond_t changed;       /* an attempt won, or is over */
    struct http_exchange *winner; /* atomic */
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

struct http_direct {
    char *words; /* request line and headers; NULL: libcurl drives the exchange */
    size_t words_bytes, n_words_sent;
    size_t n_body_sent;                 /* of the attempt's body */
    bool is_cut_short;                  /* the body was answered before its end, or ... */
    bool has_failed;                    /* ... the connection takes no more: what came is read, and nothing is waited for */
    char origin[URL_ORIGIN_CHARS];      /* that the request is for; its connection has to lead there */
    struct http_connection *connection; /* not open yet while is_connecting */
    bool is_connecting, is_old /* HTTP/1.0 */;
    enum http_direct_wait wait;
    struct http_framing framing;
};

/* Where the bytes of a range go: a cursor over the caller's memory that sums what passes. A value; one thread at a time. */
struct http_sink {
    const struct iovec *iov;
    int n_iov, index;
    size_t used; /* of iov[index] */
    uint64_t left_bytes;
    enum checksum_kind checksum;
    uint64_t checksum_value;
    struct arrival *arrival; /* told of what passes; may be NULL */
};

bool http_sink_sums(const struct http_sink *sink);
/* Where the next bytes go and how many of them in one piece; NULL when they are thrown away. */
char *http_sink_place(const struct http_sink *sink, size_t *room);
/* So many bytes, no more than there was room for, have been put there. */
void http_sink_advance(struct http_sink *sink, size_t count);

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
    uint64_t sent_ns, head_ns, last_byte_ns, body_bytes; /* atomic */
    uint64_t last_taken_ns;                              /* atomic; bytes of a large request body were taken; 0 = none yet */
};

struct http_transfer { /* what libcurl has of it */
    CURL *easy;        /* lent by the engine; NULL when direct */
    size_t n_taken;    /* of the attempt's body */
    struct curl_slist *headers;
    struct http_wire wire;
    struct http_gate gate; /* before it */
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
    TAILQ_ENTRY(http_exchange) link;
    bool is_cancelled; /* atomic */
    struct http_direct direct;
    struct http_transfer curl;
    struct http_arriving answer;
    struct http_outcome outcome;
};

/* Of the request: any of its headers, in any case; and its memory. */
bool http_attempt_has_header(const struct http_attempt *attempt, const char *name);
void http_attempt_clear(struct http_attempt *attempt);

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
/* Mover's thread, off the multi handle: how it ended, by its `code`; the caller may free it from then on. */
void http_exchange_finish(struct http_exchange *exchange);
/* Caller's thread, over or never given away. */
void http_exchange_clear(struct http_exchange *exchange);

#endif
