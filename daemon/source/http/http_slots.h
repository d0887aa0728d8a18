/* Slots: who may have a request in flight. There are max_connections of them, shared between users and hosts.
 *
 * A flow is what one user asks of one host. Three rules make the sharing fair, however slow the servers of one user are:
 *
 *   next      a free slot goes to the user who holds the fewest, of their flows to that with the fewest, of equal ones to
 *             the flow that has waited longest. A full host does not hold up the others.
 *   reserve   of the last eighth of the slots a user or flow gets one only while it holds fewer than are left: a newcomer
 *             to full queues starts at once. The users' part of it does not apply to root and the daemon's own user.
 *   recall    a flow that waits and holds none, or two fewer than another, calls one of that one's slots back, once it has been
 *             held for a while: its request is cut off, keeps the bytes that came, and waits for its next turn.
 *
 * Any thread; under the lock of the origins, taken twice per request. */
#ifndef SOURCE_HTTP_SLOTS_H
#define SOURCE_HTTP_SLOTS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "base/cancel.h"
#include "base/clock.h"
#include "base/error.h"
#include "source/http/http_origin.h"

enum { HTTP_SLOTS_KEPT = 8 /* one of so many */ };
/* Nothing tells a waiter that its cancel was set: it asks this often, and looks at its deadlines meanwhile. */
#define HTTP_ASK_AGAIN_NS (50 * (uint64_t)NS_PER_MS)

static inline uint64_t http_sooner(uint64_t a_ns, uint64_t b_ns)
{
    return a_ns < b_ns ? a_ns : b_ns;
}

struct http_flow;
struct http_user;

struct http_slots {
    struct http_origins *origins; /* borrowed; its lock is ours */
    LIST_HEAD(, http_flow) flows; /* that hold a slot or wait for one */
    LIST_HEAD(, http_user) users; /* of them */
    LIST_HEAD(, http_slot) held;
    uint32_t in_flight, max;
};

struct http_slot { /* the holder's memory, which stays where it is while it is held */
    struct http_flow *flow;
    LIST_ENTRY(http_slot) link; /* in slots->held */
    uint32_t mover;             /* that sends its request */
    uint64_t recallable_ns;     /* from then on */
    bool is_recalled;           /* atomic; cut the request off, leave, and enter again */
};

struct http_wish {
    uid_t uid;
    const struct cancel *cancel; /* may be NULL */
    uint64_t deadline_ns;        /* 0 = none */
    uint64_t patience_ns;        /* while the flow gets no slot at all */
    uint64_t turn_ns;            /* for so long the slot is not recalled; UINT64_MAX = never */
    bool is_retry;               /* for statistics */
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
