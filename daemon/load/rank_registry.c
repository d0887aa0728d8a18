#include "load/rank_registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "base/memory.h"

enum {
    BUCKETS = 256,
    TOLD_MAX = 16384,          /* entries beyond them are left out, ... */
    NEEDS_MAX_BYTES = 64 << 20 /* ... and what ranks need beyond it */
};

struct known_rank {
    struct rank_entry entry; /* first; as it was told, else only its key */
    LIST_ENTRY(known_rank) in_bucket;
    bool is_told, is_in_snapshot;
    char claim[RANK_TEXT_CHARS]; /* the load that has the rank here; "" = none */
};

struct rank_registry {
    struct rank_link link;
    const struct rank_registry_events *events;
    void *data;
    LIST_HEAD(, known_rank) buckets[BUCKETS]; /* by group */
    size_t n_told, needs_bytes;
};

struct rank_registry *rank_registry_create(const struct rank_link *link)
{
    struct rank_registry *registry = memory_alloc(sizeof *registry);
    registry->link = *link;
    for (size_t i = 0; i < BUCKETS; i++)
        LIST_INIT(&registry->buckets[i]);
    return registry;
}

void rank_registry_destroy(struct rank_registry *registry)
{
    struct known_rank *known;
    for (size_t i = 0; registry && i < BUCKETS; i++)
        while ((known = LIST_FIRST(&registry->buckets[i]))) {
            LIST_REMOVE(known, in_bucket);
            free(known->entry.needs);
            free(known);
        }
    free(registry);
}

void rank_registry_listen(struct rank_registry *registry, const struct rank_registry_events *events, void *data)
{
    registry->events = events;
    registry->data = data;
}

const char *rank_registry_domain(const struct rank_registry *registry)
{
    return registry ? registry->link.domain : NULL;
}

bool rank_registry_is_away(const struct rank_registry *registry)
{
    return registry->link.is_away(registry->link.data);
}

/* --- what is known ---------------------------------------------------------------------------------------------------- */

static size_t bucket_of(const char *group)
{
    uint32_t hash = 2166136261;
    for (; *group; group++)
        hash = (hash ^ (unsigned char)*group) * 16777619;
    return hash % BUCKETS;
}

static struct known_rank *find_known(const struct rank_registry *registry, const char *group, uint32_t rank)
{
    struct known_rank *known;
    LIST_FOREACH (known, &registry->buckets[bucket_of(group)], in_bucket)
        if (known->entry.rank == rank && strcmp(known->entry.group, group) == 0)
            return known;
    return NULL;
}

static struct known_rank *find_or_add(struct rank_registry *registry, const struct rank_entry *entry)
{
    struct known_rank *known = find_known(registry, entry->group, entry->rank);
    if (known)
        return known;
    known = memory_alloc(sizeof *known);
    known->entry = *entry;
    known->entry.needs = NULL;
    LIST_INSERT_HEAD(&registry->buckets[bucket_of(entry->group)], known, in_bucket);
    return known;
}

/* Takes them. */
static void set_needs(struct rank_registry *registry, struct known_rank *known, char *needs)
{
    registry->needs_bytes -= known->entry.needs ? strlen(known->entry.needs) : 0;
    free(known->entry.needs);
    size_t bytes = needs ? strlen(needs) : 0;
    bool has_room = registry->needs_bytes + bytes <= NEEDS_MAX_BYTES;
    registry->needs_bytes += has_room ? bytes : 0;
    known->entry.needs = has_room ? needs : NULL;
    if (!has_room)
        free(needs);
}

static void forget_told(struct rank_registry *registry, struct known_rank *known)
{
    registry->n_told -= known->is_told;
    known->is_told = false;
    set_needs(registry, known, NULL);
    if (known->claim[0])
        return;
    LIST_REMOVE(known, in_bucket);
    free(known);
}

static bool is_own(const struct rank_registry *registry, const struct rank_entry *entry)
{
    return strcmp(entry->incarnation, registry->link.incarnation) == 0;
}

static bool counts(const struct rank_registry *registry, const struct known_rank *known)
{
    return known->is_told && !is_own(registry, &known->entry) &&
           registry->link.is_alive(registry->link.data, known->entry.incarnation);
}

const struct rank_entry *rank_registry_find(const struct rank_registry *registry, const char *group, uint32_t rank)
{
    const struct known_rank *known = find_known(registry, group, rank);
    return known && counts(registry, known) ? &known->entry : NULL;
}

const struct rank_entry *rank_registry_next(const struct rank_registry *registry, const char *group,
                                            const struct rank_entry *after)
{
    const struct known_rank *known =
        after ? LIST_NEXT((const struct known_rank *)after, in_bucket) : LIST_FIRST(&registry->buckets[bucket_of(group)]);
    for (; known; known = LIST_NEXT(known, in_bucket))
        if (!known->entry.is_used && strcmp(known->entry.group, group) == 0 && counts(registry, known))
            return &known->entry;
    return NULL;
}

void rank_registry_use(struct rank_registry *registry, const char *group)
{
    struct known_rank *known;
    LIST_FOREACH (known, &registry->buckets[bucket_of(group)], in_bucket)
        if (strcmp(known->entry.group, group) == 0)
            known->entry.is_used = true;
}

/* --- what the service tells --------------------------------------------------------------------------------------------- */

void rank_registry_change(struct rank_registry *registry, const char *key, const char *value)
{
    struct rank_entry entry;
    if (value ? !rank_entry_parse(key, value, &entry) : !rank_entry_parse_key(key, &entry))
        return;
    struct known_rank *known = find_known(registry, entry.group, entry.rank);
    char *needs = value ? entry.needs : NULL;
    if (!value) {
        if (known)
            forget_told(registry, known);
    } else if (known || registry->n_told < TOLD_MAX) {
        known = find_or_add(registry, &entry);
        bool is_same = known->is_told && strcmp(known->entry.incarnation, entry.incarnation) == 0 &&
                       strcmp(known->entry.load, entry.load) == 0;
        entry.is_used = is_same && known->entry.is_used;
        entry.needs = known->entry.needs;
        known->entry = entry;
        set_needs(registry, known, needs);
        registry->n_told += !known->is_told;
        known->is_told = known->is_in_snapshot = true;
    } else {
        free(needs);
    }
    if (registry->events)
        registry->events->changed(registry->data, entry.group, entry.rank);
}

void rank_registry_snapshot(struct rank_registry *registry, bool begins)
{
    struct known_rank *known, *next;
    for (size_t i = 0; i < BUCKETS; i++)
        for (known = LIST_FIRST(&registry->buckets[i]); known; known = next) {
            next = LIST_NEXT(known, in_bucket);
            if (!begins && !known->is_in_snapshot)
                forget_told(registry, known);
            else
                known->is_in_snapshot = false;
        }
    if (!begins)
        rank_registry_hosts_changed(registry);
}

void rank_registry_hosts_changed(struct rank_registry *registry)
{
    if (registry->events)
        registry->events->hosts_changed(registry->data);
}

/* --- this host's own claims ----------------------------------------------------------------------------------------------- */

void rank_registry_claim(struct rank_registry *registry, struct rank_entry *entry)
{
    snprintf(entry->host, sizeof entry->host, "%s", registry->link.host);
    snprintf(entry->incarnation, sizeof entry->incarnation, "%s", registry->link.incarnation);
    rank_registry_release(registry, entry->group, entry->rank);
    char *key = rank_entry_key(entry), *value = rank_entry_write(entry);
    snprintf(find_or_add(registry, entry)->claim, RANK_TEXT_CHARS, "%s", entry->load);
    registry->link.set(registry->link.data, key, value);
    free(key);
    free(value);
}

void rank_registry_release(struct rank_registry *registry, const char *group, uint32_t rank)
{
    struct known_rank *known = find_known(registry, group, rank);
    if (!known || !known->claim[0])
        return;
    char *key = rank_entry_key(&known->entry);
    known->claim[0] = '\0';
    if (!known->is_told)
        forget_told(registry, known);
    registry->link.unset(registry->link.data, key);
    free(key);
}

bool rank_registry_is_told(const struct rank_registry *registry, const char *group, uint32_t rank)
{
    const struct known_rank *known = find_known(registry, group, rank);
    return known && known->is_told && is_own(registry, &known->entry) && strcmp(known->entry.load, known->claim) == 0;
}
