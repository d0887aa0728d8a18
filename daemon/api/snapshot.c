/* Every part of the daemon that has numbers lists them by a callback; here they become arrays. */
#include "api/snapshot.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/process.h"
#include "base/text.h"
#include "calibration/calibration.h"
#include "resolve/header_cache.h"

enum {
    MAX_HOLDERS = 256, /* each costs a look into /proc, and the loop waits for it */
    MAX_USERS = 256,   /* of a host with more, those with most memory are of more interest than the rest */
};

struct collecting {
    struct snapshot *snapshot;
    const struct handoff *handoff;
};

/* A list is full when it has none, or a power of two of elements. */
static void *reserve_row(struct arena *arena, void *list, size_t n, size_t size)
{
    if (n & (n - 1))
        return list;
    void *grown = arena_array(arena, 2 * n + 1, size);
    return n ? memcpy(grown, list, n * size) : grown;
}

/* The address of one more element of a list. */
#define APPEND(snapshot, list)                                                                                              \
    ((snapshot)->list = reserve_row(&(snapshot)->arena, (snapshot)->list, (snapshot)->n_##list, sizeof *(snapshot)->list),  \
     &(snapshot)->list[(snapshot)->n_##list++])

/* What a process calls itself, as text that a message may hold. */
static const char *text_for_messages(struct arena *arena, const char *text)
{
    char escaped[TEXT_NAME_CHARS];
    text = text_is_utf8(text, strlen(text)) ? text : text_escape(text, strlen(text), escaped);
    return arena_text(arena, text, strlen(text));
}

static void add_holder(void *data, const struct handoff_lease *lease)
{
    struct snapshot *snapshot = data;
    char command[PROCESS_COMMAND_CHARS], cgroup[PROCESS_CGROUP_CHARS];
    if (snapshot->n_holders == MAX_HOLDERS)
        return;
    *APPEND(snapshot, holders) = (struct snapshot_holder){
        *lease, clock_now_ns() - lease->since_ns, text_for_messages(&snapshot->arena, process_command(lease->pid, command)),
        text_for_messages(&snapshot->arena, process_cgroup(lease->pid, cgroup))};
}

static void add_replica(void *data, const struct replica *replica)
{
    const struct collecting *collecting = data;
    struct snapshot *snapshot = collecting->snapshot;
    struct snapshot_replica *row = APPEND(snapshot, replicas);
    row->replica = replica;
    row->idle_ns = replica->holding.n_pins ? 0 : clock_now_ns() - replica->idle_since_ns;
    row->first_holder = snapshot->n_holders;
    handoff_each_lease(collecting->handoff, replica, add_holder, snapshot);
    row->n_holders = snapshot->n_holders - row->first_holder;
}

static struct snapshot_user *get_user(struct snapshot *snapshot, uid_t uid)
{
    for (size_t i = 0; i < snapshot->n_users; i++)
        if (snapshot->users[i].memory.uid == uid)
            return &snapshot->users[i];
    if (snapshot->n_users == MAX_USERS)
        return NULL;
    struct snapshot_user *user = APPEND(snapshot, users);
    user->memory.uid = uid;
    return user;
}

static void add_memory(void *data, const struct holders_user *memory)
{
    struct snapshot_user *user = get_user(data, memory->uid);
    if (!user)
        return;
    user->memory.held_bytes += memory->held_bytes;
    user->memory.kept_bytes += memory->kept_bytes;
    user->memory.reserved_bytes += memory->reserved_bytes;
}

static void add_shares(void *data, const struct quota_user *shares)
{
    struct snapshot_user *user = get_user(data, shares->uid);
    if (user)
        memcpy(user->amounts, shares->amounts, sizeof user->amounts);
}

static uint64_t memory_of(const struct snapshot_user *user)
{
    return user->memory.held_bytes + user->memory.kept_bytes + user->memory.reserved_bytes;
}

static int compare_users(const void *a, const void *b)
{
    const struct snapshot_user *one = a, *other = b;
    if (memory_of(one) != memory_of(other))
        return memory_of(one) < memory_of(other) ? 1 : -1;
    return one->memory.uid < other->memory.uid ? -1 : one->memory.uid > other->memory.uid;
}

static void add_load(void *data, const struct load_info *info)
{
    struct snapshot *snapshot = data;
    *APPEND(snapshot, loads) = *info;
}

static void add_costs(void *data, uint64_t device_id, const struct cost_constants *costs)
{
    struct snapshot *snapshot = data;
    *APPEND(snapshot, costs) = (struct snapshot_device_costs){device_id, *costs};
}

static void add_store(void *data, const struct engine_origin *origin)
{
    struct snapshot *snapshot = data;
    struct engine_origin *store = APPEND(snapshot, stores);
    *store = *origin;
    store->name = arena_text(&snapshot->arena, origin->name, strlen(origin->name));
}

static void collect_targets(const struct api *api, struct snapshot *snapshot)
{
    struct collecting collecting = {snapshot, api->handoff};
    for (size_t i = 0; i < api->services.targets->n; i++) {
        const struct load_target *target = &api->services.targets->list[i];
        uint64_t kept_bytes = replica_kept_bytes(target->replicas); /* first: what was given back is not used any more */
        if (i == LOAD_TARGET_HOST)
            snapshot->kept_bytes = kept_bytes;
        *APPEND(snapshot, targets) = (struct snapshot_target){
            .device = target->device,
            .is_out_of_service = __atomic_load_n(&target->device->is_out_of_service, __ATOMIC_ACQUIRE),
            .budget_bytes = replica_budget_bytes(target->replicas),
            .used_bytes = replica_used_bytes(target->replicas)};
        snapshot->leases += replica_leases(target->replicas);
        replica_each(target->replicas, add_replica, &collecting);
        holders_each(replica_holders(target->replicas), add_memory, snapshot);
    }
}

void snapshot_collect(const struct api *api, struct snapshot *snapshot)
{
    const struct load_services *services = &api->services;
    *snapshot = (struct snapshot){0};
    snapshot->uptime_ns = clock_now_ns() - api->started_ns;
    collect_targets(api, snapshot);
    snapshot->staging_bytes = engine_staging_bytes(services->engine);
    snapshot->extent_bytes = engine_extent_bytes(services->engine);
    snapshot->pool_bytes = __atomic_load_n(&snapshot->targets[LOAD_TARGET_HOST].device->pool_bytes, __ATOMIC_RELAXED);
    snapshot->cached_headers_bytes = header_cache_memory_bytes(services->headers);
    snapshot->connections = rpc_server_connections(api->rpc);
    load_table_each(api->loads, add_load, snapshot);
    calibration_each(services->calibration, add_costs, snapshot);
    engine_each_origin(services->engine, add_store, snapshot);
    quota_each(services->quota, add_shares, snapshot);
    qsort(snapshot->users, snapshot->n_users, sizeof *snapshot->users, compare_users);
    for (int kind = 0; kind < QUOTA_KINDS; kind++)
        snapshot->quotas[kind] = (struct snapshot_quota){quota_taken(services->quota, (enum quota_kind)kind),
                                                         quota_limit(services->quota, (enum quota_kind)kind)};
}

void snapshot_fini(struct snapshot *snapshot)
{
    arena_fini(&snapshot->arena);
}
