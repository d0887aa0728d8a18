/* The replica table: a list ordered by last use, a budget, and the rules by which replicas go. See replica.h.
 *
 * A look-up walks the list, the newest first. Every resolve asks for stale replicas, which a tree of artifacts finds without
 * a walk. Idle time is checked by one timer, set for the moment the oldest idle replica is due; another one asks whether what
 * clients have kept is free again, soon and then ever less often, since a process that ends lets go of its lease a moment
 * before its memory. */
#include "replica/replica.h"

#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/quota.h"
#include "base/text.h"
#include "observe/counters.h"
#include "observe/log.h"
#include "replica/holders.h"

enum { METADATA_PORTION_BYTES = 16 << 20 }; /* a request that lacks some is tried again for every so many bytes */
enum { IDLE_STEP_MS = 10 };                 /* between two walks that look for idle replicas */
enum { FIRST_LOOK_MS = 10, LAST_LOOK_MS = 1000, LOOKS_AT_ONCE = 256 };

struct replica_table {
    enum replica_memory memory;
    struct replica_limits limits;
    struct replica *oldest, *newest;
    void *artifacts;         /* tree of tsearch(3): struct replica_artifact by reference */
    struct replica *remains; /* dropped while clients still had their memory, by `newer`; the rest of them is gone */
    struct holders *holders;
    uint64_t replica_bytes, reserved_bytes, remains_bytes; /* changed by add_bytes() */
    uint64_t used_bytes;                                   /* atomic: their sum, which other threads ask for */
    size_t n_replicas;
    uint64_t n_leases; /* of all */
    struct replica *walk_next;
    uint64_t n_walks;
    struct loop_timer *idle_timer, *look_timer;
    bool awaits_idle; /* idle_timer runs */
    uint64_t look_ms; /* until the next look; 0 = nothing is kept */
};

struct replica_artifact {
    const char *reference; /* owned */
    LIST_HEAD(, replica_version) versions;
};

struct replica_version {
    struct replica_artifact *artifact;
    char source_key[DIGEST_HEX_CHARS + 1];
    LIST_HEAD(, replica) replicas;
    LIST_ENTRY(replica_version) in_artifact;
};

/* A pin is also one of the replica's holding, which does the counting. */
struct user_pin {
    struct user_pin *next;
    uid_t uid;
    char *label; /* NULL = a client's */
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

/* Why no other user is to have it, NULL = it is for all. */
static const char *why_private(const struct replica *replica)
{
    return replica->files && !has_locked_pages(replica)   ? "files_given_back"
           : replica->files                               ? NULL
           : segment_is_lent(replica->segment)            ? "client_memory_filled"
           : artifact_is_racy(replica->mapping->artifact) ? "racy_source"
                                                          : NULL;
}

bool user_pins_any(const struct replica *replica)
{
    return replica->user_pins != NULL;
}

uint32_t user_pins_count(const struct replica *replica)
{
    uint32_t n = 0;
    for (const struct user_pin *pin = replica->user_pins; pin; pin = pin->next)
        n++;
    return n;
}

static void free_pin(struct user_pin **link)
{
    struct user_pin *pin = *link;
    *link = pin->next;
    free(pin->label);
    free(pin);
}

static void unpin_all(struct replica *replica)
{
    while (replica->user_pins) {
        holding_unpin(&replica->holding, replica->user_pins->uid);
        free_pin(&replica->user_pins);
    }
}

/* Nothing has it but users who want it to stay. */
static bool is_only_pinned(const struct replica *replica)
{
    return !is_idle(replica) && replica->holding.n_pins == user_pins_count(replica);
}

static void unlink_replica(struct replica_table *table, struct replica *replica)
{
    table->walk_next = table->walk_next == replica ? replica->newer : table->walk_next;
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

/* --- by artifact ------------------------------------------------------------------------------------------------------ */

static int compare_references(const void *a, const void *b)
{
    return strcmp(((const struct replica_artifact *)a)->reference, ((const struct replica_artifact *)b)->reference);
}

/* NULL: it has no replica. */
static struct replica_artifact *find_artifact(const struct replica_table *table, const char *reference)
{
    void *const *found = tfind(&(struct replica_artifact){.reference = reference}, &table->artifacts, compare_references);
    return found ? *found : NULL;
}

static struct replica_version *get_version(struct replica_table *table, const struct replica *replica)
{
    const char *reference = replica->mapping->artifact->reference;
    struct replica_artifact *artifact = find_artifact(table, reference);
    struct replica_version *version = NULL;
    if (!artifact) {
        artifact = memory_alloc(sizeof *artifact);
        artifact->reference = memory_copy_text(reference);
        if (!tsearch(artifact, &table->artifacts, compare_references))
            abort();
    }
    LIST_FOREACH (version, &artifact->versions, in_artifact)
        if (strcmp(version->source_key, replica->key.source_key) == 0)
            return version;
    version = memory_alloc(sizeof *version);
    version->artifact = artifact;
    memcpy(version->source_key, replica->key.source_key, sizeof version->source_key);
    LIST_INSERT_HEAD(&artifact->versions, version, in_artifact);
    return version;
}

static void link_version(struct replica_table *table, struct replica *replica)
{
    replica->version = get_version(table, replica);
    LIST_INSERT_HEAD(&replica->version->replicas, replica, in_version);
}

/* The last one of a version takes it along. */
static void unlink_version(struct replica_table *table, struct replica *replica)
{
    struct replica_version *version = replica->version;
    struct replica_artifact *artifact = version->artifact;
    LIST_REMOVE(replica, in_version);
    if (!LIST_EMPTY(&version->replicas))
        return;
    LIST_REMOVE(version, in_artifact);
    free(version);
    if (!LIST_EMPTY(&artifact->versions))
        return;
    tdelete(artifact, &table->artifacts, compare_references);
    memory_free(artifact->reference);
    free(artifact);
}

/* More, or less by a negative number. */
static void add_bytes(struct replica_table *table, uint64_t *part, uint64_t bytes)
{
    *part += bytes;
    __atomic_add_fetch(&table->used_bytes, bytes, __ATOMIC_RELAXED);
}

/* --- memory that clients keep --------------------------------------------------------------------------------------- */

static void look_in(struct replica_table *table, uint64_t ms)
{
    table->look_ms = ms;
    loop_timer_start(table->look_timer, ms, 0);
}

/* With its last pin gone its memory is either free or kept. */
static void look_at(struct replica *replica)
{
    if (holding_was_given(&replica->holding) && replica->holding.n_pins == 0)
        holding_set_kept(&replica->holding, device_is_kept(replica->segment));
}

static void free_memory(struct replica *replica)
{
    holding_fini(&replica->holding);
    segment_unref(replica->segment);
    quota_charge_end(&replica->descriptors);
    free(replica);
}

/* At most so many pieces of memory: a call to the kernel for each. What was looked at goes to the end of the list, so that
 * the next look sees the others. */
static void look_at_remains(struct replica_table *table, size_t n)
{
    struct replica **link = &table->remains, *looked = NULL, **last = &looked, *one;
    for (; (one = *link) && n; n--) {
        *link = one->newer;
        look_at(one);
        if (one->holding.is_kept) {
            one->newer = NULL;
            *last = one;
            last = &one->newer;
        } else {
            add_bytes(table, &table->remains_bytes, -one->charged_bytes);
            free_memory(one);
        }
    }
    while (*link)
        link = &(*link)->newer;
    *link = looked;
}

/* What is kept, of replicas and of remains. */
static uint64_t look_at_replicas(struct replica_table *table, size_t n)
{
    uint64_t bytes = 0;
    for (struct replica *replica = table->oldest; replica; replica = replica->newer) {
        if (replica->holding.is_kept && n) {
            look_at(replica);
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
    counters_add(counters_find(COUNTER_DROPPED, why), 1);
    log_work_of("replica_dropped", replica->uid, LOG_TEXT("reason", why),
                LOG_TEXT("artifact", replica->mapping->artifact->reference),
                LOG_TEXT("view_digest", replica->key.view_digest), LOG_U64("bytes", replica->charged_bytes),
                LOG_U64("leases", replica->n_leases),
                LOG_TEXT("kept_by_clients", replica->holding.is_kept ? "true" : "false"));
    unlink_replica(table, replica);
    unlink_version(table, replica);
    unpin_all(replica);
    add_bytes(table, &table->replica_bytes, -replica->charged_bytes);
    table->n_replicas--;
    table->n_leases -= replica->n_leases;
    run_destroy(replica->run);
    page_reader_end(replica->reader);
    mapped_files_close(replica->files);
    plan_destroy(replica->plan);
    mapping_destroy(replica->mapping);
    if (replica->holding.is_kept) {
        replica->newer = table->remains;
        table->remains = replica;
        add_bytes(table, &table->remains_bytes, replica->charged_bytes);
    } else {
        free_memory(replica);
    }
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
    for (struct replica *next; table->remains; table->remains = next) {
        next = table->remains->newer;
        free_memory(table->remains);
    }
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
    return __atomic_load_n(&table->used_bytes, __ATOMIC_RELAXED);
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

static int cannot_fit(const struct replica_table *table, uid_t uid, uint64_t bytes, uint64_t available, struct error *error)
{
    const struct budget_numbers numbers = {
        .memory = table->memory,
        .budget_bytes = table->limits.budget_bytes,
        .available_bytes = available,
        .most_bytes =
            quota_room(quota_is_privileged(uid) ? 0 : table->limits.kept_percent, table->limits.budget_bytes, 0, 0),
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

static int check_share(const struct replica *replica, uid_t uid, struct error *error)
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
    add_bytes(table, &table->reserved_bytes, bytes);
    holders_reserve(table->holders, uid, bytes);
    return 0;
}

void replica_reserve_anyway(struct replica_table *table, uid_t uid, uint64_t bytes)
{
    evict(table, bytes);
    add_bytes(table, &table->reserved_bytes, bytes);
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
    add_bytes(table, &table->reserved_bytes, -bytes);
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
    add_bytes(table, &table->replica_bytes, replica->charged_bytes);
    table->n_replicas++;
    replica->table = table;
    replica->n_leases = 0;
    holding_init(&replica->holding, table->holders, replica->charged_bytes);
    holding_pin(&replica->holding, replica->uid);
    link_newest(table, replica);
    link_version(table, replica);
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
    look_at(replica);
    if (replica->holding.is_kept)
        look_in(table, FIRST_LOOK_MS);
    replica->idle_since_ns = clock_now_ns();
    unlink_replica(table, replica); /* the end of a lease is a use, too */
    link_newest(table, replica);
    /* no walk: what was idle before is due before */
    if (table->limits.idle_ttl_ms == 0) {
        drop(table, replica, "idle");
        return;
    }
    if (!table->awaits_idle)
        loop_timer_start(table->idle_timer, table->limits.idle_ttl_ms + 1, 0);
    table->awaits_idle = true;
}

void replica_lend(struct replica *replica, uid_t uid)
{
    replica->n_leases++;
    replica->table->n_leases++;
    holding_give(&replica->holding, uid);
}

void replica_unlend(struct replica *replica, uid_t uid)
{
    replica->n_leases--;
    replica->table->n_leases--;
    replica_unpin(replica, uid);
}

static void drop_unused(struct replica_table *table, struct replica_version *version)
{
    struct replica *next;
    for (struct replica *replica = LIST_FIRST(&version->replicas); replica; replica = next) {
        next = LIST_NEXT(replica, in_version); /* without one, `version` goes with it */
        if (!is_idle(replica) && !is_only_pinned(replica))
            continue;
        unpin_all(replica);
        look_at(replica);
        drop(table, replica, "source_changed");
    }
}

void replica_drop_stale(struct replica_table *table, const struct artifact *current)
{
    const struct replica_artifact *artifact = find_artifact(table, current->reference);
    struct replica_version *next;
    for (struct replica_version *version = artifact ? LIST_FIRST(&artifact->versions) : NULL; version; version = next) {
        next = LIST_NEXT(version, in_artifact); /* without one, `artifact` may go with it */
        if (strcmp(version->source_key, current->source_key) != 0)
            drop_unused(table, version);
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
    return table->n_leases;
}

size_t replica_count(const struct replica_table *table)
{
    return table->n_replicas;
}

void replica_each(const struct replica_table *table, void (*fn)(void *data, const struct replica *replica), void *data)
{
    for (const struct replica *replica = table->oldest; replica; replica = replica->newer)
        fn(data, replica);
}

void replica_walk_begin(struct replica_table *table)
{
    table->n_walks++;
    table->walk_next = table->oldest;
}

/* One that is used meanwhile is the newest then, so that the walk comes to it again. */
const struct replica *replica_walk_next(struct replica_table *table)
{
    struct replica *replica = table->walk_next;
    while (replica && replica->walked == table->n_walks)
        replica = replica->newer;
    table->walk_next = replica ? replica->newer : NULL;
    if (replica)
        replica->walked = table->n_walks;
    return replica;
}

/* --- pins of users -------------------------------------------------------------------------------------------------- */

int user_pins_add(struct replica *replica, uid_t uid, const char *label, struct error *error)
{
    char shown[TEXT_NAME_CHARS];
    const char *reference = replica->mapping->artifact->reference;
    struct user_pin **link = &replica->user_pins;
    for (; *link; link = &(*link)->next) {
        const char *other = (*link)->label;
        if ((*link)->uid == uid && (other && label ? strcmp(other, label) == 0 : other == label))
            return 0;
    }
    text_escape(reference, strlen(reference), shown);
    if (why_private(replica))
        return fail(error, ERROR_FAILED_PRECONDITION, "CANNOT_PIN", "%s cannot be pinned: %s", shown,
                    replica->files ? "it is handed out as pages of its files, of which none are locked; leave out mapped "
                                     "memory, or raise memory.locked_pages_budget"
                                   : "its files were written a moment ago, or its memory is a client's; try again later");
    size_t n = 0;
    for (const struct replica *other = replica->table->oldest; other; other = other->newer)
        for (const struct user_pin *of_other = other->user_pins; of_other; of_other = of_other->next)
            n += of_other->uid == uid;
    if (n >= USER_PINS_MAX)
        return fail(error, ERROR_RESOURCE_EXHAUSTED, "TOO_MANY_PINS", "user %u has pinned %d replicas already; unpin some",
                    (unsigned)uid, USER_PINS_MAX);
    if (check_share(replica, uid, error) != 0)
        return error_prefix(error, "%s is loaded but not pinned", shown);
    struct user_pin *pin = memory_alloc(sizeof *pin);
    *pin = (struct user_pin){.next = replica->user_pins, .uid = uid, .label = memory_copy_text(label)};
    replica->user_pins = pin;
    replica_pin(replica, uid);
    return 0;
}

/* Removing a pin may drop its replica, and with it others that are due: walks over the table begin anew after each. */
struct wish { /* which pins */
    uid_t uid;
    bool is_everybodys;
    const char *reference;                                  /* NULL = all */
    bool (*is_wanted)(const void *data, const char *label); /* not NULL: those of which it says no, of all users */
    const void *data;
};

/* NULL: there is none. */
static struct user_pin **find_meant(struct replica *replica, const struct wish *wish)
{
    bool is_named = !wish->reference || strcmp(replica->mapping->artifact->reference, wish->reference) == 0;
    for (struct user_pin **link = &replica->user_pins; *link; link = &(*link)->next) {
        const struct user_pin *pin = *link;
        if (wish->is_wanted ? pin->label && !wish->is_wanted(wish->data, pin->label)
                            : is_named && (wish->is_everybodys || pin->uid == wish->uid))
            return link;
    }
    return NULL;
}

static struct user_pins_removed remove_all_meant(struct replica_table *table, const struct wish *wish)
{
    struct user_pins_removed removed = {0};
    struct replica *replica = table->oldest;
    while (replica) {
        struct user_pin **link = find_meant(replica, wish);
        if (!link) {
            replica = replica->newer;
            continue;
        }
        removed.replicas++;
        removed.bytes += replica_held_bytes(replica);
        /* the replica may be gone with the last of them */
        while (link) {
            uid_t uid = (*link)->uid;
            free_pin(link);
            link = find_meant(replica, wish);
            replica_unpin(replica, uid);
        }
        replica = table->oldest;
    }
    return removed;
}

struct user_pins_removed user_pins_remove(struct replica_table *table, uid_t uid, const char *reference)
{
    const struct wish own = {.uid = uid, .is_everybodys = quota_is_privileged(uid), .reference = reference};
    const struct wish any = {.is_everybodys = true, .reference = reference};
    struct user_pins_removed removed = remove_all_meant(table, &own);
    for (struct replica *replica = table->oldest; replica; replica = replica->newer)
        removed.of_others += find_meant(replica, &any) != NULL;
    return removed;
}

void user_pins_remove_labels(struct replica_table *table, bool (*is_wanted)(const void *data, const char *label),
                             const void *data)
{
    const struct wish wish = {.is_wanted = is_wanted, .data = data};
    remove_all_meant(table, &wish);
}
