/* Additive increase, multiplicative decrease; see http_limit.h. A round is as many requests as are allowed at once. */
#include "source/http/http_limit.h"

#include "base/clock.h"

static const uint64_t least_round_ns = 50 * (uint64_t)NS_PER_MS;

void http_limit_init(struct http_limit *limit, uint32_t most)
{
    *limit = (struct http_limit){.allowed = most, .most = most};
}

void http_limit_completed(struct http_limit *limit, uint32_t in_flight, uint64_t now_ns)
{
    if (limit->allowed == limit->most || in_flight < limit->allowed)
        return;
    if (++limit->n_completed < limit->allowed || now_ns - limit->round_ns < least_round_ns)
        return;
    limit->allowed++;
    limit->n_completed = 0;
    limit->round_ns = now_ns;
}

bool http_limit_cut(struct http_limit *limit, uint64_t started_ns, uint64_t now_ns)
{
    if (started_ns < limit->cut_ns || limit->allowed == 1)
        return false;
    limit->allowed /= 2;
    limit->n_completed = 0;
    limit->cut_ns = limit->round_ns = now_ns;
    return true;
}
