/* Fair shares of the requests in flight; see http_slots.h. Users, flows and slots are few: all looks are linear. */
#include "source/http/http_slots.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/condition.h"
#include "base/memory.h"
#include "base/quota.h"
#include "base/waiting.h"

enum { SHOWN_USERS = 4 };
static const uint64_t recall_again_ns = 5000 * (uint64_t)NS_PER_MS; /* the first one comes within a moment */

struct http_user {
    LIST_ENTRY(http_user) link;
    uid_t uid;
    bool is_privileged;
    uint32_t n_flows, in_flight, n_recalled; /* recalled and not given back yet */
};

struct http_flow {
    LIST_ENTRY(http_flow) link;
    struct http_user *user;
    struct http_origin *origin;
    uint32_t in_flight, n_recalled;
    uint64_t granted_ns; /* the last time */
    TAILQ_HEAD(, waiter) waiters;
};

struct waiter {
    struct http_flow *flow;
    struct http_slot *slot;
    const struct http_wish *wish;
    TAILQ_ENTRY(waiter) link;
    uint64_t since_ns, recall_ns; /* recall: not before */
    pthread_cond_t granted;
    bool is_granted;
};

void http_slots_init(struct http_slots *slots, struct http_origins *origins, uint32_t max)
{
    *slots = (struct http_slots){.origins = origins, .max = max};
}

/* --- users and flows --- */

static struct http_flow *find_or_make_flow(struct http_slots *slots, uid_t uid, struct http_origin *origin)
{
    struct http_flow *flow;
    struct http_user *user;
    LIST_FOREACH (flow, &slots->flows, link)
        if (flow->origin == origin && flow->user->uid == uid)
            return flow;
    LIST_FOREACH (user, &slots->users, link)
        if (user->uid == uid)
            break;
    if (!user) {
        user = memory_alloc(sizeof *user);
        user->uid = uid;
        user->is_privileged = quota_is_privileged(uid);
        LIST_INSERT_HEAD(&slots->users, user, link);
    }
    user->n_flows++;
    flow = memory_alloc(sizeof *flow);
    flow->user = user;
    flow->origin = origin;
    TAILQ_INIT(&flow->waiters);
    LIST_INSERT_HEAD(&slots->flows, flow, link);
    return flow;
}

static void drop_unused(struct http_flow *flow)
{
    struct http_user *user = flow->user;
    if (flow->in_flight > 0 || !TAILQ_EMPTY(&flow->waiters))
        return;
    LIST_REMOVE(flow, link);
    free(flow);
    if (--user->n_flows > 0)
        return;
    LIST_REMOVE(user, link);
    free(user);
}

/* What they will hold once the recalled ones are back. */
static uint32_t held_by_user(const struct http_flow *flow)
{
    return flow->user->in_flight - flow->user->n_recalled;
}

static uint32_t held(const struct http_flow *flow)
{
    return flow->in_flight - flow->n_recalled;
}

/* --- the rules --- */

static bool is_full(const struct http_origin *origin)
{
    return origin->in_flight >= origin->limit.allowed;
}

/* One alone gets all but the last eighth; of that, half of what is left. */
static bool leaves_enough(const struct http_slots *slots, uint32_t own)
{
    uint32_t n_free = slots->max - slots->in_flight;
    return n_free > slots->max / HTTP_SLOTS_KEPT || own < n_free;
}

static bool may_take(const struct http_slots *slots, const struct http_flow *flow)
{
    return slots->in_flight < slots->max && !is_full(flow->origin) && leaves_enough(slots, flow->in_flight) &&
           (flow->user->is_privileged || leaves_enough(slots, flow->user->in_flight));
}

/* Of one host the flows are compared, of all the users: many requests elsewhere are no reason to wait at a host for good. */
static bool is_before(const struct http_flow *a, const struct http_flow *b)
{
    if (a->origin != b->origin && held_by_user(a) != held_by_user(b))
        return held_by_user(a) < held_by_user(b);
    if (held(a) != held(b))
        return held(a) < held(b);
    return TAILQ_FIRST(&a->waiters)->since_ns < TAILQ_FIRST(&b->waiters)->since_ns;
}

/* The difference has to be worth a request that is cut off; but a user without a slot takes turns with one who has. */
static bool owes(uint32_t rich, uint32_t poor)
{
    return rich >= poor + (poor > 0 ? 2 : 1);
}

static bool is_owed_by(const struct http_flow *poor, const struct http_flow *rich)
{
    if (is_full(poor->origin))
        return rich->origin == poor->origin && owes(held(rich), held(poor));
    if (rich->user != poor->user)
        return owes(held_by_user(rich), held_by_user(poor));
    return owes(held(rich), held(poor));
}

/* Of two that owe the slot: the one with more slots, then the one whose turn is over for longer. */
static bool owes_more(const struct http_slot *a, const struct http_slot *b)
{
    if (held_by_user(a->flow) != held_by_user(b->flow))
        return held_by_user(a->flow) > held_by_user(b->flow);
    if (held(a->flow) != held(b->flow))
        return held(a->flow) > held(b->flow);
    return a->recallable_ns < b->recallable_ns;
}

/* --- slots --- */

static void take_slot(struct http_slots *slots, struct http_flow *flow, struct http_slot *slot, const struct http_wish *wish)
{
    uint64_t now_ns = clock_now_ns();
    slot->flow = flow;
    slot->recallable_ns = wish->turn_ns < UINT64_MAX - now_ns ? now_ns + wish->turn_ns : UINT64_MAX;
    slot->is_recalled = false;
    LIST_INSERT_HEAD(&slots->held, slot, link);
    flow->granted_ns = now_ns;
    flow->in_flight++;
    flow->user->in_flight++;
    slots->in_flight++;
    slot->mover = http_origin_begin(slots->origins, flow->origin, now_ns);
}

static void recall_for(struct http_slots *slots, struct waiter *waiter, uint64_t now_ns)
{
    struct http_slot *slot, *best = NULL;
    if (TAILQ_FIRST(&waiter->flow->waiters) != waiter || now_ns < waiter->recall_ns)
        return;
    LIST_FOREACH (slot, &slots->held, link) {
        bool is_due = now_ns >= slot->recallable_ns && !__atomic_load_n(&slot->is_recalled, __ATOMIC_SEQ_CST);
        if (is_due && is_owed_by(waiter->flow, slot->flow) && (!best || owes_more(slot, best)))
            best = slot;
    }
    if (!best)
        return;
    best->flow->n_recalled++;
    best->flow->user->n_recalled++;
    slots->origins->n_recalled++;
    waiter->recall_ns = now_ns + recall_again_ns;
    __atomic_store_n(&best->is_recalled, true, __ATOMIC_SEQ_CST);
}

/* --- waiting --- */

static int give_up_waiting(const struct http_slots *slots, const struct waiter *waiter, uint64_t now_ns, struct error *error)
{
    const struct http_flow *flow = waiter->flow;
    const struct http_wish *wish = waiter->wish;
    const struct http_user *user;
    uint64_t since_ns = flow->granted_ns > waiter->since_ns ? flow->granted_ns : waiter->since_ns;
    char holders[SHOWN_USERS * sizeof ", uid 4294967295 holds 4294967295"] = "";
    size_t used = 0, n_shown = 0;
    if (cancel_is_set(wish->cancel))
        return fail(error, ERROR_CANCELLED, "CANCELLED", "cancelled while waiting for a free connection");
    bool is_late = wish->deadline_ns > 0 && now_ns >= wish->deadline_ns;
    if (!is_late && now_ns - since_ns < wish->patience_ns)
        return 0;
    const char *reason = is_late ? "DEADLINE" : "NO_PROGRESS";
    double waited_s = (double)(now_ns - waiter->since_ns) / 1e9;
    if (is_full(flow->origin))
        return fail(error, ERROR_DEADLINE_EXCEEDED, reason,
                    "no connection was free in %.1f s: %" PRIu32 " requests are in flight to %s, which is its limit",
                    waited_s, flow->origin->in_flight, flow->origin->name);
    LIST_FOREACH (user, &slots->users, link) {
        if (user->in_flight == 0 || n_shown == SHOWN_USERS)
            continue;
        used += (size_t)snprintf(holders + used, sizeof holders - used, "%suid %" PRIu32 " holds %" PRIu32,
                                 n_shown++ ? ", " : "", (uint32_t)user->uid, user->in_flight);
    }
    return fail(error, ERROR_DEADLINE_EXCEEDED, reason,
                "no connection was free in %.1f s: %" PRIu32 " of %" PRIu32 " requests are in flight (%s)", waited_s,
                slots->in_flight, slots->max, holders);
}

static int wait_for_slot(struct http_slots *slots, struct waiter *waiter, struct error *error)
{
    struct http_flow *flow = waiter->flow;
    uint64_t deadline_ns = waiter->wish->deadline_ns;
    TAILQ_INSERT_TAIL(&flow->waiters, waiter, link);
    while (!waiter->is_granted) {
        uint64_t now_ns = clock_now_ns(), until_ns = now_ns + HTTP_ASK_AGAIN_NS;
        if (give_up_waiting(slots, waiter, now_ns, error)) {
            TAILQ_REMOVE(&flow->waiters, waiter, link);
            drop_unused(flow);
            return -1;
        }
        recall_for(slots, waiter, now_ns);
        condition_wait_until(&waiter->granted, &slots->origins->lock,
                             deadline_ns ? http_sooner(until_ns, deadline_ns) : until_ns);
    }
    return 0;
}

int http_slots_enter(struct http_slots *slots, struct http_origin *origin, const struct http_wish *wish,
                     struct http_slot *slot, struct error *error)
{
    int result = 0;
    pthread_mutex_lock(&slots->origins->lock);
    struct http_flow *flow = find_or_make_flow(slots, wish->uid, origin);
    if (TAILQ_EMPTY(&flow->waiters) && may_take(slots, flow)) {
        take_slot(slots, flow, slot, wish);
    } else {
        struct waiter waiter = {.flow = flow, .slot = slot, .wish = wish, .since_ns = clock_now_ns()};
        char text[WAITING_CHARS];
        snprintf(text, sizeof text, "a free connection: %" PRIu32 " requests are in flight to %.80s", origin->in_flight,
                 origin->name);
        condition_init(&waiter.granted);
        waiting_begin(waiting_current(), text, 0);
        result = wait_for_slot(slots, &waiter, error);
        waiting_end(waiting_current());
        pthread_cond_destroy(&waiter.granted);
    }
    bool is_retry = result == 0 && wish->is_retry;
    origin->n_retries += is_retry;
    http_origin_count(origin, COUNTER_HTTP_RETRIES, is_retry);
    pthread_mutex_unlock(&slots->origins->lock);
    return result;
}

bool http_slots_enter_hedge(struct http_slots *slots, struct http_origin *origin, const struct http_wish *wish,
                            struct http_slot *slot, uint32_t percent)
{
    pthread_mutex_lock(&slots->origins->lock);
    struct http_flow *flow = find_or_make_flow(slots, wish->uid, origin);
    /* one is always allowed: a load of a few requests may be slow, too */
    bool may = percent <= 100 && slots->origins->n_hedges <= slots->origins->n_requests * percent / 100 &&
               TAILQ_EMPTY(&flow->waiters) && may_take(slots, flow);
    if (may) {
        take_slot(slots, flow, slot, wish);
        origin->n_hedges++;
        slots->origins->n_hedges++;
        http_origin_count(origin, COUNTER_HTTP_HEDGES, 1);
    }
    drop_unused(flow);
    pthread_mutex_unlock(&slots->origins->lock);
    return may;
}

void http_slots_leave(struct http_slots *slots, struct http_slot *slot, const struct http_visit *visit)
{
    pthread_mutex_lock(&slots->origins->lock);
    struct http_flow *left = slot->flow, *flow, *next;
    bool was_recalled = __atomic_load_n(&slot->is_recalled, __ATOMIC_SEQ_CST);
    http_origin_end(left->origin, slot->mover, visit, clock_now_ns());
    LIST_REMOVE(slot, link);
    slot->flow = NULL;
    left->in_flight--;
    left->n_recalled -= was_recalled;
    left->user->in_flight--;
    left->user->n_recalled -= was_recalled;
    slots->in_flight--;
    do {
        next = NULL;
        LIST_FOREACH (flow, &slots->flows, link)
            if (!TAILQ_EMPTY(&flow->waiters) && may_take(slots, flow) && (!next || is_before(flow, next)))
                next = flow;
        if (next) {
            struct waiter *waiter = TAILQ_FIRST(&next->waiters);
            TAILQ_REMOVE(&next->waiters, waiter, link);
            take_slot(slots, next, waiter->slot, waiter->wish);
            waiter->is_granted = true;
            pthread_cond_signal(&waiter->granted);
        }
    } while (next);
    drop_unused(left);
    pthread_mutex_unlock(&slots->origins->lock);
}
