/* A histogram of latencies; see http_latency.h. Step 4 * k + q begins at 2^k * (4 + q) / 4 * 16 us. */
#include "source/http/http_latency.h"

enum { KNOWN = 20, FORGET = 4096 };
static const uint64_t unit_ns = 16000;

static uint64_t end_of(uint32_t step)
{
    return unit_ns * (5 + step % 4) / 4 << step / 4;
}

void http_latency_add(struct http_latency *latency, uint64_t ns)
{
    uint32_t step = 0;
    while (step + 1 < HTTP_LATENCY_STEPS && end_of(step) <= ns)
        step++;
    latency->counts[step]++;
    if (++latency->n < FORGET)
        return;
    latency->n = 0;
    for (uint32_t i = 0; i < HTTP_LATENCY_STEPS; i++)
        latency->n += latency->counts[i] /= 2;
}

uint64_t http_latency_ns(const struct http_latency *latency, uint32_t percent)
{
    if (latency->n < KNOWN)
        return 0;
    uint64_t seen = 0, wanted = ((uint64_t)latency->n * percent + 99) / 100;
    uint32_t step = 0;
    while ((seen += latency->counts[step]) < wanted)
        step++;
    return end_of(step);
}
