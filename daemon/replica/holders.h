/* Who holds how much of one budget.
 *
 * A holding is one piece of memory and the users who keep it from being used for something else:
 *
 *     pins of a user (a token, a lease, a load's last steps)          the user holds it
 *     no lease pins it, but some process still has it open or mapped  users that were given it since it was last seen to be
 *                                                                     free keep it
 *
 * Memory that several users hold counts in full for each of them. What a load in flight has set aside is its user's, too.
 * Loop thread only. */
#ifndef REPLICA_HOLDERS_H
#define REPLICA_HOLDERS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

struct holders; /* the users of one budget */

struct holders_user {
    uid_t uid;
    uint64_t held_bytes;     /* of what it pins */
    uint64_t kept_bytes;     /* of what it was given and did not give back */
    uint64_t reserved_bytes; /* of its loads in flight */
};

struct holders *holders_create(void);
void holders_destroy(struct holders *holders); /* accepts NULL */
void holders_reserve(struct holders *holders, uid_t uid, uint64_t bytes);
void holders_unreserve(struct holders *holders, uid_t uid, uint64_t bytes);
uint64_t holders_bytes(const struct holders *holders, uid_t uid); /* all three together */
/* Every user who has any, in no particular order. */
void holders_each(const struct holders *holders, void (*fn)(void *data, const struct holders_user *user), void *data);

struct holder {
    struct holder *next;
    uid_t uid;
    uint32_t n_pins;
    bool was_given; /* a descriptor of the memory; of no interest any more once the memory was seen to be free */
    enum holder_kind { HOLDER_OF_NOTHING, HOLDER_PINS, HOLDER_KEEPS } counted; /* which of the user's sums has the bytes */
};

struct holding { /* embedded by its owner */
    struct holders *holders;
    uint64_t bytes;
    uint32_t n_pins; /* of all users */
    bool is_kept;    /* no lease pins it, and a process has it all the same */
    struct holder *list;
};

void holding_init(struct holding *holding, struct holders *holders, uint64_t bytes);
void holding_fini(struct holding *holding); /* whatever it was, no user holds it any more */
void holding_pin(struct holding *holding, uid_t uid);
void holding_unpin(struct holding *holding, uid_t uid);
void holding_give(struct holding *holding, uid_t uid); /* to a user who has a pin */
/* What is known of the memory while no lease pins it. */
void holding_set_kept(struct holding *holding, bool is_kept);
bool holding_was_given(const struct holding *holding);

enum replica_memory {                          /* for messages */
                      REPLICA_MEMORY_HOST,     /* "memory.host_budget" */
                      REPLICA_MEMORY_DEVICE,   /* "devices.memory_budget" */
                      REPLICA_MEMORY_OF_A_USER /* of a process of one user, whose budget is what the host has left */
};

/* The error of a budget that has no room: needed, available, and which users have the rest. Pure; any thread. */
struct budget_numbers {
    enum replica_memory memory;
    uint64_t budget_bytes, available_bytes;
    uint64_t most_bytes;   /* that this user may ever have */
    uint64_t held_bytes;   /* of leased and pinned replicas */
    uint64_t pinned_bytes; /* of them */
    uint64_t loading_bytes, kept_bytes;
    bool is_for_others; /* what there is is kept for other users */
    const struct holders *holders;
};

/* RESOURCE_EXHAUSTED; returns -1. */
int budget_error_fail(const struct budget_numbers *numbers, uid_t uid, uint64_t needed_bytes, struct error *error);

#endif
