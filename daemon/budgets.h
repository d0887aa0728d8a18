/* How much of the host the daemon takes, and which part of it users share. */
#ifndef BUDGETS_H
#define BUDGETS_H

#include <stdint.h>

#include "base/quota.h"
#include "config/config.h"

struct budgets {
    uint64_t host_bytes; /* replicas and loads in flight */
    uint64_t extent_cache_bytes;
    uint64_t metadata_bytes; /* of requests and of what was resolved */
    uint64_t header_cache_bytes;
};

/* Sizes that the configuration leaves to us (0) are parts of the memory limit. Pure. */
struct budgets budgets_of(const struct config *config, uint64_t memory_limit_bytes);

/* How many descriptors users share, of all that this process may have. Pure. */
uint64_t budgets_shared_descriptors(const struct config *config, uint64_t all);

/* Of every resource that users share; again after a reload. Loop thread. */
void budgets_set_quotas(struct quota *quota, const struct config *config, const struct budgets *budgets);

#endif
