/* The hosts that were asked: how many requests are in flight to each, and what was learned about it.
 *
 * Origins are made when they are first asked for and lent by reference. There are HTTP_MAX_ORIGINS: the one that nobody has
 * used for longest makes room for a new one, and what was learned of it is forgotten. When all are in use there is none.
 *
 * Any thread; one lock for all of it and for the slots (http_slots.h), taken a few times per request. */
#ifndef SOURCE_HTTP_ORIGIN_H
#define SOURCE_HTTP_ORIGIN_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/url.h"
#include "source/http/http.h"
#include "source/http/http_limit.h"
#include "source/http/http_latency.h"
#include "source/http/http_retry.h"

enum { HTTP_MAX_ORIGINS = 1000, HTTP_TELL_RETRY_MS = 10000 };

struct http_origin {
    char name[URL_ORIGIN_CHARS];
    struct http_origin *next;
    uint32_t n_references;
    _Atomic uint64_t received_bytes; /* counted as they come */
    uint32_t in_flight;
    struct http_limit limit;
    struct http_latency latency;
    struct http_budget budget; /* has a lock of its own */
    uint64_t n_requests, n_retries, n_hedges, n_throttled;
    uint64_t told_ns;                                     /* when the log heard of a retry last */
    uint64_t counted_ns, busy_ns, busy_bytes, seen_bytes; /* while anything is in flight; halved now and then */
    uint64_t body_ns, body_bytes;                         /* of single bodies; likewise */
};

struct http_origins {
    pthread_mutex_t lock;
    struct http_origin *first;     /* the one asked for last first */
    uint64_t n_requests, n_hedges; /* of all origins ever */
    uint32_t n_origins, max_host_connections;
};

void http_origins_init(struct http_origins *origins, uint32_t max_host_connections);
void http_origins_fini(struct http_origins *origins);

/* The origin of that name, made when new: the caller's until http_origin_unref(). NULL: RESOURCE_EXHAUSTED. */
struct http_origin *http_origin_ref(struct http_origins *origins, const char *name, struct error *error);
void http_origin_unref(struct http_origins *origins, struct http_origin *origin); /* accepts NULL */

struct http_visit { /* what one request showed */
    uint64_t started_ns, latency_ns /* 0 = no answer */, body_ns, body_bytes;
    bool is_throttled; /* the server wants fewer */
    bool is_refused;   /* at connect: it may want fewer */
};
/* For http_slots.c, under the lock. A request begins; it is over; whether another may be hedged; it is. */
void http_origin_begin(struct http_origins *origins, struct http_origin *origin, uint64_t now_ns);
void http_origin_end(struct http_origin *origin, const struct http_visit *visit, uint64_t now_ns);
bool http_origin_may_hedge(const struct http_origins *origins, uint32_t percent);
void http_origin_count_hedge(struct http_origins *origins, struct http_origin *origin);

/* Tells the log, once in HTTP_TELL_RETRY_MS for each origin, that the n-th of max tries has failed with this error. */
void http_origin_tell_retry(struct http_origins *origins, struct http_origin *origin, uid_t uid, uint32_t n, uint32_t max,
                            const struct error *error);
void http_origin_count_retry(struct http_origins *origins, struct http_origin *origin);
/* Within which time nearly every answer begins; 0 = not known. */
uint64_t http_origin_slow_ns(struct http_origins *origins, struct http_origin *origin);
/* origin NULL = the sum. */
void http_origins_statistics(struct http_origins *origins, const char *origin, struct http_statistics *statistics);

#endif
