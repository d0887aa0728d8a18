/* How much memory the daemon takes, by its configuration. Pure. */
#ifndef CONFIG_MEMORY_BUDGETS_H
#define CONFIG_MEMORY_BUDGETS_H

#include <stdint.h>

#include "config/config.h"

#define MEMORY_OF_ITS_OWN ((uint64_t)200 << 20) /* of the daemon, beside all budgets: code, threads, libraries */

struct memory_budgets {
    uint64_t host_bytes; /* replicas and loads in flight */
    uint64_t extent_cache_bytes;
    uint64_t metadata_bytes; /* of requests and of what was resolved */
    uint64_t header_cache_bytes;
    uint64_t block_cache_bytes; /* what hosts/block_cache.h may have at least */
};

/* Sizes that the configuration leaves to us (0) are parts of the memory limit. */
struct memory_budgets memory_budgets_of(const struct config *config, uint64_t memory_limit_bytes);

#endif
