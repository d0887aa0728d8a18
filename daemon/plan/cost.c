/* Linear costs, so that what is best for every gap is best for the whole plan.
 *
 * The defaults are what the engine itself shows on two cores and one virtual disk, its own overhead per extent included.
 * Rates that are zero or less (a constant that was not filled in) cost nothing instead of dividing by zero. */
#include "plan/cost.h"

#include "base/clock.h"

const struct cost_constants cost_defaults = {
    .cached = {.request_ns = 600, .bytes_per_ns = 12},
    .uncached = {.request_ns = 20000, .bytes_per_ns = 3.7},
    .skip_bytes_per_ns = 18,
    .copy_bytes_per_ns = 20,
    .copy_row_ns = 35,
    .fresh_bytes_per_ns = 14,
};

/* A longer gap than this is never read, whatever a calibration believes. */
static const double MERGE_GAP_LIMIT_BYTES = 4 << 20;

static double stream_ns(uint64_t bytes, double bytes_per_ns)
{
    return bytes_per_ns > 0 ? (double)bytes / bytes_per_ns : 0;
}

static double clamp_share(double share)
{
    return share > 1 ? 1 : share > 0 ? share : 0;
}

double cost_estimate_ms(const struct cost_constants *constants, const struct cost_work *work)
{
    double cached_share = clamp_share(work->cached_share);
    double waiting_ns = (1 - cached_share) * ((double)work->requests * constants->uncached.request_ns +
                                              stream_ns(work->read_bytes, constants->uncached.bytes_per_ns));
    double working_ns = cached_share * ((double)work->requests * constants->cached.request_ns +
                                        stream_ns(work->read_bytes - work->skipped_bytes, constants->cached.bytes_per_ns) +
                                        stream_ns(work->skipped_bytes, constants->skip_bytes_per_ns)) +
                        stream_ns(work->copied_bytes, constants->copy_bytes_per_ns) +
                        (double)work->copied_rows * constants->copy_row_ns +
                        stream_ns(work->fresh_bytes, constants->fresh_bytes_per_ns);
    return (waiting_ns > working_ns ? waiting_ns : working_ns) / NS_PER_MS;
}

uint64_t cost_merge_gap_bytes(const struct cost_constants *constants, double cached_share)
{
    double cached = clamp_share(cached_share), uncached = 1 - cached;
    /* the row that loses its request becomes one more piece of another one */
    double saved_ns =
        cached * (constants->cached.request_ns - constants->copy_row_ns) + uncached * constants->uncached.request_ns;
    double ns_per_byte =
        cached * stream_ns(1, constants->skip_bytes_per_ns) + uncached * stream_ns(1, constants->uncached.bytes_per_ns);
    if (saved_ns <= 0)
        return 0;
    if (ns_per_byte * MERGE_GAP_LIMIT_BYTES <= saved_ns)
        return (uint64_t)MERGE_GAP_LIMIT_BYTES;
    return (uint64_t)(saved_ns / ns_per_byte);
}

/* --- stores ----------------------------------------------------------------------------------------------------------- */

/* What is learned is believed within limits: a source that has only seen small documents knows little. */
static const uint64_t DEFAULT_REQUEST_BYTES = 16 << 20, LEAST_BLOCK_BYTES = 64 << 10, MOST_BLOCK_BYTES = 64 << 20;
static const uint64_t LEAST_WINDOW_BYTES = 64 << 10;
static const uint32_t DEFAULT_PARALLEL_REQUESTS = 32;
static const uint64_t REMOTE_GAP_LIMIT_BYTES = 4 << 20; /* wasted bytes cost the store, and others, too */

struct limits {
    uint64_t fallback, least, most;
};
static const struct limits latency_us = {30000, 100, 2000000};
static const struct limits connection_bytes_per_s = {80000000, 5000000, 10000000000};

static uint64_t believe(uint64_t learned, struct limits limits)
{
    if (learned == 0)
        return limits.fallback;
    return learned < limits.least ? limits.least : learned > limits.most ? limits.most : learned;
}

static uint64_t power_of_two_below(uint64_t value, uint64_t least, uint64_t most)
{
    uint64_t power = least;
    while (power < most && power * 2 <= value)
        power *= 2;
    return power;
}

uint32_t remote_parallel_requests(const struct source_caps *caps, const struct source_speed *speed)
{
    uint32_t most = caps->parallel_requests ? caps->parallel_requests : DEFAULT_PARALLEL_REQUESTS;
    return speed->parallel_requests && speed->parallel_requests < most ? speed->parallel_requests : most;
}

uint64_t remote_block_bytes(const struct source_caps *caps)
{
    uint64_t wanted = caps->request_bytes ? caps->request_bytes : DEFAULT_REQUEST_BYTES;
    return power_of_two_below(wanted, LEAST_BLOCK_BYTES, MOST_BLOCK_BYTES);
}

/* Half the budget is for reads of other sources and for rounding; half the requests in flight is the best compromise between
 * their number and their size while the product is bounded. */
uint64_t remote_window_bytes(const struct source_caps *caps, uint64_t staging_budget_bytes)
{
    uint64_t parallel = caps->parallel_requests ? caps->parallel_requests : DEFAULT_PARALLEL_REQUESTS;
    uint64_t wanted = staging_budget_bytes / 2 / (parallel > 1 ? parallel / 2 : 1);
    return power_of_two_below(wanted, LEAST_WINDOW_BYTES, remote_block_bytes(caps));
}

uint64_t remote_merge_gap_bytes(const struct source_speed *speed)
{
    uint64_t per_ms = believe(speed->connection_bytes_per_s, connection_bytes_per_s) / 1000;
    uint64_t gap = per_ms * believe(speed->latency_us, latency_us) / 1000;
    return gap < REMOTE_GAP_LIMIT_BYTES ? gap : REMOTE_GAP_LIMIT_BYTES;
}

void remote_set_costs(const struct source_caps *caps, const struct source_speed *speed, struct cost_constants *costs)
{
    double parallel = remote_parallel_requests(caps, speed);
    double one = (double)believe(speed->connection_bytes_per_s, connection_bytes_per_s), all = parallel * one;
    double seen = (double)speed->bytes_per_s;
    if (seen > one && seen < all)
        all = seen;
    costs->uncached = (struct cost_class){.request_ns = (double)believe(speed->latency_us, latency_us) * 1000 / parallel,
                                          .bytes_per_ns = all / 1e9,
                                          .samples = speed->requests};
}
