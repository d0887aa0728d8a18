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
#include "source/http/http_watch.h"

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
    bool has_sink, is_fresh, may_hedge;
    const char *name; /* of the object, or NULL */
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
    uint64_t started_ns, progress_ns;
    char request_id[96];          /* of the last answer that had one */
    struct http_exchange *answer; /* the one that ended it well */
};

/* 0: run->answer is complete, and the range too if there is a sink. Either way http_run_fini() it. */
int http_run_pursue(struct http_run *run, struct error *error);
void http_run_fini(struct http_run *run);

#endif
