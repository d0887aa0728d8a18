/* Quotas: how much of each resource that all users share is taken, and by whom.
 *
 * One rule for every kind, the dynamic threshold by which switches share their packet buffers (Choudhury and Hahne, 1998):
 *
 *     a user may have at most (100 - kept) / kept times what is left free for all others       (kept: a percentage)
 *
 * With kept = 10 a user who is alone gets 90 % of a resource, two who want all they can get have 47 % each, and there is
 * always room for one more. The rule needs no number of users, and nothing is taken back. Root and the daemon's
 * own user may take all that is left, except leases and groups, so that status, release and health are answered on a full
 * host. A kind may also have a hard limit per user.
 *
 * What a user has is counted by charges, which the holder of the resource embeds: a charge grows by quota_charge_add() and
 * ends, in full, by quota_charge_end(). Any thread; a charge itself belongs to one thread at a time. */
#ifndef BASE_QUOTA_H
#define BASE_QUOTA_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

enum quota_kind {
    QUOTA_CONNECTIONS, /* to the gRPC socket */
    QUOTA_CALLS,       /* requests from their arrival to their answer */
    QUOTA_LEASES,      /* connections of the hand-off socket, with or without memory */
    QUOTA_DESCRIPTORS, /* open files of the daemon: of connections, leases, part files and memory */
    QUOTA_METADATA,    /* bytes of requests, headers, indexes, mappings and plans */
    QUOTA_GROUPS,      /* that are assembling or running */
    QUOTA_UPLOADS,     /* files in the queue of uploads, also those that have failed */
    QUOTA_PREWARMS,    /* that run and that no call waits for */
    QUOTA_FOLDERS,     /* of artifacts, that are there or are being made */
    QUOTA_LENT,        /* bytes of addresses that clients' memory takes here while it is filled */
    QUOTA_LOCKED,      /* bytes of files that prewarms lock in the page cache */
    QUOTA_KINDS,
};

struct quota;

struct quota *quota_create(void);        /* without limits */
void quota_destroy(struct quota *quota); /* no charge may be left; accepts NULL */
/* Of the limit, so much is for root and the daemon's own user only, and so much (spared) is left for charges that are not
 * bulk. */
void quota_set_reserve(struct quota *quota, enum quota_kind kind, uint64_t reserve, uint64_t spared);
/* Of all users together, and of each one, root too (0 = no such limit). A limit that is lowered takes nothing back. */
void quota_set_limits(struct quota *quota, enum quota_kind kind, uint64_t limit, uint64_t limit_per_user);
void quota_set_kept(struct quota *quota, unsigned percent); /* 0 = one user may take everything */

/* Called, by the thread that asks and without locks, when there is too little of a kind: gives back what may be dropped.
 * False: there was nothing more. At most one per kind. */
void quota_set_reclaim(struct quota *quota, enum quota_kind kind, bool (*reclaim)(void *context), void *context);

struct quota_charge {    /* all zero: charges nothing, adds nothing */
    struct quota *quota; /* NULL = not counted: a command that works for itself */
    enum quota_kind kind;
    uid_t uid;
    bool is_bulk; /* many at once: it leaves what is spared */
    uint64_t amount;
};

/* RESOURCE_EXHAUSTED with the kind's reason tells what the user has, what all have, and the limit; nothing changed then. */
int quota_charge_add(struct quota_charge *charge, uint64_t amount, struct error *error);
/* What is there already, whatever the limits say: no user takes more until there is room again. */
void quota_charge_force(struct quota_charge *charge, uint64_t amount);
void quota_charge_subtract(struct quota_charge *charge, uint64_t amount); /* at most what it has */
void quota_charge_end(struct quota_charge *charge);                       /* may be used again afterwards */

/* The rule itself, for code that counts in another way: may a user who has `own` of the `taken` of `limit` take `amount` more?
 */
uint64_t quota_room(unsigned kept_percent, uint64_t limit, uint64_t taken, uint64_t own); /* the most it may take */
bool quota_allows(unsigned kept_percent, uint64_t limit, uint64_t taken, uint64_t own, uint64_t amount);
bool quota_is_privileged(uid_t uid); /* root, and the user this process runs as */

struct quota_user {
    uid_t uid;
    uint64_t amounts[QUOTA_KINDS];
};
/* Every user who has anything, in no particular order; fn runs under the lock and must not call back. */
void quota_each(struct quota *quota, void (*fn)(void *data, const struct quota_user *user), void *data);
uint64_t quota_taken(struct quota *quota, enum quota_kind kind);
uint64_t quota_bulk(struct quota *quota, enum quota_kind kind); /* of it, by charges that are bulk */
uint64_t quota_limit(struct quota *quota, enum quota_kind kind);
const char *quota_kind_name(enum quota_kind kind); /* "connections" */

#endif
