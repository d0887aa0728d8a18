/* How many requests at once one origin is worth: a hill climb on its throughput, and AIMD where it says "too many".
 *
 * Time is cut into turns: as many completed requests as the limit allows at once, so that each had a chance to feel it.
 *
 *   settle --a turn--> measure --a turn--> a step up by a quarter pays at least half of it: stay there and go on
 *      ^                                   it does not: back, then the same downwards, then hold for 10 s
 *      +------------------------------------------+
 *
 * A turn in which the callers did not use the limit says nothing about it. After a cut the limit first grows by one per turn
 * to where it was cut. Pure: the clock comes in as an argument; the owner locks. */
#ifndef SOURCE_HTTP_CLIMB_H
#define SOURCE_HTTP_CLIMB_H

#include <stdbool.h>
#include <stdint.h>

struct http_climb {
    uint32_t limit; /* requests at once */
    uint32_t floor, ceiling;
    uint32_t cut_from; /* 0 = not recovering from a cut */
    uint64_t cut_ns, hold_until_ns;
    enum { HTTP_CLIMB_SETTLE, HTTP_CLIMB_MEASURE } stage;
    bool goes_down;
    uint32_t base_limit;
    double base_bytes_per_s; /* 0 = not measured */
    uint64_t turn_ns, turn_bytes, counted_ns, slot_ns;
    uint32_t n_completed;
};

void http_climb_init(struct http_climb *climb, uint32_t ceiling, uint64_t now_ns);
/* Before the number in flight changes. */
void http_climb_count(struct http_climb *climb, uint32_t in_flight, uint64_t now_ns);
/* A request ended; total_bytes is what the origin has sent in all. */
void http_climb_completed(struct http_climb *climb, uint64_t total_bytes, uint64_t now_ns);
/* The origin refused a request that started then. One cut answers all the refusals of requests started before it.
 * True when it cut. */
bool http_climb_cut(struct http_climb *climb, uint64_t started_ns, uint64_t now_ns);

#endif
