/* How long answers take to begin: a histogram with four steps per doubling that forgets slowly. Plain values. */
#ifndef SOURCE_HTTP_LATENCY_H
#define SOURCE_HTTP_LATENCY_H

#include <stdint.h>

enum { HTTP_LATENCY_STEPS = 96 };

struct http_latency { /* zeroed = nothing known */
    uint32_t counts[HTTP_LATENCY_STEPS], n;
};

void http_latency_add(struct http_latency *latency, uint64_t ns);
/* The time within which `percent` of them began, rounded up to a step; 0 while fewer than 20 are known. */
uint64_t http_latency_ns(const struct http_latency *latency, uint32_t percent);

#endif
