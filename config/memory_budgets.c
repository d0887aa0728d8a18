#include "config/memory_budgets.h"

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

enum { MOST_HEADER_CACHE_BYTES = 256 << 20, MOST_BLOCK_FLOOR_BYTES = 64 << 20 };

static uint64_t at_most(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* What resolving has learned is charged to the first user; it goes when requests need the room. */
struct memory_budgets memory_budgets_of(const struct config *config, uint64_t memory_limit_bytes)
{
    uint64_t host = config->memory.host_budget_bytes ? config->memory.host_budget_bytes : memory_limit_bytes / 2;
    uint64_t extents = config->memory.extent_cache_bytes ? config->memory.extent_cache_bytes : at_most(host / 8, GIB);
    uint64_t metadata = config->memory.metadata_budget_bytes;
    if (!metadata)
        metadata = host / 4 < 256 * MIB ? 256 * MIB : at_most(host / 4, GIB);
    return (struct memory_budgets){.host_bytes = host,
                                   .extent_cache_bytes = extents,
                                   .metadata_bytes = metadata,
                                   .header_cache_bytes = at_most(metadata / 4, MOST_HEADER_CACHE_BYTES),
                                   .block_cache_bytes = at_most(host / 8, MOST_BLOCK_FLOOR_BYTES)};
}
