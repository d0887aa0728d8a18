#include "host_groups.h"

#include "hosts/hosts.h"
#include "load/rank_registry.h"
#include "load/ticket.h"

static void set_entry(void *data, const char *key, const char *value)
{
    hosts_set(data, key, value);
}

static void unset_entry(void *data, const char *key)
{
    hosts_unset(data, key);
}

static bool is_alive(void *data, const char *incarnation)
{
    return hosts_is_alive(data, incarnation);
}

static bool is_away(void *data)
{
    return !hosts_summary(data).is_connected;
}

static void on_change(void *data, const char *key, const char *value)
{
    rank_registry_change(data, key, value);
}

static void on_snapshot(void *data, bool begins)
{
    rank_registry_snapshot(data, begins);
}

static void on_hosts_changed(void *data)
{
    rank_registry_hosts_changed(data);
}

struct rank_registry *host_groups_join(struct hosts *hosts, struct load_table *loads)
{
    const struct hosts_summary own = hosts_summary(hosts);
    const struct rank_link link = {.host = own.name,
                                   .incarnation = own.incarnation,
                                   .domain = own.domain,
                                   .set = set_entry,
                                   .unset = unset_entry,
                                   .is_alive = is_alive,
                                   .is_away = is_away,
                                   .data = hosts};
    struct rank_registry *ranks = rank_registry_create(&link);
    const struct hosts_watcher watcher = {
        .prefix = "groups/", .change = on_change, .snapshot = on_snapshot, .hosts_changed = on_hosts_changed, .data = ranks};
    hosts_watch(hosts, &watcher);
    load_table_join_hosts(loads, ranks);
    return ranks;
}
