/* The table of hosts and what was learned about each; see http_origin.h. */
#include "source/http/http_origin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "observe/log.h"

static const uint64_t halve_after_ns = 4000 * (uint64_t)NS_PER_MS, known_after_ns = 20 * (uint64_t)NS_PER_MS;
static const uint64_t least_round_ns = 50 * (uint64_t)NS_PER_MS, latency_unit_ns = 16000;
static const double budget_capacity = 256, budget_per_request = 0.1, budget_per_s = 10;
enum {
    SMALL_BODY = 256 << 10, /* comes out of the kernel's buffers at once and says nothing about a connection */
    KNOWN_LATENCIES = 20,
    FORGOTTEN_LATENCIES = 4096
};

/* --- the limit --- */

void http_limit_answered(struct http_limit *limit, uint32_t in_flight, uint64_t now_ns)
{
    if (limit->allowed == limit->most || in_flight < limit->allowed)
        return;
    if (limit->cut_ns > 0 && (++limit->n_answered < limit->allowed || now_ns - limit->round_ns < least_round_ns))
        return;
    limit->allowed++;
    limit->n_answered = 0;
    limit->round_ns = now_ns;
}

bool http_limit_cut(struct http_limit *limit, uint64_t started_ns, uint64_t now_ns)
{
    if (started_ns < limit->cut_ns || limit->allowed == 1)
        return false;
    limit->allowed /= 2;
    limit->n_answered = 0;
    limit->cut_ns = limit->round_ns = now_ns;
    return true;
}

/* --- latencies --- */

/* Step 4 * k + q begins at 2^k * (4 + q) / 4 * 16 us. */
static uint64_t end_of_step(uint32_t step)
{
    return latency_unit_ns * (5 + step % 4) / 4 << step / 4;
}

void http_latency_add(struct http_latency *latency, uint64_t ns)
{
    uint32_t step = 0;
    while (step + 1 < HTTP_LATENCY_STEPS && end_of_step(step) <= ns)
        step++;
    latency->counts[step]++;
    if (++latency->n < FORGOTTEN_LATENCIES)
        return;
    latency->n = 0;
    for (uint32_t i = 0; i < HTTP_LATENCY_STEPS; i++)
        latency->n += latency->counts[i] /= 2;
}

uint64_t http_latency_ns(const struct http_latency *latency, uint32_t percent)
{
    if (latency->n < KNOWN_LATENCIES)
        return 0;
    uint64_t seen = 0, wanted = ((uint64_t)latency->n * percent + 99) / 100;
    uint32_t step = 0;
    while ((seen += latency->counts[step]) < wanted)
        step++;
    return end_of_step(step);
}

/* --- the budget --- */

struct http_budget http_budget_full(uint64_t now_ns)
{
    return (struct http_budget){budget_capacity, now_ns};
}

static void add_tokens(struct http_budget *budget, double tokens)
{
    budget->tokens = budget->tokens + tokens < budget_capacity ? budget->tokens + tokens : budget_capacity;
}

void http_budget_earn(struct http_budget *budget)
{
    add_tokens(budget, budget_per_request);
}

uint64_t http_budget_take(struct http_budget *budget, uint64_t now_ns)
{
    if (now_ns > budget->counted_ns) {
        add_tokens(budget, (double)(now_ns - budget->counted_ns) / 1e9 * budget_per_s);
        budget->counted_ns = now_ns;
    }
    budget->tokens -= 1;
    return budget->tokens < 0 ? (uint64_t)(-budget->tokens / budget_per_s * 1e9) : 0;
}

/* --- the table --- */

void http_origins_init(struct http_origins *origins, uint32_t new_host_connections, uint32_t max_host_connections)
{
    *origins = (struct http_origins){
        .new_host_connections = new_host_connections, .max_host_connections = max_host_connections, .n_movers = 1};
    TAILQ_INIT(&origins->list);
    pthread_mutex_init(&origins->lock, NULL);
}

static void drop_origin(struct http_origins *origins, struct http_origin *origin)
{
    TAILQ_REMOVE(&origins->list, origin, link);
    origins->n_origins--;
    free(origin);
}

void http_origins_fini(struct http_origins *origins)
{
    while (!TAILQ_EMPTY(&origins->list))
        drop_origin(origins, TAILQ_FIRST(&origins->list));
    pthread_mutex_destroy(&origins->lock);
}

/* First in the list; NULL: there is no room. */
static struct http_origin *make_origin(struct http_origins *origins, const char *name)
{
    struct http_origin *origin;
    if (origins->n_origins >= HTTP_MAX_ORIGINS) { /* in place of the last of the list that is not referred to */
        TAILQ_FOREACH_REVERSE(origin, &origins->list, http_origin_list, link)
        if (origin->n_references == 0)
            break;
        if (!origin)
            return NULL;
        drop_origin(origins, origin);
    }
    origin = memory_alloc(sizeof *origin);
    snprintf(origin->name, sizeof origin->name, "%s", name);
    origin->is_uncounted = origins->is_uncounted;
    origin->counted_ns = clock_now_ns();
    origin->limit.allowed = origins->new_host_connections;
    origin->limit.most = origins->max_host_connections;
    origin->budget = http_budget_full(origin->counted_ns);
    origin->first_mover = origins->next_mover++ % origins->n_movers;
    origins->n_origins++;
    TAILQ_INSERT_HEAD(&origins->list, origin, link);
    return origin;
}

struct http_origin *http_origin_ref(struct http_origins *origins, const char *name, struct error *error)
{
    struct http_origin *origin;
    pthread_mutex_lock(&origins->lock);
    TAILQ_FOREACH (origin, &origins->list, link)
        if (strcmp(origin->name, name) == 0)
            break;
    if (origin) {
        TAILQ_REMOVE(&origins->list, origin, link);
        TAILQ_INSERT_HEAD(&origins->list, origin, link);
    } else {
        origin = make_origin(origins, name);
    }
    if (origin)
        origin->n_references++;
    pthread_mutex_unlock(&origins->lock);
    if (!origin)
        fail(error, ERROR_RESOURCE_EXHAUSTED, "TOO_MANY_HOSTS",
             "requests to %d hosts are under way or waiting, which is the most; try again later", HTTP_MAX_ORIGINS);
    return origin;
}

void http_origin_count(const struct http_origin *origin, enum counter counter, uint64_t n)
{
    if (!origin->is_uncounted)
        counters_add(counter, n);
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
    uint64_t bytes = __atomic_load_n(&origin->received_bytes, __ATOMIC_RELAXED);
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

/* That with the fewest requests to the origin, of equal ones always the same: a mover uses no connection of another, and so there
 * are no more of them than there were requests at once. */
static uint32_t choose_mover(const struct http_origins *origins, const struct http_origin *origin)
{
    uint32_t best = origin->first_mover;
    for (uint32_t i = 1; i < origins->n_movers; i++) {
        uint32_t mover = (origin->first_mover + i) % origins->n_movers;
        best = origin->in_movers[mover] < origin->in_movers[best] ? mover : best;
    }
    return best;
}

uint32_t http_origin_begin(struct http_origins *origins, struct http_origin *origin, uint64_t now_ns)
{
    uint32_t mover = choose_mover(origins, origin);
    count_request(origin, now_ns);
    origin->in_flight++;
    origin->in_movers[mover]++;
    origin->n_requests++;
    origins->n_requests++;
    http_origin_count(origin, COUNTER_HTTP_REQUESTS, 1);
    http_budget_earn(&origin->budget);
    return mover;
}

void http_origin_end(struct http_origin *origin, uint32_t mover, const struct http_visit *visit, uint64_t now_ns)
{
    count_request(origin, now_ns);
    /* refused while others get through: too many. Refused alone: the server is down, which is no reason to ask less. */
    if (visit->is_throttled || (visit->is_refused && origin->in_flight > 1)) {
        bool is_counted = http_limit_cut(&origin->limit, visit->started_ns, now_ns) || visit->is_throttled;
        origin->n_throttled += is_counted;
        http_origin_count(origin, COUNTER_HTTP_THROTTLED, is_counted);
    } else if (visit->latency_ns > 0) {
        http_limit_answered(&origin->limit, origin->in_flight, now_ns);
    }
    origin->in_flight--;
    origin->in_movers[mover]--;
    if (visit->latency_ns > 0)
        http_latency_add(&origin->latency, visit->latency_ns);
    if (visit->body_bytes >= SMALL_BODY) {
        origin->body_ns += visit->body_ns;
        origin->body_bytes += visit->body_bytes;
    }
}

uint64_t http_origin_put_off_retry(struct http_origins *origins, struct http_origin *origin, uid_t uid, uint32_t n,
                                   uint32_t max, const struct error *error)
{
    uint64_t now_ns = clock_now_ns();
    pthread_mutex_lock(&origins->lock);
    uint64_t wait_ns = http_budget_take(&origin->budget, now_ns);
    bool is_due = !origin->told_ns || now_ns - origin->told_ns >= HTTP_TELL_RETRY_MS * (uint64_t)NS_PER_MS;
    origin->told_ns = is_due ? now_ns : origin->told_ns;
    pthread_mutex_unlock(&origins->lock);
    if (is_due)
        log_at_of(LOG_WARN, "store_retrying", uid, LOG_TEXT("origin", origin->name), LOG_U64("try", n), LOG_U64("of", max),
                  LOG_TEXT("error", error->message));
    return wait_ns;
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

void http_origins_statistics(struct http_origins *origins, const char *name, struct http_statistics *statistics)
{
    struct http_statistics sum = {0};
    struct http_origin *origin;
    pthread_mutex_lock(&origins->lock);
    TAILQ_FOREACH (origin, &origins->list, link) {
        if (name && strcmp(origin->name, name) != 0)
            continue;
        count_request(origin, clock_now_ns());
        sum.requests += origin->n_requests;
        sum.retries += origin->n_retries;
        sum.hedges += origin->n_hedges;
        sum.throttled += origin->n_throttled;
        sum.in_flight += origin->in_flight;
        sum.limit += origin->limit.allowed;
        sum.bytes_per_s += per_s(origin->busy_bytes, origin->busy_ns);
        if (origin->seen_bytes >= sum.received_bytes) { /* the sum shows these of the origin that sent most */
            sum.latency_us = http_latency_ns(&origin->latency, 50) / 1000;
            sum.connection_bytes_per_s = per_s(origin->body_bytes, origin->body_ns);
        }
        sum.received_bytes += origin->seen_bytes;
    }
    sum.recalled = origins->n_recalled;
    sum.limit = sum.limit ? sum.limit : origins->max_host_connections;
    pthread_mutex_unlock(&origins->lock);
    *statistics = sum;
}
