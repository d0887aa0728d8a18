/* Slots: who may have a request in flight. There are max_connections of them, shared between users and hosts.
 *
 * A flow is what one user asks of one host. Three rules make the sharing fair, however slow the servers of somebody are:
 *
 *   next      a free slot goes to the user who holds the fewest, of his flows to the one that holds the fewest, of a flow to
 *             whoever has waited longest. A full host does not hold up the others.
 *   reserve   of the last eighth of the slots a user or flow gets one only while it holds fewer than are left: whoever comes
 *             to full queues starts at once. The users' part of it does not apply to root and the daemon's own user.
 *   recall    whoever waits and holds none, or two fewer than somebody else, calls one of his slots back, once it has been
 *             held for a while: its request is cut off, keeps the bytes that came, and waits for its next turn.
 *
 * Any thread; under the lock of the origins, taken twice per request. */
#ifndef SOURCE_HTTP_SLOTS_H
#define SOURCE_HTTP_SLOTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/cancel.h"
#include "base/error.h"
#include "source/http/http_origin.h"

enum { HTTP_SLOTS_KEPT = 8 /* one of so many */ };

struct http_flow;
struct http_user;

struct http_slots {
    struct http_origins *origins; /* borrowed; its lock is ours */
    struct http_flow *flows;      /* that hold a slot or wait for one */
    struct http_user *users;      /* of them */
    struct http_slot *held;
    uint32_t in_flight, max;
    uint64_t n_recalled;
};

struct http_slot { /* the holder's memory, which stays where it is while it is held */
    struct http_flow *flow;
    struct http_slot *next, **link; /* in slots->held */
    uint64_t recallable_ns;         /* from then on */
    atomic_bool is_recalled;        /* cut the request off, leave, and enter again */
};

struct http_wish {
    uid_t uid;
    const struct cancel *cancel; /* may be NULL */
    uint64_t deadline_ns;        /* 0 = none */
    uint64_t patience_ns;        /* while the flow gets no slot at all */
    uint64_t turn_ns;            /* for so long the slot is not recalled; UINT64_MAX = never */
};

/* Nothing is to be freed: users and flows go with the last who holds a slot or waits. */
void http_slots_init(struct http_slots *slots, struct http_origins *origins, uint32_t max);

/* Waits for a slot. CANCELLED, or DEADLINE_EXCEEDED, which says who holds them. The origin is referred to by the caller. */
int http_slots_enter(struct http_slots *slots, struct http_origin *origin, const struct http_wish *wish,
                     struct http_slot *slot, struct error *error);
/* One for a hedge, if there is one at once and the share of hedges allows it. */
bool http_slots_enter_hedge(struct http_slots *slots, struct http_origin *origin, const struct http_wish *wish,
                            struct http_slot *slot, uint32_t percent);
void http_slots_leave(struct http_slots *slots, struct http_slot *slot, const struct http_visit *visit);

#endif
