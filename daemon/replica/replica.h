/* Replicas: committed, read-only memory of one view of one artifact, shared by every client that asks for the same bytes,
 * and the budget they and the loads in flight live under.
 *
 *     reserve (before a byte is read) -> add (commit: the one switch that publishes) -> pin/unpin (grants and leases)
 *         -> idle -> evicted when memory is needed (least recently used first), idle too long, stale, or released
 *
 * Loop thread only. The table owns its replicas; callers borrow them while they hold a pin. */
#ifndef REPLICA_REPLICA_H
#define REPLICA_REPLICA_H

#include <stdint.h>

#include "base/error.h"
#include "device/device.h"
#include "execute/engine.h"
#include "execute/verify.h"
#include "plan/plan.h"
#include "resolve/mapping.h"

/* What makes two requests the same: the source's identity and the view's digest (which covers offsets and alignment). */
struct replica_key {
    char identity[DIGEST_HEX_CHARS + 1];
    char view_digest[DIGEST_HEX_CHARS + 1];
    const struct device *device; /* whose memory */
};
struct replica_key replica_key_of(const struct mapping *mapping, const struct device *device);
bool replica_key_equal(const struct replica_key *a, const struct replica_key *b);

struct replica_table;

/* One whose segment is a client's memory is never found and goes with its last pin. */
struct replica {                 /* const after replica_add() but for the counters */
    struct replica_table *table; /* that it lives in */
    struct replica_key key;
    struct mapping *mapping; /* owned; holds the artifact */
    struct plan *plan;       /* owned */
    struct segment *segment; /* one reference */
    struct verdict verdict;  /* what vouches for the bytes */
    struct run *run;         /* owned: lets later loads copy instead of read */
    uint64_t charged_bytes;
    uint32_t n_pins;   /* grants not yet redeemed + leases */
    uint32_t n_leases; /* open hand-off connections */
    uint64_t idle_since_ns;
    struct replica *newer, *older; /* by last use */
};

struct replica_table *replica_table_create(struct loop *loop, uint64_t host_budget_bytes, uint64_t idle_ttl_ms);
void replica_table_destroy(
    struct replica_table *table); /* drops every replica, leased or not: clients keep their mappings */
/* For messages: the kind of memory, and the key that sets its budget. Unless told: "host", "memory.host_budget". */
void replica_table_name(struct replica_table *table, const char *memory, const char *budget_key);
void replica_table_configure(struct replica_table *table, uint64_t host_budget_bytes, uint64_t idle_ttl_ms); /* may evict */

/* Sets bytes aside for a load, evicting what nobody holds. RESOURCE_EXHAUSTED tells needed, available and what holds the
 * rest; nothing is evicted then. */
int replica_reserve(struct replica_table *table, uint64_t bytes, struct error *error);
void replica_unreserve(struct replica_table *table, uint64_t bytes); /* the load failed */
/* The most that can be reserved now. */
uint64_t replica_available_bytes(const struct replica_table *table);
/* A replica holds descriptors: its memory's and those of the files it was read from. When `error` says that there are none
 * left, some that nobody holds go, more with every call of the same counter, least recently used first. True: try again. */
bool replica_free_descriptors(struct replica_table *table, const struct error *error, size_t *counter);

/* Publishes. Takes the replica's parts; charged_bytes were reserved before. The caller gets one pin. */
struct replica *replica_add(struct replica_table *table, const struct replica *parts);
struct replica *replica_find(struct replica_table *table, const struct replica_key *key); /* not pinned; NULL when absent */
void replica_pin(struct replica *replica);
void replica_unpin(struct replica_table *table, struct replica *replica); /* may destroy it */

/* Drops unpinned replicas of this artifact with another identity than the current one. */
void replica_drop_stale(struct replica_table *table, const struct artifact *current);

struct replica_counts {
    uint64_t released, released_bytes, kept;
};
/* reference NULL = all. Pinned ones are kept. */
struct replica_counts replica_release(struct replica_table *table, const char *reference);

uint64_t replica_used_bytes(const struct replica_table *table); /* replicas and reservations */
uint64_t replica_budget_bytes(const struct replica_table *table);
uint64_t replica_leases(const struct replica_table *table);
/* Least recently used first. */
void replica_each(const struct replica_table *table, void (*fn)(void *data, const struct replica *replica), void *data);

#endif
