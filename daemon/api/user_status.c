/* Joins what the quota counts with what the budgets of host and GPUs count; see user_status.h. */
#include "api/user_status.h"

#include <stdlib.h>

enum { MAX_USERS = 256 }; /* of a host with more, those with most memory are of more interest than the rest */

typedef Tensorcast__Daemon__V1__UserStatus user_status;

struct users {
    struct arena *arena;
    user_status **rows;
    size_t n_rows;
};

static user_status *get_row(struct users *users, uid_t uid)
{
    for (size_t i = 0; i < users->n_rows; i++)
        if (users->rows[i]->uid == uid)
            return users->rows[i];
    if (users->n_rows == MAX_USERS)
        return NULL;
    user_status *row = arena_alloc(users->arena, sizeof *row);
    tensorcast__daemon__v1__user_status__init(row);
    row->uid = uid;
    users->rows[users->n_rows++] = row;
    return row;
}

static void add_memory(void *data, const struct holders_user *user)
{
    user_status *row = get_row(data, user->uid);
    if (!row)
        return;
    row->held_bytes += user->held_bytes;
    row->kept_bytes += user->kept_bytes;
    row->loading_bytes += user->reserved_bytes;
}

static void add_shares(void *data, const struct quota_user *user)
{
    user_status *row = get_row(data, user->uid);
    if (!row)
        return;
    row->connections = user->amounts[QUOTA_CONNECTIONS];
    row->calls = user->amounts[QUOTA_CALLS];
    row->leases = user->amounts[QUOTA_LEASES];
    row->descriptors = user->amounts[QUOTA_DESCRIPTORS];
    row->groups = user->amounts[QUOTA_GROUPS];
    row->metadata_bytes = user->amounts[QUOTA_METADATA];
}

static int compare(const void *a, const void *b)
{
    const user_status *one = *(user_status *const *)a, *other = *(user_status *const *)b;
    uint64_t one_bytes = one->held_bytes + one->kept_bytes + one->loading_bytes;
    uint64_t other_bytes = other->held_bytes + other->kept_bytes + other->loading_bytes;
    if (one_bytes != other_bytes)
        return one_bytes < other_bytes ? 1 : -1;
    return one->uid < other->uid ? -1 : one->uid > other->uid;
}

static void fill_quotas(const struct load_services *services, struct arena *arena,
                        Tensorcast__Daemon__V1__StatusResponse *response)
{
    response->quotas = arena_array(arena, QUOTA_KINDS, sizeof *response->quotas);
    for (int kind = 0; kind < QUOTA_KINDS; kind++) {
        uint64_t limit = quota_limit(services->quota, (enum quota_kind)kind);
        if (limit == UINT64_MAX)
            continue; /* only counted */
        Tensorcast__Daemon__V1__QuotaStatus *row = arena_alloc(arena, sizeof *row);
        tensorcast__daemon__v1__quota_status__init(row);
        row->resource = (char *)quota_kind_name((enum quota_kind)kind);
        row->taken = quota_taken(services->quota, (enum quota_kind)kind);
        row->limit = limit;
        response->quotas[response->n_quotas++] = row;
    }
}

void user_status_fill(const struct load_services *services, struct arena *arena,
                      Tensorcast__Daemon__V1__StatusResponse *response)
{
    struct users users = {arena, arena_array(arena, MAX_USERS, sizeof(user_status *)), 0};
    const struct load_targets *targets = services->targets;
    response->kept_bytes = replica_kept_bytes(targets->list[LOAD_TARGET_HOST].replicas);
    for (size_t i = 0; i < targets->n; i++)
        holders_each(replica_holders(targets->list[i].replicas), add_memory, &users);
    quota_each(services->quota, add_shares, &users);
    qsort(users.rows, users.n_rows, sizeof *users.rows, compare);
    response->users = users.rows;
    response->n_users = users.n_rows;
    fill_quotas(services, arena, response);
}
