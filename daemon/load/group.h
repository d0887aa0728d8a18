/* Groups of ranks that load together: which are here, which are on other hosts, which are missing, and how long ranks wait.
 *
 *                 first rank joins: timer starts
 *   (nothing) ------------------------------------> ASSEMBLING --every rank is here--> RUNNING --last rank ends--> (nothing)
 *                                                     |     |
 *                         timer, or a rank declines --+     +-- last rank leaves --> (nothing)
 *                                                     v
 *                                                  DISSOLVED --every missing rank was told, or one more timeout--> (nothing)
 *
 * One timer per group, from its first join; no rank waits longer. A rank that comes too late is told so at once, by a group
 * that has dissolved or by a running one that lost it. Where all ranks must agree, the odd one is refused, the others keep
 * waiting. A rank with another version of the same reference ends the wait: the source has changed, so those who wait have
 * nothing to wait for. A rank number is taken once: the second one to claim it is refused, unless it is the first one again,
 * whose client has sent its request twice. A group id may be used again as soon as its ranks have ended. Groups are per
 * owner: a user, or GROUP_OWNER_SHARED for those who may share theirs.
 *
 * A group with a domain may span the hosts of that domain (rank_registry.h). Ranks elsewhere are neither missing nor members:
 * the group is complete here when every rank is here or elsewhere, and every rank here is known to the others. Entries that
 * were there first win: a rank that another host has, or that differs from all that others said before it, is refused. While
 * the registry is away, missing ranks are waited for at most GROUP_AWAY_MS.
 *
 * Knows nothing of loads. Loop thread only. */
#ifndef GROUP_H
#define GROUP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/loop.h"
#include "base/quota.h"
#include "base/state.h"
#include "load/rank_registry.h"
#include "plan/reason.h"

enum { GROUP_AWAY_MS = 3000 };

#define GROUP_OWNER_SHARED ((uid_t)-1) /* no user has this number */

struct group_terms { /* what every rank of a group must say alike; borrowed for the call */
    uid_t uid;       /* who asks, and pays for the group */
    uid_t owner;     /* whose groups these are: ids of different owners never meet */
    const char *id;
    const char *purpose; /* groups of different purposes never meet: "load", "explain" */
    uint32_t world_size;
    const char *reference; /* of the artifact, for messages */
    const char *artifact;  /* its version: ranks of one reference may have resolved different ones */
    const char
        *files; /* what the files look like: it stays when the daemon does not watch them for a moment, unlike the version */
    const char *policy;         /* every choice that decides which executor runs, as text */
    const char *domain;         /* of the hosts that it may span; NULL = this one alone */
    const char *shared_version; /* of the artifact, the same on all of them; NULL like it */
    uint64_t timeout_ms;        /* the first rank's counts */
};

struct group;
extern const struct state_machine group_machine, group_slot_machine;

struct group_member { /* embedded by the caller, who keeps it until the group lets go of it */
    uint32_t rank;
    const char *holder;         /* load id, for messages */
    const char *attempt;        /* what tells its request from all others; NULL = nothing does */
    const char *needs;          /* what ranks on other hosts are told that it will read, see rank_needs.h; may be NULL */
    struct group *group;        /* NULL while in none */
    struct group_member *first; /* after GROUP_AGAIN: who has the rank */
};

struct group_events {
    /* Every rank is here. The members stay until each has left or ended. */
    void (*complete)(void *data, struct group *group);
    /* The member is out of the group, which will not assemble; problem says why. */
    void (*dissolved)(void *data, struct group_member *member, const struct reason *problem);
    /* The member is out of the group, whose ranks on other hosts do not allow it. As GROUP_REFUSED, but later. */
    void (*refused)(void *data, struct group_member *member, const struct error *error);
};

struct group_table;

/* quota counts QUOTA_GROUPS; NULL = groups are not counted. */
struct group_table *group_table_create(struct loop *loop, struct quota *quota, const struct group_events *events,
                                       void *data);
void group_table_destroy(struct group_table *table); /* no member may be left; accepts NULL */
/* From now on groups may span hosts; before the first of them. Borrowed, and listened to. */
void group_table_join_hosts(struct group_table *table, struct rank_registry *registry);

enum group_answer {
    GROUP_JOINED,  /* `complete` or `dissolved` follows, perhaps before the call returns, unless the member leaves */
    GROUP_LATE,    /* do without; `problem` says why */
    GROUP_REFUSED, /* error: ALREADY_EXISTS, FAILED_PRECONDITION, INVALID_ARGUMENT, RESOURCE_EXHAUSTED */
    GROUP_AGAIN,   /* member->first is in the group with the same attempt: wait for what becomes of it */
};

enum group_answer group_join(struct group_table *table, const struct group_terms *terms, struct group_member *member,
                             struct reason *problem, struct error *error);
/* This rank needs nothing of the group any more, but is not missing either: it has what it wants. */
void group_excuse(struct group_table *table, const struct group_terms *terms, const struct group_member *member);
/* This rank will not load with the others: the ranks that wait are told at once. */
void group_decline(struct group_table *table, const struct group_terms *terms, uint32_t rank, const char *why);

void group_leave(struct group_member *member); /* it is gone; a running group goes on without */
void group_end(struct group_member *member);   /* it has finished */
/* A complete group cannot run after all: its other members are dissolved, `except` (optional) just leaves. */
void group_dissolve(struct group *group, struct group_member *except, const struct reason *problem);

/* The member with this rank, NULL where a rank is excused, gone or on another host. */
struct group_member *group_find(const struct group *group, uint32_t rank);
bool group_is_elsewhere(const struct group *group, uint32_t rank); /* on another host */
/* What a rank on another host will read, see rank_needs.h; NULL = it does not say. Valid for the call of `complete` alone. */
const char *group_needs_elsewhere(const struct group *group, uint32_t rank);
const struct group_terms *group_terms(const struct group *group); /* of its first rank */

#endif
