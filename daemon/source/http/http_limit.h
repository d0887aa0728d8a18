/* How many requests at once one origin allows: all that are configured until it says "too many", half of them then, and one
 * more for every round in which all were used and none was refused. How many are worth having below that is learned by
 * whoever sends them.
 *
 * Pure: the clock comes in as an argument; the owner locks. */
#ifndef SOURCE_HTTP_LIMIT_H
#define SOURCE_HTTP_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

struct http_limit {
    uint32_t allowed, most; /* requests at once: now, ever */
    uint32_t n_completed;   /* in this round */
    uint64_t round_ns, cut_ns;
};

void http_limit_init(struct http_limit *limit, uint32_t most);
/* A request ended, of so many in flight. */
void http_limit_completed(struct http_limit *limit, uint32_t in_flight, uint64_t now_ns);
/* The origin refused a request that started then. One cut answers all the refusals of requests started before it.
 * True when it cut. */
bool http_limit_cut(struct http_limit *limit, uint64_t started_ns, uint64_t now_ns);

#endif
