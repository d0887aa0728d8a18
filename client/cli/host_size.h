/* How much memory a host needs for models. Pure. */
#ifndef CLI_HOST_SIZE_H
#define CLI_HOST_SIZE_H

#include <stdint.h>

#include "catalog.h"
#include "tensorcast.h"

/* Bytes of the daemon's memory for a view of the artifact, at most: with padding and whole pages. view NULL = everything; else
 * one item for each tensor, in the catalog's order, whose slices have bounds from 0. */
uint64_t host_size_view(const struct catalog *catalog, const struct tc_view *view);

#define HOST_SIZE_MAX_BYTES ((uint64_t)1 << 50) /* no host has so much */

struct host_size {
    uint64_t views_bytes; /* each distinct view once */
    uint64_t host_budget_bytes, metadata_bytes, staging_bytes, extent_cache_bytes, container_limit_bytes;
};
/* One user loads all of them; budgets as a daemon has them by default. views_bytes: up to HOST_SIZE_MAX_BYTES. */
struct host_size host_size_of(uint64_t views_bytes);

#endif
