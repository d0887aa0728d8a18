/* The table of hosts and what was learned about each; see http_origin.h. */
#include "source/http/http_origin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "observe/log.h"

static const uint64_t halve_after_ns = 4000 * (uint64_t)NS_PER_MS, known_after_ns = 20 * (uint64_t)NS_PER_MS;
enum {
    SMALL_BODY = 256 << 10 /* comes out of the kernel's buffers at once and says nothing about a connection */
};

void http_origins_init(struct http_origins *origins, uint32_t max_host_connections)
{
    *origins = (struct http_origins){.max_host_connections = max_host_connections};
    pthread_mutex_init(&origins->lock, NULL);
}

static void destroy_origin(struct http_origin *origin)
{
    http_budget_fini(&origin->budget);
    free(origin);
}

void http_origins_fini(struct http_origins *origins)
{
    while (origins->first) {
        struct http_origin *origin = origins->first;
        origins->first = origin->next;
        destroy_origin(origin);
    }
    pthread_mutex_destroy(&origins->lock);
}

static struct http_origin *unlink_origin(struct http_origin **link)
{
    struct http_origin *origin = *link;
    *link = origin->next;
    return origin;
}

static struct http_origin *make_origin(struct http_origins *origins, const char *name)
{
    if (origins->n_origins >= HTTP_MAX_ORIGINS) { /* in place of the last of the list that nobody refers to */
        struct http_origin **oldest = NULL;
        for (struct http_origin **link = &origins->first; *link; link = &(*link)->next)
            oldest = (*link)->n_references == 0 ? link : oldest;
        if (!oldest)
            return NULL;
        destroy_origin(unlink_origin(oldest));
        origins->n_origins--;
    }
    struct http_origin *origin = memory_alloc(sizeof *origin);
    snprintf(origin->name, sizeof origin->name, "%s", name);
    origin->counted_ns = clock_now_ns();
    http_limit_init(&origin->limit, origins->max_host_connections);
    http_budget_init(&origin->budget, origin->counted_ns);
    origins->n_origins++;
    return origin;
}

struct http_origin *http_origin_ref(struct http_origins *origins, const char *name, struct error *error)
{
    pthread_mutex_lock(&origins->lock);
    struct http_origin **link = &origins->first;
    while (*link && strcmp((*link)->name, name) != 0)
        link = &(*link)->next;
    struct http_origin *origin = *link ? unlink_origin(link) : make_origin(origins, name);
    if (origin) {
        origin->n_references++;
        origin->next = origins->first;
        origins->first = origin;
    }
    pthread_mutex_unlock(&origins->lock);
    if (!origin)
        fail(error, ERROR_RESOURCE_EXHAUSTED, "TOO_MANY_HOSTS",
             "requests to %d hosts are under way or waiting, which is the most; try again later", HTTP_MAX_ORIGINS);
    return origin;
}

void http_origin_unref(struct http_origins *origins, struct http_origin *origin)
{
    if (!origin)
        return;
    pthread_mutex_lock(&origins->lock);
    origin->n_references--;
    pthread_mutex_unlock(&origins->lock);
}

static void count_request(struct http_origin *origin, uint64_t now_ns)
{
    uint64_t bytes = atomic_load_explicit(&origin->received_bytes, memory_order_relaxed);
    if (origin->in_flight > 0) {
        origin->busy_ns += now_ns - origin->counted_ns;
        origin->busy_bytes += bytes - origin->seen_bytes;
    }
    origin->counted_ns = now_ns;
    origin->seen_bytes = bytes;
    if (origin->busy_ns > halve_after_ns) {
        origin->busy_ns /= 2;
        origin->busy_bytes /= 2;
    }
    if (origin->body_ns > halve_after_ns) {
        origin->body_ns /= 2;
        origin->body_bytes /= 2;
    }
}

void http_origin_begin(struct http_origins *origins, struct http_origin *origin, uint64_t now_ns)
{
    count_request(origin, now_ns);
    origin->in_flight++;
    origin->n_requests++;
    origins->n_requests++;
}

void http_origin_end(struct http_origin *origin, const struct http_visit *visit, uint64_t now_ns)
{
    count_request(origin, now_ns);
    /* refused while others get through: too many. Refused alone: the server is down, which is no reason to ask less. */
    if (visit->is_throttled || (visit->is_refused && origin->in_flight > 1))
        origin->n_throttled += http_limit_cut(&origin->limit, visit->started_ns, now_ns) || visit->is_throttled;
    else
        http_limit_completed(&origin->limit, origin->in_flight, now_ns);
    origin->in_flight--;
    if (visit->latency_ns > 0)
        http_latency_add(&origin->latency, visit->latency_ns);
    if (visit->body_bytes >= SMALL_BODY) {
        origin->body_ns += visit->body_ns;
        origin->body_bytes += visit->body_bytes;
    }
}

/* One is always allowed: a load of a few requests may be slow, too. */
bool http_origin_may_hedge(const struct http_origins *origins, uint32_t percent)
{
    return percent <= 100 && origins->n_hedges <= origins->n_requests * percent / 100;
}

void http_origin_count_hedge(struct http_origins *origins, struct http_origin *origin)
{
    origin->n_hedges++;
    origins->n_hedges++;
}

void http_origin_count_retry(struct http_origins *origins, struct http_origin *origin)
{
    pthread_mutex_lock(&origins->lock);
    origin->n_retries++;
    pthread_mutex_unlock(&origins->lock);
}

void http_origin_tell_retry(struct http_origins *origins, struct http_origin *origin, uid_t uid, uint32_t n, uint32_t max,
                            const struct error *error)
{
    uint64_t now_ns = clock_now_ns();
    pthread_mutex_lock(&origins->lock);
    bool is_due = !origin->told_ns || now_ns - origin->told_ns >= HTTP_TELL_RETRY_MS * (uint64_t)NS_PER_MS;
    origin->told_ns = is_due ? now_ns : origin->told_ns;
    pthread_mutex_unlock(&origins->lock);
    if (is_due)
        log_at_of(LOG_WARN, "store_retrying", uid, LOG_TEXT("origin", origin->name), LOG_U64("try", n), LOG_U64("of", max),
                  LOG_TEXT("error", error->message));
}

uint64_t http_origin_slow_ns(struct http_origins *origins, struct http_origin *origin)
{
    pthread_mutex_lock(&origins->lock);
    uint64_t ns = http_latency_ns(&origin->latency, 99);
    pthread_mutex_unlock(&origins->lock);
    return ns;
}

static uint64_t per_s(uint64_t bytes, uint64_t ns)
{
    return ns < known_after_ns ? 0 : (uint64_t)((double)bytes * 1e9 / (double)ns);
}

static void add_origin(struct http_origin *origin, struct http_statistics *sum)
{
    count_request(origin, clock_now_ns());
    sum->requests += origin->n_requests;
    sum->retries += origin->n_retries;
    sum->hedges += origin->n_hedges;
    sum->throttled += origin->n_throttled;
    sum->in_flight += origin->in_flight;
    sum->limit += origin->limit.allowed;
    sum->bytes_per_s += per_s(origin->busy_bytes, origin->busy_ns);
    if (origin->seen_bytes >= sum->received_bytes) { /* the sum shows these of whoever sent most */
        sum->latency_us = http_latency_ns(&origin->latency, 50) / 1000;
        sum->connection_bytes_per_s = per_s(origin->body_bytes, origin->body_ns);
    }
    sum->received_bytes += origin->seen_bytes;
}

void http_origins_statistics(struct http_origins *origins, const char *name, struct http_statistics *statistics)
{
    *statistics = (struct http_statistics){0};
    pthread_mutex_lock(&origins->lock);
    for (struct http_origin *origin = origins->first; origin; origin = origin->next)
        if (!name || strcmp(origin->name, name) == 0)
            add_origin(origin, statistics);
    if (statistics->limit == 0)
        statistics->limit = origins->max_host_connections;
    pthread_mutex_unlock(&origins->lock);
}
