/* One call pursued to its end on the caller's thread: prepare, wait for a slot, send, judge, wait, again.
 *
 *   +-> prepare -> slot -> watch -+-> a good answer, all of it ----------------> done
 *   |                             +-> some of a range: the cursor moves on  --+
 *   +--- redirect, renewed credentials, stale connection: at once ------------+
 *   +--- backoff, Retry-After, budget: unless tries or time are used up ------+--> error */
#ifndef SOURCE_HTTP_RUN_H
#define SOURCE_HTTP_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "source/http/http_engine.h"

struct http_counts { /* of what has been tried; each is bounded */
    uint32_t n_tries, n_fruitless, n_faults, n_unresolved, n_redirects, n_pieces, n_idle_turns;
    bool has_renewed; /* the credentials */
};

struct http_run {
    /* given */
    struct http_engine *engine;
    struct http_call call;            /* a redirect may turn it into a GET */
    struct http_expectation expected; /* first_byte moves on with what has come */
    struct http_sink sink;
    bool has_sink; /* a range; otherwise a document */
    bool is_fresh;
    const char *name;  /* of the object, or NULL */
    uint64_t *sent_ns; /* may be NULL */
    /* its own */
    char *url;          /* after redirects */
    bool is_unprepared; /* what its store needs for a request, credentials, could not be had: none was sent */
    bool is_foreign;
    struct http_attempt attempt;
    struct http_origin *origin; /* of the attempt */
    struct http_slot slot;      /* while it is under way */
    struct http_wire wire;
    struct http_wish wish; /* for slots */
    uint32_t max_tries;
    struct http_counts counts;
    uint64_t started_ns, progress_ns; /* progress: of the last byte so far */
    uint64_t retry_after_ns;          /* what the last answer asks for */
    char request_id[96];              /* of the last answer that had one */
    struct http_exchange *answer;     /* that ended it well */
};

enum http_cause { /* why the watch ended an exchange */
                  HTTP_CAUSE_NONE,
                  HTTP_CAUSE_CANCELLED,
                  HTTP_CAUSE_DEADLINE, /* of the call */
                  HTTP_CAUSE_PROGRESS, /* the call has had no byte for too long */
                  HTTP_CAUSE_FIRST_BYTE,
                  HTTP_CAUSE_STALLED,
                  HTTP_CAUSE_SLOW,
                  HTTP_CAUSE_RECALLED, /* others need the slot more */
};

struct http_ending { /* of an attempt */
    struct http_exchange *exchange;
    enum http_cause cause;
};

/* In http_watch.c: sends the attempt, and a second request like it when the first one's answer is slow to begin, and waits
 * until all is over and every slot left: deadlines, cancellation. The exchange that decides is the caller's:
 * http_exchange_drop() it. -1 and an error when nothing could be sent. */
int http_watch(struct http_run *run, struct http_ending *ending, struct error *error);
void http_exchange_drop(struct http_engine *engine, struct http_exchange *exchange);

/* Seconds or an HTTP date, at most 60 s; 0 when there is none or it cannot be read. */
uint64_t http_retry_after_ns(const char *value);

#endif
