/* Which part of the host's memory and descriptors users share, and what is left for blocks. */
#ifndef BUDGETS_H
#define BUDGETS_H

#include <stdint.h>

#include "base/quota.h"
#include "config/config.h"
#include "config/memory_budgets.h"

struct replica_table;

/* How many descriptors users share, of all that this process may have. Pure. */
uint64_t budgets_shared_descriptors(const struct config *config, uint64_t all);

/* Of every resource that users share; again after a reload. Loop thread. */
void budgets_set_quotas(struct quota *quota, const struct config *config, const struct memory_budgets *budgets);

struct block_room {
    const struct replica_table *replicas;
    uint64_t floor_bytes, host_bytes; /* atomic, set by budgets_set_block_room() */
};
/* Again after a reload. Loop thread. */
void budgets_set_block_room(struct block_room *room, const struct memory_budgets *budgets);
/* Room of hosts/block_cache.h: what replicas leave of the host budget, and never less than the floor. Takes a struct
 * block_room. Any thread. */
uint64_t budgets_block_room(void *data);

#endif
