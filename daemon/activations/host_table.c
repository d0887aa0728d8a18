#include "activations/host_table.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/activation_name.h"
#include "base/map.h"
#include "base/memory.h"
#include "base/quota.h"
#include "base/text.h"

struct table_store {
    char *path;
    uint32_t index; /* in the table */
    uint32_t n_hosts;
    uid_t uid;
    bool is_shared;
};

struct table_user {
    struct table_user *next;
    uid_t uid;
    size_t n_hosts;
    uint64_t bytes;
};

struct host_table {
    struct map store_map, host_map; /* path, key -> index */
    struct table_store **stores;
    struct table_host **hosts;
    size_t n_stores, stores_capacity, n_hosts, hosts_capacity;
    struct table_user *users;
    uint64_t bytes;
};

struct host_table *host_table_create(void)
{
    struct host_table *table = memory_alloc(sizeof *table);
    map_init(&table->store_map, 16);
    map_init(&table->host_map, 16);
    return table;
}

void host_table_destroy(struct host_table *table)
{
    if (!table)
        return;
    for (size_t i = 0; i < table->n_hosts; i++)
        free(table->hosts[i]);
    for (size_t i = 0; i < table->n_stores; i++) {
        free(table->stores[i]->path);
        free(table->stores[i]);
    }
    while (table->users) {
        struct table_user *next = table->users->next;
        free(table->users);
        table->users = next;
    }
    free(table->hosts);
    free(table->stores);
    map_fini(&table->host_map);
    map_fini(&table->store_map);
    free(table);
}

/* --- finding ------------------------------------------------------------------------------------------------------------ */

static struct table_store *find_store(const struct host_table *table, const char *path, size_t length)
{
    uint32_t index = map_find(&table->store_map, path, length);
    return index == MAP_NONE ? NULL : table->stores[index];
}

static struct table_host *find_host(const struct host_table *table, struct table_store *store, uint32_t host)
{
    const struct table_host wanted = {.key = {store, host}};
    uint32_t index = map_find(&table->host_map, (const char *)&wanted.key, sizeof wanted.key);
    return index == MAP_NONE ? NULL : table->hosts[index];
}

struct table_host *host_table_find(const struct host_table *table, const char *path, uint32_t host)
{
    struct table_store *store = find_store(table, path, strlen(path));
    return store ? find_host(table, store, host) : NULL;
}

struct table_host *host_table_at(const struct host_table *table, size_t index)
{
    return index < table->n_hosts ? table->hosts[index] : NULL;
}

struct known_host host_table_known(const struct table_host *host)
{
    const struct table_store *store = host->key.store;
    return (struct known_host){
        .path = store->path, .host = (uint32_t)host->key.host, .uid = store->uid, .is_shared = store->is_shared};
}

static struct table_user *find_user(const struct host_table *table, uid_t uid)
{
    struct table_user *user = table->users;
    while (user && user->uid != uid)
        user = user->next;
    return user;
}

/* --- whose it is -------------------------------------------------------------------------------------------------------- */

static int check_store(const struct table_store *store, const struct known_host *user, struct error *error)
{
    char text[TEXT_NAME_CHARS];
    if (!store || store->uid == user->uid || (store->is_shared && user->is_shared))
        return 0;
    return fail(error, ERROR_PERMISSION_DENIED, "STORE_OF_ANOTHER_USER",
                "the store %s is user %u's: nobody else appends to it; choose another folder, or let users share theirs by "
                "limits.shared_group",
                text_escape(store->path, strlen(store->path), text), (unsigned)store->uid);
}

int host_table_check(const struct host_table *table, const struct known_host *user, struct error *error)
{
    const char *path = user->path, *slash = path;
    if (quota_is_privileged(user->uid))
        return 0;
    /* /data/acts/host_003/more is within a host folder of /data/acts, whether that is the name of a store or not */
    while ((slash = strchr(slash + 1, '/')) != NULL) {
        char name[ACTIVATION_NAME_CHARS] = "";
        size_t length = strcspn(slash + 1, "/");
        struct table_store *store = find_store(table, path, (size_t)(slash - path));
        uint32_t host;
        if (length < sizeof name)
            memcpy(name, slash + 1, length);
        if (store && activation_parse_host(name, &host) && find_host(table, store, host) &&
            check_store(store, user, error) < 0)
            return -1;
    }
    return check_store(find_store(table, path, strlen(path)), user, error);
}

/* --- adding ------------------------------------------------------------------------------------------------------------- */

static struct table_store *add_store(struct host_table *table, const struct known_host *host)
{
    struct table_store *store = memory_alloc(sizeof *store);
    *store = (struct table_store){memory_copy_text(host->path), (uint32_t)table->n_stores, 0, host->uid, host->is_shared};
    ARRAY_RESERVE(table->stores, table->n_stores, table->stores_capacity);
    table->stores[table->n_stores++] = store;
    map_add(&table->store_map, store->path, strlen(store->path), store->index);
    return store;
}

static struct table_user *add_user(struct host_table *table, uid_t uid)
{
    struct table_user *user = memory_alloc(sizeof *user);
    *user = (struct table_user){table->users, uid, 0, 0};
    table->users = user;
    return user;
}

static int check_room(const struct host_table *table, uid_t uid, unsigned kept_percent, struct error *error)
{
    const struct table_user *user = find_user(table, uid);
    size_t n_own = user ? user->n_hosts : 0;
    if (table->n_hosts < HOST_REGISTRY_MAX && quota_allows(kept_percent, HOST_REGISTRY_MAX, table->n_hosts, n_own, 1))
        return 0;
    return fail(error, ERROR_RESOURCE_EXHAUSTED, "TOO_MANY_HOST_FOLDERS",
                "user %u has %zu host folders of activation stores, all users %zu; at most %d are remembered. Remove old "
                "ones; those that are gone are forgotten when the daemon starts anew",
                (unsigned)uid, n_own, table->n_hosts, HOST_REGISTRY_MAX);
}

struct table_host *host_table_add(struct host_table *table, const struct known_host *known, unsigned kept_percent,
                                  struct error *error)
{
    struct table_store *store = find_store(table, known->path, strlen(known->path));
    struct table_host *host = store ? find_host(table, store, known->host) : NULL;
    uid_t uid = store ? store->uid : known->uid;
    if (host)
        return host;
    if (check_room(table, uid, kept_percent, error) < 0)
        return NULL;
    if (!store)
        store = add_store(table, known);
    host = memory_alloc(sizeof *host);
    *host = (struct table_host){.key = {store, known->host}, .index = (uint32_t)table->n_hosts};
    ARRAY_RESERVE(table->hosts, table->n_hosts, table->hosts_capacity);
    table->hosts[table->n_hosts++] = host;
    map_add(&table->host_map, (const char *)&host->key, sizeof host->key, host->index);
    store->n_hosts++;
    struct table_user *user = find_user(table, uid);
    user = user ? user : add_user(table, uid);
    user->n_hosts++;
    return host;
}

/* --- removing: the last one takes the place ----------------------------------------------------------------------------- */

static void remove_store(struct host_table *table, struct table_store *store)
{
    struct table_store *last = table->stores[--table->n_stores];
    map_remove(&table->store_map, store->path, strlen(store->path));
    if (last != store) {
        map_remove(&table->store_map, last->path, strlen(last->path));
        last->index = store->index;
        table->stores[last->index] = last;
        map_add(&table->store_map, last->path, strlen(last->path), last->index);
    }
    free(store->path);
    free(store);
}

static void forget_user(struct host_table *table, const struct table_user *user)
{
    struct table_user **at = &table->users;
    while (*at != user)
        at = &(*at)->next;
    struct table_user *gone = *at;
    *at = gone->next;
    free(gone);
}

void host_table_remove(struct host_table *table, struct table_host *host)
{
    struct table_store *store = host->key.store;
    struct table_user *user = find_user(table, store->uid);
    struct table_host *last = table->hosts[--table->n_hosts];
    host_table_count(table, host, 0);
    map_remove(&table->host_map, (const char *)&host->key, sizeof host->key);
    if (last != host) {
        map_remove(&table->host_map, (const char *)&last->key, sizeof last->key);
        last->index = host->index;
        table->hosts[last->index] = last;
        map_add(&table->host_map, (const char *)&last->key, sizeof last->key, last->index);
    }
    free(host);
    if (--user->n_hosts == 0)
        forget_user(table, user);
    if (--store->n_hosts == 0)
        remove_store(table, store);
}

/* --- bytes -------------------------------------------------------------------------------------------------------------- */

void host_table_count(struct host_table *table, struct table_host *host, uint64_t bytes)
{
    struct table_user *user = find_user(table, host->key.store->uid);
    table->bytes += bytes - host->bytes;
    user->bytes += bytes - host->bytes;
    host->bytes = bytes;
}

void host_table_bytes(const struct host_table *table, uid_t uid, uint64_t *all, uint64_t *own)
{
    const struct table_user *user = find_user(table, uid);
    *all = table->bytes;
    *own = user ? user->bytes : 0;
}
