/* Linear costs, so that what is best for every gap is best for the whole plan.
 *
 * The defaults are what the engine itself shows on two cores and one virtual disk, its own overhead per extent included.
 * Rates that are zero or less (a constant nobody filled in) cost nothing instead of dividing by zero. */
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

static double cached_ns(const struct cost_constants *constants, const struct cost_work *work)
{
    return (double)work->requests * constants->cached.request_ns +
           stream_ns(work->read_bytes - work->skipped_bytes, constants->cached.bytes_per_ns) +
           stream_ns(work->skipped_bytes, constants->skip_bytes_per_ns);
}

static double device_ns(const struct cost_constants *constants, const struct cost_work *work)
{
    return (double)work->requests * constants->uncached.request_ns +
           stream_ns(work->read_bytes, constants->uncached.bytes_per_ns);
}

double cost_estimate_ms(const struct cost_constants *constants, const struct cost_work *work)
{
    double cached_share = clamp_share(work->cached_share);
    double waiting_ns = (1 - cached_share) * device_ns(constants, work);
    double working_ns =
        cached_share * cached_ns(constants, work) + stream_ns(work->copied_bytes, constants->copy_bytes_per_ns) +
        (double)work->copied_rows * constants->copy_row_ns + stream_ns(work->fresh_bytes, constants->fresh_bytes_per_ns);
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
