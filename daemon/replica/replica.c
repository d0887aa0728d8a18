/* The replica table: a list ordered by last use, a budget, and the rules by which replicas go. See replica.h.
 *
 * A host holds tens of replicas, so look-ups walk the list. Idle time is checked by one timer, set for the moment the
 * oldest idle replica is due; another one asks whether what clients have kept is free again, soon and then ever less often,
 * since a process that ends lets go of its lease a moment before its memory. */
#include "replica/replica.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/quota.h"
#include "base/text.h"
#include "observe/log.h"
#include "replica/budget_error.h"
#include "replica/user_pins.h"

enum { METADATA_PORTION_BYTES = 16 << 20 }; /* a request that lacks some is tried again for every so many bytes */
enum { IDLE_STEP_MS = 10 };                 /* between two walks that look for idle replicas */
enum { FIRST_LOOK_MS = 10, LAST_LOOK_MS = 1000, LOOKS_AT_ONCE = 256 };

/* What is left of a replica that was dropped while clients still had its memory. */
struct remains {
    struct remains *next;
    struct segment *segment;
    struct quota_charge descriptors;
    struct holding holding;
};

struct replica_table {
    enum replica_memory memory;
    struct replica_limits limits;
    struct replica *oldest, *newest;
    struct remains *remains;
    struct holders *holders;
    uint64_t replica_bytes, reserved_bytes, remains_bytes;
    struct loop_timer *idle_timer, *look_timer;
    bool awaits_idle; /* idle_timer runs */
    uint64_t look_ms; /* until the next look; 0 = nothing is kept */
};

struct replica_key replica_key_of(const struct mapping *mapping, const struct device *device, uid_t sharers)
{
    struct replica_key key = {.device = device, .sharers = sharers};
    memcpy(key.source_key, mapping->artifact->source_key, sizeof key.source_key);
    memcpy(key.view_digest, mapping->view_digest, sizeof key.view_digest);
    return key;
}

const char *replica_memory_name(const struct replica *replica)
{
    return replica->files ? "mapped" : page_kind_name(device_page_kind(replica->segment));
}

bool replica_key_equal(const struct replica_key *a, const struct replica_key *b)
{
    return a->device == b->device && a->sharers == b->sharers && strcmp(a->source_key, b->source_key) == 0 &&
           strcmp(a->view_digest, b->view_digest) == 0;
}

static bool is_idle(const struct replica *replica)
{
    return replica->holding.n_pins == 0;
}

/* Dropping it makes room. */
static bool is_evictable(const struct replica *replica)
{
    return is_idle(replica) && !replica->holding.is_kept && !replica->files;
}

static bool has_locked_pages(const struct replica *replica)
{
    return replica->reader && page_reader_locked_bytes(replica->reader);
}

uint64_t replica_held_bytes(const struct replica *replica)
{
    return replica->reader ? page_reader_locked_bytes(replica->reader) : replica->charged_bytes;
}

/* Why nobody else is to have it, NULL = it is for everybody. */
static const char *why_private(const struct replica *replica)
{
    return replica->files && !has_locked_pages(replica)   ? "files_given_back"
           : replica->files                               ? NULL
           : segment_is_lent(replica->segment)            ? "client_memory_filled"
           : artifact_is_racy(replica->mapping->artifact) ? "racy_source"
                                                          : NULL;
}

bool replica_is_private(const struct replica *replica)
{
    return why_private(replica) != NULL;
}

/* Nothing has it but users who want it to stay. */
static bool is_only_pinned(const struct replica *replica)
{
    return !is_idle(replica) && replica->holding.n_pins == user_pins_count(replica);
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

/* --- memory that clients keep --------------------------------------------------------------------------------------- */

static void look_in(struct replica_table *table, uint64_t ms)
{
    table->look_ms = ms;
    loop_timer_start(table->look_timer, ms, 0);
}

/* With its last pin gone it is either nobody's or kept. */
static void look_at(struct holding *holding, struct segment *segment)
{
    if (holding_was_given(holding) && holding->n_pins == 0)
        holding_set_kept(holding, device_is_kept(segment));
}

static void leave_remains(struct replica_table *table, struct replica *replica)
{
    struct remains *remains = memory_alloc(sizeof *remains);
    *remains = (struct remains){.next = table->remains, .segment = replica->segment, .descriptors = replica->descriptors};
    holding_move(&remains->holding, &replica->holding);
    table->remains = remains;
    table->remains_bytes += remains->holding.bytes;
}

static void remove_remains(struct replica_table *table, struct remains **link)
{
    struct remains *remains = *link;
    *link = remains->next;
    table->remains_bytes -= remains->holding.bytes;
    holding_fini(&remains->holding);
    segment_unref(remains->segment);
    quota_charge_end(&remains->descriptors);
    free(remains);
}

/* At most so many pieces of memory: a call to the kernel for each. What was looked at goes to the end of the list, so that
 * the next look sees the others. */
static void look_at_remains(struct replica_table *table, size_t n)
{
    struct remains **link = &table->remains, *looked = NULL, **last = &looked;
    for (; *link && n; n--) {
        struct remains *remains = *link;
        look_at(&remains->holding, remains->segment);
        if (!remains->holding.is_kept) {
            remove_remains(table, link);
            continue;
        }
        *link = remains->next;
        remains->next = NULL;
        *last = remains;
        last = &remains->next;
    }
    while (*link)
        link = &(*link)->next;
    *link = looked;
}

/* What is kept, of replicas and of remains. */
static uint64_t look_at_replicas(struct replica_table *table, size_t n)
{
    uint64_t bytes = 0;
    for (struct replica *replica = table->oldest; replica; replica = replica->newer) {
        if (replica->holding.is_kept && n) {
            look_at(&replica->holding, replica->segment);
            n--;
        }
        bytes += replica->holding.is_kept ? replica->charged_bytes : 0;
    }
    look_at_remains(table, n);
    return bytes + table->remains_bytes;
}

static void on_look(void *data)
{
    struct replica_table *table = data;
    bool is_some_kept = look_at_replicas(table, SIZE_MAX) > 0;
    uint64_t next_ms = 2 * table->look_ms < LAST_LOOK_MS ? 2 * table->look_ms : LAST_LOOK_MS;
    table->look_ms = 0;
    if (is_some_kept)
        look_in(table, next_ms);
}

uint64_t replica_kept_bytes(struct replica_table *table)
{
    return look_at_replicas(table, LOOKS_AT_ONCE);
}

/* --- the table ------------------------------------------------------------------------------------------------------ */

static void drop(struct replica_table *table, struct replica *replica, const char *why)
{
    log_work_of("replica_dropped", replica->uid, LOG_TEXT("reason", why),
                LOG_TEXT("artifact", replica->mapping->artifact->reference),
                LOG_TEXT("view_digest", replica->key.view_digest), LOG_U64("bytes", replica->charged_bytes),
                LOG_U64("leases", replica->n_leases),
                LOG_TEXT("kept_by_clients", replica->holding.is_kept ? "true" : "false"));
    unlink_replica(table, replica);
    user_pins_free(replica);
    table->replica_bytes -= replica->charged_bytes;
    run_destroy(replica->run);
    page_reader_end(replica->reader);
    mapped_files_close(replica->files);
    if (replica->holding.is_kept) {
        leave_remains(table, replica);
    } else {
        holding_fini(&replica->holding);
        segment_unref(replica->segment);
        quota_charge_end(&replica->descriptors);
    }
    plan_destroy(replica->plan);
    mapping_destroy(replica->mapping);
    free(replica);
}

/* Drops what has been idle too long and sets the timer for the next one. */
static void check_idle(void *data)
{
    struct replica_table *table = data;
    uint64_t now = clock_now_ns(), next = UINT64_MAX;
    struct replica *newer;
    for (struct replica *replica = table->oldest; replica; replica = newer) {
        newer = replica->newer;
        if (!is_idle(replica))
            continue;
        uint64_t due = replica->idle_since_ns + table->limits.idle_ttl_ms * NS_PER_MS;
        if (due <= now)
            drop(table, replica, "idle");
        else if (due < next)
            next = due;
    }
    table->awaits_idle = next != UINT64_MAX;
    if (table->awaits_idle)
        loop_timer_start(table->idle_timer, (next - now) / NS_PER_MS + IDLE_STEP_MS, 0);
    else
        loop_timer_stop(table->idle_timer);
}

/* No walk: what was idle before is due before. */
static void await_idle(struct replica_table *table, struct replica *replica)
{
    if (table->limits.idle_ttl_ms == 0) {
        drop(table, replica, "idle");
        return;
    }
    if (!table->awaits_idle)
        loop_timer_start(table->idle_timer, table->limits.idle_ttl_ms + 1, 0);
    table->awaits_idle = true;
}

struct replica_table *replica_table_create(struct loop *loop, enum replica_memory memory,
                                           const struct replica_limits *limits)
{
    struct replica_table *table = memory_alloc(sizeof *table);
    table->memory = memory;
    table->limits = *limits;
    table->holders = holders_create();
    table->idle_timer = loop_timer_create(loop, check_idle, table);
    table->look_timer = loop_timer_create(loop, on_look, table);
    return table;
}

void replica_table_destroy(struct replica_table *table)
{
    if (!table)
        return;
    while (table->oldest)
        drop(table, table->oldest, "shutdown");
    while (table->remains)
        remove_remains(table, &table->remains);
    holders_destroy(table->holders);
    loop_timer_destroy(table->idle_timer);
    loop_timer_destroy(table->look_timer);
    free(table);
}

/* A replica whose memory clients keep makes no room. */
static void evict(struct replica_table *table, uint64_t bytes)
{
    struct replica *newer;
    for (struct replica *replica = table->oldest; replica && replica_used_bytes(table) + bytes > table->limits.budget_bytes;
         replica = newer) {
        newer = replica->newer;
        if (is_evictable(replica))
            drop(table, replica, "evicted");
    }
}

void replica_table_configure(struct replica_table *table, const struct replica_limits *limits)
{
    table->limits = *limits;
    check_idle(table);
    evict(table, 0); /* a smaller budget evicts what it can */
}

uint64_t replica_used_bytes(const struct replica_table *table)
{
    return table->replica_bytes + table->reserved_bytes + table->remains_bytes;
}

const struct holders *replica_holders(const struct replica_table *table)
{
    return table->holders;
}

static uint64_t kept_bytes(const struct replica_table *table)
{
    uint64_t bytes = table->remains_bytes;
    for (const struct replica *replica = table->oldest; replica; replica = replica->newer)
        bytes += replica->holding.is_kept ? replica->charged_bytes : 0;
    return bytes;
}

/* What no eviction would free. */
static uint64_t fixed_bytes(const struct replica_table *table)
{
    uint64_t bytes = replica_used_bytes(table);
    for (const struct replica *replica = table->oldest; replica; replica = replica->newer)
        bytes -= is_evictable(replica) ? replica->charged_bytes : 0;
    return bytes;
}

static uint64_t pinned_bytes(const struct replica_table *table)
{
    uint64_t bytes = 0;
    for (const struct replica *replica = table->oldest; replica; replica = replica->newer)
        bytes += user_pins_any(replica) ? replica->charged_bytes : 0;
    return bytes;
}

uint64_t replica_most_bytes(const struct replica_table *table, uid_t uid)
{
    return quota_room(quota_is_privileged(uid) ? 0 : table->limits.kept_percent, table->limits.budget_bytes, 0, 0);
}

static int cannot_fit(const struct replica_table *table, uid_t uid, uint64_t bytes, uint64_t available, struct error *error)
{
    const struct budget_numbers numbers = {
        .memory = table->memory,
        .budget_bytes = table->limits.budget_bytes,
        .available_bytes = available,
        .most_bytes = replica_most_bytes(table, uid),
        .held_bytes = fixed_bytes(table) - table->reserved_bytes - kept_bytes(table),
        .pinned_bytes = pinned_bytes(table),
        .loading_bytes = table->reserved_bytes,
        .kept_bytes = kept_bytes(table),
        .is_for_others = quota_allows(0, table->limits.budget_bytes, fixed_bytes(table), 0, bytes),
        .holders = table->holders,
    };
    return budget_error_fail(&numbers, uid, bytes, error);
}

uint64_t replica_available_bytes(const struct replica_table *table, uid_t uid)
{
    unsigned kept_percent = quota_is_privileged(uid) ? 0 : table->limits.kept_percent;
    return quota_room(kept_percent, table->limits.budget_bytes, fixed_bytes(table), holders_bytes(table->holders, uid));
}

int replica_check_share(const struct replica *replica, uid_t uid, struct error *error)
{
    const struct replica_table *table = replica->table;
    uint64_t bytes = replica->charged_bytes, fixed = fixed_bytes(table) - bytes,
             own = holders_bytes(table->holders, uid) - bytes;
    unsigned kept_percent = quota_is_privileged(uid) ? 0 : table->limits.kept_percent;
    if (bytes == 0 || quota_allows(kept_percent, table->limits.budget_bytes, fixed, own, bytes))
        return 0;
    return cannot_fit(table, uid, bytes, quota_room(kept_percent, table->limits.budget_bytes, fixed, own), error);
}

int replica_reserve(struct replica_table *table, uid_t uid, uint64_t bytes, struct error *error)
{
    if (bytes > replica_available_bytes(table, uid))
        look_at_replicas(table, LOOKS_AT_ONCE);
    uint64_t available = replica_available_bytes(table, uid);
    if (bytes > available)
        return cannot_fit(table, uid, bytes, available, error);
    evict(table, bytes);
    table->reserved_bytes += bytes;
    holders_reserve(table->holders, uid, bytes);
    return 0;
}

void replica_reserve_anyway(struct replica_table *table, uid_t uid, uint64_t bytes)
{
    evict(table, bytes);
    table->reserved_bytes += bytes;
    holders_reserve(table->holders, uid, bytes);
}

/* At most n; of one user, or NULL = of all. */
static size_t drop_idle(struct replica_table *table, const uid_t *uid, size_t n)
{
    struct replica *newer;
    size_t n_dropped = 0;
    for (struct replica *replica = table->oldest; replica && n_dropped < n; replica = newer) {
        newer = replica->newer;
        if (!is_idle(replica) || (uid && replica->uid != *uid))
            continue;
        drop(table, replica, "descriptors");
        n_dropped++;
    }
    return n_dropped;
}

static struct replica *find_idle(const struct replica_table *table, const uid_t *uid)
{
    for (struct replica *replica = table->oldest; replica; replica = replica->newer) {
        const struct quota_charge *charge = &replica->mapping->arena.charge;
        if (is_idle(replica) && charge->amount && (!uid || charge->uid == *uid))
            return replica;
    }
    return NULL;
}

bool replica_make_room(struct replica_table *table, uid_t uid, const struct error *error, size_t *counter)
{
    struct replica *oldest;
    uint64_t freed = 0;
    if (error->kind == ERROR_KIND_TOO_MANY_OPEN_FILES || error->kind == ERROR_KIND_DESCRIPTORS_EXCEEDED) {
        *counter = 2 * *counter + 1;
        size_t n_dropped = drop_idle(table, &uid, *counter);
        return n_dropped + drop_idle(table, NULL, *counter - n_dropped) > 0;
    }
    if (error->kind != ERROR_KIND_METADATA_EXCEEDED)
        return false;
    while (freed < METADATA_PORTION_BYTES && ((oldest = find_idle(table, &uid)) || (oldest = find_idle(table, NULL)))) {
        freed += oldest->mapping->arena.charge.amount;
        drop(table, oldest, "metadata");
    }
    return freed > 0;
}

void replica_unreserve(struct replica_table *table, uid_t uid, uint64_t bytes)
{
    table->reserved_bytes -= bytes;
    holders_unreserve(table->holders, uid, bytes);
}

void replica_hand_on(struct replica_table *table, uid_t from, uid_t to, uint64_t bytes)
{
    holders_unreserve(table->holders, from, bytes);
    holders_reserve(table->holders, to, bytes);
}

struct replica *replica_add(struct replica_table *table, const struct replica *parts)
{
    struct replica *replica = memory_copy(parts, sizeof *parts);
    replica_unreserve(table, replica->uid, replica->charged_bytes);
    table->replica_bytes += replica->charged_bytes;
    replica->table = table;
    replica->n_leases = 0;
    holding_init(&replica->holding, table->holders, replica->charged_bytes);
    holding_pin(&replica->holding, replica->uid);
    link_newest(table, replica);
    return replica;
}

struct replica *replica_find(struct replica_table *table, const struct replica_key *key)
{
    for (struct replica *replica = table->newest; replica; replica = replica->older) {
        if (!why_private(replica) && !replica->files && replica_key_equal(&replica->key, key)) {
            unlink_replica(table, replica);
            link_newest(table, replica);
            return replica;
        }
    }
    return NULL;
}

bool replica_has_pages(const struct replica_table *table, const struct replica_key *key)
{
    const struct replica *replica = table->oldest;
    while (replica && !(has_locked_pages(replica) && replica_key_equal(&replica->key, key)))
        replica = replica->newer;
    return replica != NULL;
}

void replica_pin(struct replica *replica, uid_t uid)
{
    holding_pin(&replica->holding, uid);
}

void replica_unpin(struct replica *replica, uid_t uid)
{
    struct replica_table *table = replica->table;
    holding_unpin(&replica->holding, uid);
    if (!is_idle(replica))
        return;
    const char *why = why_private(replica);
    if (why) {
        drop(table, replica, why);
        return;
    }
    look_at(&replica->holding, replica->segment);
    if (replica->holding.is_kept)
        look_in(table, FIRST_LOOK_MS);
    replica->idle_since_ns = clock_now_ns();
    unlink_replica(table, replica); /* the end of a lease is a use, too */
    link_newest(table, replica);
    await_idle(table, replica);
}

void replica_lend(struct replica *replica, uid_t uid)
{
    replica->n_leases++;
    holding_give(&replica->holding, uid);
}

void replica_unlend(struct replica *replica, uid_t uid)
{
    replica->n_leases--;
    replica_unpin(replica, uid);
}

void replica_drop_stale(struct replica_table *table, const struct artifact *current)
{
    struct replica *newer;
    for (struct replica *replica = table->oldest; replica; replica = newer) {
        newer = replica->newer;
        if ((!is_idle(replica) && !is_only_pinned(replica)) ||
            strcmp(replica->mapping->artifact->reference, current->reference) != 0 ||
            strcmp(replica->key.source_key, current->source_key) == 0)
            continue;
        user_pins_free(replica);
        look_at(&replica->holding, replica->segment);
        drop(table, replica, "source_changed");
    }
}

struct replica_counts replica_release(struct replica_table *table, uid_t uid, const char *reference)
{
    struct replica_counts counts = {0};
    struct replica *newer;
    for (struct replica *replica = table->oldest; replica; replica = newer) {
        newer = replica->newer;
        if (reference && strcmp(replica->mapping->artifact->reference, reference) != 0)
            continue;
        if (replica->uid != uid && !quota_is_privileged(uid)) {
            counts.of_others++;
            continue;
        }
        if (is_only_pinned(replica)) {
            counts.pinned++;
            counts.pinned_bytes += replica_held_bytes(replica);
            continue;
        }
        if (!is_idle(replica)) {
            counts.kept++;
            counts.kept_bytes += replica_held_bytes(replica);
            continue;
        }
        counts.released++;
        counts.released_bytes += replica->holding.is_kept ? 0 : replica_held_bytes(replica);
        drop(table, replica, "released");
    }
    return counts;
}

uint64_t replica_budget_bytes(const struct replica_table *table)
{
    return table->limits.budget_bytes;
}

uint64_t replica_leases(const struct replica_table *table)
{
    uint64_t leases = 0;
    for (const struct replica *replica = table->oldest; replica; replica = replica->newer)
        leases += replica->n_leases;
    return leases;
}

struct replica *replica_oldest(struct replica_table *table)
{
    return table->oldest;
}

void replica_each(const struct replica_table *table, void (*fn)(void *data, const struct replica *replica), void *data)
{
    for (const struct replica *replica = table->oldest; replica; replica = replica->newer)
        fn(data, replica);
}
