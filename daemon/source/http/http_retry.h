/* When to try again: full jitter that doubles, and one budget for each host so that retries never become a flood of their
 * own, and those to a host that fails hold up none to another. Any thread. */
#ifndef SOURCE_HTTP_RETRY_H
#define SOURCE_HTTP_RETRY_H

#include <pthread.h>
#include <stdint.h>

/* A token bucket: 256 at once, then 10 a second and one for every ten requests. */
struct http_budget {
    pthread_mutex_t lock;
    double tokens;
    uint64_t counted_ns;
};

void http_budget_init(struct http_budget *budget, uint64_t now_ns);
void http_budget_fini(struct http_budget *budget);
void http_budget_earn(struct http_budget *budget); /* a request was sent */
/* Takes a token; how long to wait until it is there. */
uint64_t http_budget_take(struct http_budget *budget, uint64_t now_ns);

/* A random time up to base * 2^(n - 1), at most 80 times base, before the n-th try in a row that brought nothing. */
uint64_t http_backoff_ns(uint64_t base_ns, uint32_t n);

/* Seconds or an HTTP date, at most 60 s; 0 when there is none or nobody can read it. */
uint64_t http_retry_after_ns(const char *value);

#endif
