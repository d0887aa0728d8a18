/* The replica table: a list ordered by last use, a budget, and the rules by which replicas go. See replica.h.
 *
 * A host holds tens of replicas, so look-ups walk the list. Idle time is checked by one timer, set for the moment the
 * oldest idle replica is due. */
#include "replica/replica.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "observe/log.h"

struct replica_table {
    const char *memory, *budget_key;
    struct replica *oldest, *newest;
    uint64_t budget_bytes, idle_ttl_ms;
    uint64_t replica_bytes, reserved_bytes;
    struct loop_timer *idle_timer;
};

struct replica_key replica_key_of(const struct mapping *mapping, const struct device *device)
{
    struct replica_key key = {.device = device};
    memcpy(key.identity, mapping->artifact->identity, sizeof key.identity);
    memcpy(key.view_digest, mapping->view_digest, sizeof key.view_digest);
    return key;
}

bool replica_key_equal(const struct replica_key *a, const struct replica_key *b)
{
    return a->device == b->device && strcmp(a->identity, b->identity) == 0 && strcmp(a->view_digest, b->view_digest) == 0;
}

static bool is_lent(const struct replica *replica)
{
    return replica->segment->region != NULL;
}

static void unlink_replica(struct replica_table *table, struct replica *replica)
{
    *(replica->older ? &replica->older->newer : &table->oldest) = replica->newer;
    *(replica->newer ? &replica->newer->older : &table->newest) = replica->older;
    replica->older = replica->newer = NULL;
}

static void link_newest(struct replica_table *table, struct replica *replica)
{
    replica->older = table->newest;
    replica->newer = NULL;
    *(table->newest ? &table->newest->newer : &table->oldest) = replica;
    table->newest = replica;
}

static void drop(struct replica_table *table, struct replica *replica, const char *why)
{
    log_info("replica_dropped", LOG_TEXT("reason", why), LOG_TEXT("artifact", replica->mapping->artifact->reference),
             LOG_TEXT("view_digest", replica->key.view_digest), LOG_U64("bytes", replica->charged_bytes),
             LOG_U64("leases", replica->n_leases));
    unlink_replica(table, replica);
    table->replica_bytes -= replica->charged_bytes;
    run_destroy(replica->run);
    segment_unref(replica->segment);
    plan_destroy(replica->plan);
    mapping_destroy(replica->mapping);
    free(replica);
}

static uint64_t idle_until_ns(const struct replica_table *table, const struct replica *replica)
{
    return replica->idle_since_ns + table->idle_ttl_ms * NS_PER_MS;
}

/* Drops what has been idle too long and sets the timer for the next one. */
static void check_idle(void *data)
{
    struct replica_table *table = data;
    uint64_t now = clock_now_ns(), next = UINT64_MAX;
    struct replica *newer;
    for (struct replica *replica = table->oldest; replica; replica = newer) {
        newer = replica->newer;
        if (replica->n_pins)
            continue;
        uint64_t due = idle_until_ns(table, replica);
        if (due <= now)
            drop(table, replica, "idle");
        else if (due < next)
            next = due;
    }
    if (next == UINT64_MAX)
        loop_timer_stop(table->idle_timer);
    else
        loop_timer_start(table->idle_timer, (next - now) / NS_PER_MS + 1, 0);
}

struct replica_table *replica_table_create(struct loop *loop, uint64_t host_budget_bytes, uint64_t idle_ttl_ms)
{
    struct replica_table *table = memory_alloc(sizeof *table);
    replica_table_name(table, "host", "memory.host_budget");
    table->budget_bytes = host_budget_bytes;
    table->idle_ttl_ms = idle_ttl_ms;
    table->idle_timer = loop_timer_create(loop, check_idle, table);
    return table;
}

void replica_table_destroy(struct replica_table *table)
{
    if (!table)
        return;
    while (table->oldest)
        drop(table, table->oldest, "shutdown");
    loop_timer_destroy(table->idle_timer);
    free(table);
}

void replica_table_name(struct replica_table *table, const char *memory, const char *budget_key)
{
    table->memory = memory;
    table->budget_key = budget_key;
}

void replica_table_configure(struct replica_table *table, uint64_t host_budget_bytes, uint64_t idle_ttl_ms)
{
    struct error ignored;
    table->budget_bytes = host_budget_bytes;
    table->idle_ttl_ms = idle_ttl_ms;
    check_idle(table);
    replica_reserve(table, 0, &ignored); /* a smaller budget evicts what it can; nothing always fits */
}

static uint64_t evictable_bytes(const struct replica_table *table)
{
    uint64_t bytes = 0;
    for (const struct replica *replica = table->oldest; replica; replica = replica->newer)
        bytes += replica->n_pins ? 0 : replica->charged_bytes;
    return bytes;
}

uint64_t replica_used_bytes(const struct replica_table *table)
{
    return table->replica_bytes + table->reserved_bytes;
}

static int cannot_fit(const struct replica_table *table, uint64_t bytes, uint64_t available, struct error *error)
{
    char need[TEXT_SIZE_CHARS], have[TEXT_SIZE_CHARS], budget[TEXT_SIZE_CHARS], held[TEXT_SIZE_CHARS],
        loading[TEXT_SIZE_CHARS];
    bool is_host = strcmp(table->memory, "host") == 0;
    fail(error, ERROR_RESOURCE_EXHAUSTED, is_host ? "HOST_BUDGET_EXCEEDED" : "DEVICE_BUDGET_EXCEEDED",
         "the view needs %llu bytes (%s) of %smemory but %llu (%s) of %s %s are available: %s are held by leased replicas, "
         "%s by loads in flight; end clients that hold memory, or raise %s",
         (unsigned long long)bytes, text_people_bytes(bytes, need), is_host ? "" : "device ", (unsigned long long)available,
         text_people_bytes(available, have), table->budget_key, text_people_bytes(table->budget_bytes, budget),
         text_people_bytes(table->replica_bytes - evictable_bytes(table), held),
         text_people_bytes(table->reserved_bytes, loading), table->budget_key);
    error_note(error, "needed_bytes", "%llu", (unsigned long long)bytes);
    return error_note(error, "available_bytes", "%llu", (unsigned long long)available);
}

uint64_t replica_available_bytes(const struct replica_table *table)
{
    uint64_t fixed = replica_used_bytes(table) - evictable_bytes(table);
    return table->budget_bytes > fixed ? table->budget_bytes - fixed : 0;
}

int replica_reserve(struct replica_table *table, uint64_t bytes, struct error *error)
{
    uint64_t available = replica_available_bytes(table);
    if (bytes > available)
        return cannot_fit(table, bytes, available, error);
    struct replica *newer;
    for (struct replica *replica = table->oldest; replica && replica_used_bytes(table) + bytes > table->budget_bytes;
         replica = newer) {
        newer = replica->newer;
        if (!replica->n_pins)
            drop(table, replica, "evicted");
    }
    table->reserved_bytes += bytes;
    return 0;
}

bool replica_free_descriptors(struct replica_table *table, const struct error *error, size_t *counter)
{
    struct replica *newer;
    size_t n_dropped = 0;
    if (strcmp(error->reason, "TOO_MANY_OPEN_FILES") != 0)
        return false;
    *counter = 2 * *counter + 1;
    for (struct replica *replica = table->oldest; replica && n_dropped < *counter; replica = newer) {
        newer = replica->newer;
        if (replica->n_pins)
            continue;
        drop(table, replica, "descriptors");
        n_dropped++;
    }
    return n_dropped > 0;
}

void replica_unreserve(struct replica_table *table, uint64_t bytes)
{
    table->reserved_bytes -= bytes;
}

struct replica *replica_add(struct replica_table *table, const struct replica *parts)
{
    struct replica *replica = memory_copy(parts, sizeof *parts);
    table->reserved_bytes -= replica->charged_bytes;
    table->replica_bytes += replica->charged_bytes;
    replica->table = table;
    replica->n_pins = 1;
    replica->n_leases = 0;
    link_newest(table, replica);
    return replica;
}

struct replica *replica_find(struct replica_table *table, const struct replica_key *key)
{
    for (struct replica *replica = table->newest; replica; replica = replica->older) {
        if (!is_lent(replica) && replica_key_equal(&replica->key, key)) {
            unlink_replica(table, replica);
            link_newest(table, replica);
            return replica;
        }
    }
    return NULL;
}

void replica_pin(struct replica *replica)
{
    replica->n_pins++;
}

void replica_unpin(struct replica_table *table, struct replica *replica)
{
    if (--replica->n_pins)
        return;
    if (is_lent(replica)) {
        drop(table, replica, "client_memory_filled");
        return;
    }
    replica->idle_since_ns = clock_now_ns();
    unlink_replica(table, replica); /* the end of a lease is a use, too */
    link_newest(table, replica);
    check_idle(table);
}

void replica_drop_stale(struct replica_table *table, const struct artifact *current)
{
    struct replica *newer;
    for (struct replica *replica = table->oldest; replica; replica = newer) {
        newer = replica->newer;
        if (!replica->n_pins && strcmp(replica->mapping->artifact->reference, current->reference) == 0 &&
            strcmp(replica->key.identity, current->identity) != 0)
            drop(table, replica, "source_changed");
    }
}

struct replica_counts replica_release(struct replica_table *table, const char *reference)
{
    struct replica_counts counts = {0};
    struct replica *newer;
    for (struct replica *replica = table->oldest; replica; replica = newer) {
        newer = replica->newer;
        if (reference && strcmp(replica->mapping->artifact->reference, reference) != 0)
            continue;
        if (replica->n_pins) {
            counts.kept++;
            continue;
        }
        counts.released++;
        counts.released_bytes += replica->charged_bytes;
        drop(table, replica, "released");
    }
    return counts;
}

uint64_t replica_budget_bytes(const struct replica_table *table)
{
    return table->budget_bytes;
}

uint64_t replica_leases(const struct replica_table *table)
{
    uint64_t leases = 0;
    for (const struct replica *replica = table->oldest; replica; replica = replica->newer)
        leases += replica->n_leases;
    return leases;
}

void replica_each(const struct replica_table *table, void (*fn)(void *data, const struct replica *replica), void *data)
{
    for (const struct replica *replica = table->oldest; replica; replica = replica->newer)
        fn(data, replica);
}
