/* Sources where every read is a request: what planning and reading have to agree on, and what a request costs.
 *
 * A part file is cut into blocks of the size that one request should ask for. What a load needs of a block is asked for in
 * one request, or in several where the gaps between them cost more than a request. Blocks are the same for every load, so
 * loads that need the same block share its requests. Memory without a host address is filled through windows, which are
 * smaller blocks: as many of them as requests in flight fit into the staging budget.
 *
 * Pure. */
#ifndef PLAN_REMOTE_H
#define PLAN_REMOTE_H

#include <stdbool.h>
#include <stdint.h>

#include "plan/cost.h"
#include "source/source.h"

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
