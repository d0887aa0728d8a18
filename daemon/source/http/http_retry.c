/* Backoff, its budget, and Retry-After; see http_retry.h. */
#include "source/http/http_retry.h"

#include <curl/curl.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

static const double capacity = 256, per_request = 0.1, per_s = 10;
enum { MAX_FACTOR = 80, MAX_RETRY_AFTER_S = 60 };

void http_budget_init(struct http_budget *budget, uint64_t now_ns)
{
    pthread_mutex_init(&budget->lock, NULL);
    budget->tokens = capacity;
    budget->counted_ns = now_ns;
}

void http_budget_fini(struct http_budget *budget)
{
    pthread_mutex_destroy(&budget->lock);
}

static void add_tokens(struct http_budget *budget, double tokens)
{
    budget->tokens = budget->tokens + tokens < capacity ? budget->tokens + tokens : capacity;
}

void http_budget_earn(struct http_budget *budget)
{
    pthread_mutex_lock(&budget->lock);
    add_tokens(budget, per_request);
    pthread_mutex_unlock(&budget->lock);
}

uint64_t http_budget_take(struct http_budget *budget, uint64_t now_ns)
{
    pthread_mutex_lock(&budget->lock);
    if (now_ns > budget->counted_ns) {
        add_tokens(budget, (double)(now_ns - budget->counted_ns) / 1e9 * per_s);
        budget->counted_ns = now_ns;
    }
    budget->tokens -= 1;
    double missing = budget->tokens < 0 ? -budget->tokens : 0;
    pthread_mutex_unlock(&budget->lock);
    return (uint64_t)(missing / per_s * 1e9);
}

uint64_t http_backoff_ns(uint64_t base_ns, uint32_t n)
{
    uint64_t factor = n > 7 ? MAX_FACTOR : (uint64_t)1 << (n > 0 ? n - 1 : 0), most = base_ns * factor, random;
    if (getrandom(&random, sizeof random, GRND_NONBLOCK) != sizeof random)
        random = most / 2;
    return most > 0 ? random % most : 0;
}

uint64_t http_retry_after_ns(const char *value)
{
    if (!value || !*value)
        return 0;
    char *rest;
    long long seconds = strtoll(value, &rest, 10);
    if (*rest) {
        time_t until = curl_getdate(value, NULL);
        seconds = until < 0 ? 0 : (long long)until - (long long)time(NULL);
    }
    seconds = seconds < 0 ? 0 : seconds;
    return (uint64_t)(seconds > MAX_RETRY_AFTER_S ? MAX_RETRY_AFTER_S : seconds) * 1000000000u;
}
