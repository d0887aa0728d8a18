/* The ranks that other hosts have in groups which span hosts, as the membership service tells, and this host's own claims
 * there. What other hosts say is a hint: a process that may write to the service may write any entry. So only those of hosts
 * that have proven themselves count, and bytes never depend on one.
 *
 *   claim ---> the service creates the entry unless the rank has one ---> changed: rank_registry_is_told()
 *
 * An entry counts for one run: from rank_registry_use() on it is of a group that has begun, and a next group of the same id
 * waits for new ones. Loop thread only. */
#ifndef LOAD_RANK_REGISTRY_H
#define LOAD_RANK_REGISTRY_H

#include <stdbool.h>
#include <stdint.h>

#include "load/rank_entry.h"

struct rank_link {                                               /* to the other hosts; copied */
    const char *host, *incarnation, *domain;                     /* of this host; borrowed */
    void (*set)(void *data, const char *key, const char *value); /* see hosts/membership.h */
    void (*unset)(void *data, const char *key);
    bool (*is_alive)(void *data, const char *incarnation); /* another host that has proven itself */
    bool (*is_away)(void *data);                           /* the service cannot be reached */
    void *data;
};

struct rank_registry_events {
    void (*changed)(void *data, const char *group, uint32_t rank);
    void (*hosts_changed)(void *data); /* anything may have changed */
};

struct rank_registry;
struct rank_registry *rank_registry_create(const struct rank_link *link);
void rank_registry_destroy(struct rank_registry *registry); /* accepts NULL */
void rank_registry_listen(struct rank_registry *registry, const struct rank_registry_events *events, void *data);

/* What the service tells, of keys that begin with groups/. value NULL: deleted. */
void rank_registry_change(struct rank_registry *registry, const char *key, const char *value);
void rank_registry_snapshot(struct rank_registry *registry, bool begins); /* what is not told until its end is gone */
void rank_registry_hosts_changed(struct rank_registry *registry);         /* who is alive, or whether the service is there */

const char *rank_registry_domain(const struct rank_registry *registry); /* NULL without a registry */
bool rank_registry_is_away(const struct rank_registry *registry);

/* Fills in host and incarnation. An earlier claim of the rank is released. */
void rank_registry_claim(struct rank_registry *registry, struct rank_entry *entry);
void rank_registry_release(struct rank_registry *registry, const char *group, uint32_t rank); /* also where there is none */
bool rank_registry_is_told(const struct rank_registry *registry, const char *group, uint32_t rank);

/* Of another host that is alive, or NULL. Valid until any function but these two is called. */
const struct rank_entry *rank_registry_find(const struct rank_registry *registry, const char *group, uint32_t rank);
/* Such entries of a group that are not used; after NULL the first one. */
const struct rank_entry *rank_registry_next(const struct rank_registry *registry, const char *group,
                                            const struct rank_entry *after);
void rank_registry_use(struct rank_registry *registry, const char *group); /* all that is known of it */

#endif
