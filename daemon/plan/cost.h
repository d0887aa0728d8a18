/* The cost model: what a request, a byte and a copy cost on this host, in ns. Pure.
 *
 * Constants come from execute/calibration.c (measured at start, then learned from real loads, per source device) and
 * arrive here as facts. Model, fitted to measured slices of many widths: a request costs a fixed time and a byte costs
 * its share of the bandwidth, and the two add up, from the page cache as from the device. What the device does overlaps
 * with what the processor does (cached reads, copies, fresh pages), so a load takes the longer of the two.
 * Two extents are worth merging when reading the gap costs less than another request. */
#ifndef PLAN_COST_H
#define PLAN_COST_H

#include <stdbool.h>
#include <stdint.h>

#include "source/source.h"

struct cost_class {
    double request_ns;   /* per request, amortised over the queue */
    double bytes_per_ns; /* = GB/s */
    uint64_t samples;    /* 0 = the built-in default */
};

struct cost_constants {
    struct cost_class cached;   /* from the page cache, straight into the replica */
    struct cost_class uncached; /* from the device */
    double skip_bytes_per_ns;   /* from the page cache into a trash buffer that stays in the processor's cache */
    double copy_bytes_per_ns;   /* staging -> replica */
    double copy_row_ns;         /* per row that shares its request with others */
    double fresh_bytes_per_ns;  /* backing the replica's pages */
};

extern const struct cost_constants cost_defaults; /* facts of an ordinary host, see docs/planning.md */

struct cost_work {                 /* what a candidate would do */
    uint64_t requests, read_bytes; /* extents and their bytes */
    uint64_t skipped_bytes;        /* of read_bytes, those that are not wanted */
    uint64_t copied_bytes, copied_rows;
    uint64_t fresh_bytes;
    double cached_share; /* 0..1 of the source bytes that are in the page cache */
};

double cost_estimate_ms(const struct cost_constants *constants, const struct cost_work *work);
/* Extents nearer to each other than this are cheaper in one request. */
uint64_t cost_merge_gap_bytes(const struct cost_constants *constants, double cached_share);

/* Sources where every read is a request: what planning and reading have to agree on, and what a request costs.
 *
 * A part file is cut into blocks of the size that one request should ask for. What a load needs of a block is asked for in
 * one request, or in several where the gaps between them cost more than a request. Blocks are the same for every load, so
 * loads that need the same block share its requests. Memory without a host address is filled through windows, which are
 * smaller blocks: as many of them as requests in flight fit into the staging budget. */

/* How many requests are worth having in flight: what the source learned, else what its caps say. */
uint32_t remote_parallel_requests(const struct source_caps *caps, const struct source_speed *speed);

/* Both are powers of two. */
uint64_t remote_block_bytes(const struct source_caps *caps);
uint64_t remote_window_bytes(const struct source_caps *caps, uint64_t staging_budget_bytes);

/* A larger gap between two extents is cheaper in two requests: latency x bandwidth of one connection. */
uint64_t remote_merge_gap_bytes(const struct source_speed *speed);
/* Puts the learned latency and bandwidths, or the defaults, in the place of a device's. */
void remote_set_costs(const struct source_caps *caps, const struct source_speed *speed, struct cost_constants *costs);

#endif
