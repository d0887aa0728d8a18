/* Replicas: committed, read-only memory of one view of one artifact, shared by every client that asks for the same bytes,
 * and the budget they and the loads in flight live under.
 *
 *     reserve (before a byte is read) -> add (commit: the one switch that publishes) -> pin/unpin (grants and leases)
 *         -> idle -> evicted when memory is needed (least recently used first), idle too long, stale, or released
 *
 * A client may keep what it was given beyond its lease: as a descriptor, also one that lies unread in a socket, or as a
 * mapping. Such memory is charged to the budget, and to its receiver, until no process has it any more, whether its replica
 * is still there or not; it is looked at when the last pin goes, by a timer, and when memory is wanted.
 *
 * What a user holds, keeps and loads is limited by the rule of base/quota.h. Replicas without holders count for no user.
 *
 * Loop thread only, except for replica_used_bytes(). The table owns its replicas; callers borrow them while they hold a pin. */
#ifndef REPLICA_REPLICA_H
#define REPLICA_REPLICA_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "base/error.h"
#include "device/device.h"
#include "execute/engine.h"
#include "integrity/verify.h"
#include "plan/plan.h"
#include "replica/holders.h"
#include "replica/mapped_files.h"
#include "replica/page_reader.h"
#include "resolve/mapping.h"

/* What makes two requests the same: the source's key, the view's digest (which covers offsets and alignment), the device, and
 * the user where clients can write into the memory. */
struct replica_key {
    char source_key[DIGEST_HEX_CHARS + 1];
    char view_digest[DIGEST_HEX_CHARS + 1];
    const struct device *device; /* whose memory */
    uid_t sharers;               /* the one user who may share it, or REPLICA_SHARED_BY_ALL */
};
#define REPLICA_SHARED_BY_ALL ((uid_t)-1) /* no user has this number */
struct replica_key replica_key_of(const struct mapping *mapping, const struct device *device, uid_t sharers);
bool replica_key_equal(const struct replica_key *a, const struct replica_key *b);

struct replica_table;

/* One whose segment is a client's memory is never found and goes with its last pin; so do one of a racy artifact and one that
 * is the part files themselves, for which there is no memory and no run, unless pages of them are locked. */
struct replica {                 /* const after replica_add() except for the counters */
    struct replica_table *table; /* that it lives in */
    struct replica_key key;
    struct mapping *mapping;    /* owned; holds the artifact */
    struct plan *plan;          /* owned */
    struct segment *segment;    /* one reference; NULL = it is files */
    struct mapped_files *files; /* owned; NULL = it is memory */
    struct page_reader *reader; /* owned: of the files, may be NULL */
    struct verdict verdict;     /* what vouches for the bytes */
    struct run *run;            /* owned: lets later loads copy instead of read */
    uint64_t charged_bytes;
    struct quota_charge descriptors; /* of the memory */
    struct holding holding;          /* pins: grants not yet redeemed + leases */
    uint32_t n_leases;               /* open hand-off connections */
    struct peer *leases;             /* handoff.c's: the newest of them, the others stand behind it; NULL = none */
    uid_t uid;                       /* whose load it was */
    uint64_t idle_since_ns;
    struct user_pin *user_pins;    /* below */
    uint64_t walked;               /* by the walk of that number */
    struct replica *newer, *older; /* by last use */
    struct replica_version *version;
    LIST_ENTRY(replica) in_version; /* of its artifact */
};

const char *replica_memory_name(const struct replica *replica); /* "thp", or "mapped" of files */

struct replica_limits {
    uint64_t budget_bytes, idle_ttl_ms;
    unsigned kept_percent; /* what one user leaves to others, see limits.kept_for_others */
};

struct replica_table *replica_table_create(struct loop *loop, enum replica_memory memory,
                                           const struct replica_limits *limits);
void replica_table_configure(struct replica_table *table, const struct replica_limits *limits); /* may evict */
void replica_table_destroy(
    struct replica_table *table); /* drops every replica, leased or not: clients keep their mappings */

/* Sets bytes aside for a user's load, evicting what no client holds. RESOURCE_EXHAUSTED tells needed, available and who holds
 * the rest; nothing is evicted then. */
int replica_reserve(struct replica_table *table, uid_t uid, uint64_t bytes, struct error *error);
/* The same of what is in memory already; others may have the rest. */
void replica_reserve_anyway(struct replica_table *table, uid_t uid, uint64_t bytes);
void replica_unreserve(struct replica_table *table, uid_t uid, uint64_t bytes);          /* the load failed */
void replica_hand_on(struct replica_table *table, uid_t from, uid_t to, uint64_t bytes); /* it is another user's load now */
/* The most that this user can reserve now. */
uint64_t replica_available_bytes(const struct replica_table *table, uid_t uid);
/* A replica holds descriptors, its memory's and those of the files it was read from, and metadata of the user who loaded it,
 * its mapping and plan. When `error` says that there is none left of either, or none for this user, some replicas go that
 * are not held, this user's first, least recently used first; for descriptors more with every call of the same counter, 0 at
 * first. True: try again. */
bool replica_make_room(struct replica_table *table, uid_t uid, const struct error *error, size_t *counter);

/* Publishes. Takes the replica's parts; charged_bytes were reserved before, for parts->uid, who gets one pin. */
struct replica *replica_add(struct replica_table *table, const struct replica *parts);
struct replica *replica_find(struct replica_table *table, const struct replica_key *key); /* not pinned; NULL when absent */
/* Pages of the same files that are locked already. */
bool replica_has_pages(const struct replica_table *table, const struct replica_key *key);
uint64_t replica_held_bytes(const struct replica *replica); /* of memory, or of pages of files that are locked for it */
void replica_pin(struct replica *replica, uid_t uid);
void replica_unpin(struct replica *replica, uid_t uid);  /* a pin of this user; may destroy it */
void replica_lend(struct replica *replica, uid_t uid);   /* a user who has a pin is given the memory: one lease more */
void replica_unlend(struct replica *replica, uid_t uid); /* its lease has ended, and so does its pin */

/* Drops replicas of this artifact with another identity than the current one, but those that a client or a load has. */
void replica_drop_stale(struct replica_table *table, const struct artifact *current);

struct replica_counts {
    uint64_t released, released_bytes, kept, kept_bytes, of_others;
    uint64_t pinned, pinned_bytes; /* by users, and by nothing else */
};
/* reference NULL = all. Pinned ones are kept, and those that other users have loaded or used, unless it is root or the
 * daemon's own user who asks. */
struct replica_counts replica_release(struct replica_table *table, uid_t uid, const char *reference);

/* Replicas, reservations, and what clients keep. Any thread. */
uint64_t replica_used_bytes(const struct replica_table *table);
/* Looks again at what clients have kept beyond their leases; what they still keep. */
uint64_t replica_kept_bytes(struct replica_table *table);
const struct holders *replica_holders(const struct replica_table *table);
uint64_t replica_budget_bytes(const struct replica_table *table);
uint64_t replica_leases(const struct replica_table *table);
size_t replica_count(const struct replica_table *table);
/* Least recently used first. */
void replica_each(const struct replica_table *table, void (*fn)(void *data, const struct replica *replica), void *data);

/* The same in several turns of the loop, one walk at a time: each replica once, and those that go or come meanwhile or not. */
void replica_walk_begin(struct replica_table *table);
const struct replica *replica_walk_next(struct replica_table *table); /* NULL: that was all */

/* --- pins of users: neither idle time nor pressure nor a release of everything drops a pinned replica.
 *
 * A user pins a replica at most once by request, and once more by the configuration (whose pins are the daemon's own user's).
 * While it is pinned the memory counts as held by that user, under the rule of base/quota.h. Pins end by being removed, and
 * with their replica: when its source has changed, and with the daemon. */
enum { USER_PINS_MAX = 1024 }; /* of one user in one table; each costs mapping and plan of its replica */

/* label: of an entry of the configuration; NULL = asked for by a client. Does nothing when there is such a pin already. The
 * user holds another pin (replica_pin()) meanwhile. RESOURCE_EXHAUSTED: too many, or more than the user's share;
 * FAILED_PRECONDITION: no request would find the replica. */
int user_pins_add(struct replica *replica, uid_t uid, const char *label, struct error *error);
bool user_pins_any(const struct replica *replica);
uint32_t user_pins_count(const struct replica *replica);

struct user_pins_removed {
    uint64_t replicas, bytes, of_others; /* of_others: pinned by other users, and left */
};
/* reference NULL = all. Of this user; for root and the daemon's own user, of all users. Replicas may go. */
struct user_pins_removed user_pins_remove(struct replica_table *table, uid_t uid, const char *reference);
/* Those whose labels are not wanted any more. */
void user_pins_remove_labels(struct replica_table *table, bool (*is_wanted)(const void *data, const char *label),
                             const void *data);

#endif
