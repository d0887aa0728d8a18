#include "budgets.h"

#include <sys/resource.h>

#include "api/prewarms.h"
#include "device/host_region.h"
#include "replica/folders.h"
#include "replica/replica.h"
#include "upload/upload_queue.h"

enum { MAX_GROUPS = 1024, MAX_CALLS = 4096 };
enum { OWN_DESCRIPTORS = 224, MOST_RESERVED_DESCRIPTORS = 64, MOST_SHARED_DESCRIPTORS = 65536 };

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

void budgets_set_block_room(struct block_room *room, const struct memory_budgets *budgets)
{
    __atomic_store_n(&room->floor_bytes, budgets->block_cache_bytes, __ATOMIC_RELAXED);
    __atomic_store_n(&room->host_bytes, budgets->host_bytes, __ATOMIC_RELAXED);
}

/* Replicas do not wait for blocks to go: those that are too many by then go with the next trim or block. */
uint64_t budgets_block_room(void *data)
{
    const struct block_room *room = data;
    uint64_t floor = __atomic_load_n(&room->floor_bytes, __ATOMIC_RELAXED);
    uint64_t host = __atomic_load_n(&room->host_bytes, __ATOMIC_RELAXED), used = replica_used_bytes(room->replicas);
    uint64_t left = host > used ? host - used : 0;
    return left > floor ? left : floor;
}

/* --- quotas --------------------------------------------------------------------------------------------------------- */

/* Of the descriptors that this process may have, some are its own: sockets to stores, the log, what helpers have open for a
 * moment, and connections that are told that they are too many. Of the rest, connections may have half and leases a third,
 * so that neither leaves nothing for files and memory, and root can always connect. What the limit has beyond that is for
 * sockets of refused clients that wait to be closed (base/foreign_fd.h). */
uint64_t budgets_shared_descriptors(const struct config *config, uint64_t all)
{
    uint64_t own = OWN_DESCRIPTORS + config->sources.http.max_connections;
    return smaller(all / 2 > own ? all - own : all / 2, MOST_SHARED_DESCRIPTORS);
}

static void set_descriptor_quotas(struct quota *quota, const struct config *config)
{
    struct rlimit limit;
    uint64_t all = getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : OWN_DESCRIPTORS;
    uint64_t shared = budgets_shared_descriptors(config, all), connections = shared / 6;
    uint64_t reserve = smaller(shared / 8, MOST_RESERVED_DESCRIPTORS);
    quota_set_limits(quota, QUOTA_DESCRIPTORS, shared, 0);
    quota_set_reserve(quota, QUOTA_DESCRIPTORS, reserve, reserve);
    quota_set_limits(quota, QUOTA_LEASES, shared / 3, 0);
    quota_set_limits(quota, QUOTA_CONNECTIONS, connections, config->server.max_connections_per_uid);
    quota_set_reserve(quota, QUOTA_CONNECTIONS, reserve / 6, 0);
}

void budgets_set_quotas(struct quota *quota, const struct config *config, const struct memory_budgets *budgets)
{
    quota_set_kept(quota, (unsigned)config->limits.kept_for_others_percent);
    set_descriptor_quotas(quota, config);
    quota_set_limits(quota, QUOTA_CALLS, MAX_CALLS, 0);
    quota_set_limits(quota, QUOTA_GROUPS, MAX_GROUPS, 0);
    quota_set_limits(quota, QUOTA_METADATA, budgets->metadata_bytes, 0);
    quota_set_limits(quota, QUOTA_UPLOADS, UPLOAD_QUEUE_MAX, 0);
    quota_set_limits(quota, QUOTA_PREWARMS, PREWARMS_MAX_RUNNING, PREWARMS_MAX_OF_A_USER);
    quota_set_limits(quota, QUOTA_FOLDERS, FOLDERS_MAX, FOLDERS_MAX_PER_UID);
    quota_set_limits(quota, QUOTA_LENT, HOST_REGIONS_MAX_BYTES, 0);
    quota_set_limits(quota, QUOTA_LOCKED, config->memory.locked_pages_budget_bytes, 0);
}
