/* The hosts that were asked: how many requests are in flight to each, and what was learned about it: how many requests at
 * once it allows, how long its answers take to begin, how fast its connections are, and how many retries it is due.
 *
 * Origins are made when they are first asked for and lent by reference. There are HTTP_MAX_ORIGINS: the least recently used
 * origin makes room for a new one, and what was learned of it is forgotten. When all are in use there is none.
 *
 * Any thread; one lock for all of it and for the slots (http_slots.h), taken a few times per request. */
#ifndef SOURCE_HTTP_ORIGIN_H
#define SOURCE_HTTP_ORIGIN_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "base/error.h"
#include "base/url.h"
#include "observe/counters.h"
#include "source/http/http.h"

enum { HTTP_MAX_ORIGINS = 1000, HTTP_TELL_RETRY_MS = 10000, HTTP_LATENCY_STEPS = 96 };
enum { HTTP_MAX_MOVERS = 8 }; /* threads that move bytes */

/* How many requests at once one origin allows. Slow start, if fewer than the most are allowed at first: one more for every answer
 * while all are used. Once it has said "too many": half of them, and one more for every round in which all were used and none was
 * refused. A round is as many requests as are allowed at once. A plain value, as are the next two. */
struct http_limit {
    uint32_t allowed, most; /* requests at once: now, ever */
    uint32_t n_answered;    /* in this round */
    uint64_t round_ns, cut_ns;
};

/* A request was answered, of so many in flight. */
void http_limit_answered(struct http_limit *limit, uint32_t in_flight, uint64_t now_ns);
/* The origin refused a request that started then. One cut answers all the refusals of requests started before it.
 * True when it cut. */
bool http_limit_cut(struct http_limit *limit, uint64_t started_ns, uint64_t now_ns);

/* How long answers take to begin: a histogram with four steps per doubling that forgets slowly. Zeroed = nothing known. */
struct http_latency {
    uint32_t counts[HTTP_LATENCY_STEPS], n;
};

void http_latency_add(struct http_latency *latency, uint64_t ns);
/* The time within which `percent` of them began, rounded up to a step; 0 while fewer than 20 are known. */
uint64_t http_latency_ns(const struct http_latency *latency, uint32_t percent);

/* Retries, so that they never become a flood of their own, and those to a host that fails hold up none to another: a token
 * bucket with 256 at once, then 10 a second and one for every ten requests. */
struct http_budget {
    double tokens;
    uint64_t counted_ns;
};

struct http_budget http_budget_full(uint64_t now_ns);
void http_budget_earn(struct http_budget *budget); /* a request is sent */
/* Takes a token; how long to wait until it is there. */
uint64_t http_budget_take(struct http_budget *budget, uint64_t now_ns);

struct http_origin {
    char name[URL_ORIGIN_CHARS];
    bool is_uncounted; /* not a store */
    TAILQ_ENTRY(http_origin) link;
    uint32_t n_references;
    uint64_t received_bytes;                                     /* atomic; counted as they come */
    uint32_t in_flight, first_mover, in_movers[HTTP_MAX_MOVERS]; /* requests in each mover, of which the first has most */
    struct http_limit limit;
    struct http_latency latency;
    struct http_budget budget;
    uint64_t n_requests, n_retries, n_hedges, n_throttled;
    uint64_t told_ns;                                     /* when the log heard of a retry last */
    uint64_t counted_ns, busy_ns, busy_bytes, seen_bytes; /* while anything is in flight; halved now and then */
    uint64_t body_ns, body_bytes;                         /* of single bodies; likewise */
};

struct http_origins {
    pthread_mutex_t lock;
    TAILQ_HEAD(http_origin_list, http_origin) list; /* the one asked for last first */
    uint64_t n_requests, n_hedges, n_recalled;      /* of all origins ever */
    uint32_t n_origins, new_host_connections, max_host_connections;
    uint32_t n_movers, next_mover; /* next: the first one of the next origin */
    bool is_uncounted;             /* not stores */
};

void http_origins_init(struct http_origins *origins, uint32_t new_host_connections, uint32_t max_host_connections);
void http_origins_fini(struct http_origins *origins);

/* The origin of that name, made when new: the caller's until http_origin_unref(). NULL: RESOURCE_EXHAUSTED. */
struct http_origin *http_origin_ref(struct http_origins *origins, const char *name, struct error *error);
void http_origin_unref(struct http_origins *origins, struct http_origin *origin); /* accepts NULL */

/* Into the daemon's counters of stores, if it is one. Any thread. */
void http_origin_count(const struct http_origin *origin, enum counter counter, uint64_t n);

struct http_visit { /* what one request showed */
    uint64_t started_ns, latency_ns /* 0 = no answer */, body_ns, body_bytes;
    bool is_throttled; /* the server wants fewer */
    bool is_refused;   /* at connect: it may want fewer */
};
/* For http_slots.c, under the lock. A request begins, in the mover that is returned; it is over. */
uint32_t http_origin_begin(struct http_origins *origins, struct http_origin *origin, uint64_t now_ns);
void http_origin_end(struct http_origin *origin, uint32_t mover, const struct http_visit *visit, uint64_t now_ns);

/* The n-th of max tries has failed with this error: how long the budget puts off the next one. The log is told once in
 * HTTP_TELL_RETRY_MS for each origin. */
uint64_t http_origin_put_off_retry(struct http_origins *origins, struct http_origin *origin, uid_t uid, uint32_t n,
                                   uint32_t max, const struct error *error);
/* Within which time nearly every answer begins; 0 = not known. */
uint64_t http_origin_slow_ns(struct http_origins *origins, struct http_origin *origin);
/* origin NULL = the sum. */
void http_origins_statistics(struct http_origins *origins, const char *origin, struct http_statistics *statistics);

#endif
