/* The cost model: what a request, a byte and a copy cost on this host, in ns. Pure.
 *
 * Constants come from execute/calibration.c (measured at start, then learned from real loads, per source device) and
 * arrive here as facts. Model: a class of source (cached or not) takes requests * request_ns and bytes / bandwidth, which
 * overlap when requests are many: time = max of both for uncached reads with a deep queue, their sum for cached reads;
 * copies and fresh pages are added. Two extents are worth merging when the gap costs less than a request:
 * gap < request_ns * bytes_per_ns. */
#ifndef PLAN_COST_H
#define PLAN_COST_H

#include <stdint.h>

struct cost_class {
    double request_ns;   /* per request, amortised over the queue */
    double bytes_per_ns; /* = GB/s */
    uint64_t samples;    /* 0 = the built-in default */
};

struct cost_constants {
    struct cost_class cached;   /* from the page cache */
    struct cost_class uncached; /* from the device */
    double copy_bytes_per_ns;   /* staging -> replica */
    double copy_row_ns;         /* per row gathered */
    double fresh_bytes_per_ns;  /* backing the replica's pages */
};

extern const struct cost_constants cost_defaults; /* facts of an ordinary host, see docs/performance.md */

struct cost_work { /* what a candidate would do */
    uint64_t requests, read_bytes;   /* extents and their bytes */
    uint64_t copied_bytes, copied_rows;
    uint64_t fresh_bytes;
    double cached_share; /* 0..1 of the source bytes that are in the page cache */
};

double cost_estimate_ms(const struct cost_constants *constants, const struct cost_work *work);
uint64_t cost_merge_gap_bytes(const struct cost_constants *constants, double cached_share);

#endif
