/* An attempt under way; see http_watch.h.
 *
 *   first ----------------------------> head: wins ---> body ---> over
 *          hedge_after, no head: second ------> head: lost, or cancelled when the first one won
 *
 * Every exchange is waited for: when the watch returns nobody writes into the caller's memory any more. */
#include "source/http/http_watch.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/condition.h"
#include "base/memory.h"
#include "base/waiting.h"
#include "source/http/http_direct.h"
#include "source/http/http_wait.h"

enum {
    SILENT_MS = 500,
    RATE_STALLS = 2 /* the rate is looked at over so many stall timeouts: 10 s unless told otherwise */
};

static uint64_t ms(uint64_t count)
{
    return count * NS_PER_MS;
}

void http_exchange_drop(struct http_engine *engine, struct http_exchange *exchange)
{
    http_exchange_clear(exchange);
    if (exchange->curl.easy)
        http_engine_give_easy(engine, exchange->curl.easy);
    free(exchange);
}

static int send_one(struct http_watch *watch, struct http_exchange *exchange, struct http_slot *slot, struct error *error)
{
    exchange->order.race = &watch->race;
    exchange->order.origin = watch->origin;
    if (!http_direct_prepare(exchange, &watch->wire))
        exchange->curl.easy = http_engine_take_easy(watch->engine);
    if (http_exchange_set_up(exchange, &watch->wire, error))
        return -1;
    watch->entries[watch->n_entries++] =
        (struct http_entry){.exchange = exchange, .slot = slot, .mark_ns = exchange->seen.started_ns};
    http_budget_earn(&watch->origin->budget);
    http_mover_submit(http_engine_least_busy(watch->engine), exchange);
    return 0;
}

static void leave(struct http_watch *watch, const struct http_entry *entry)
{
    const struct http_exchange *exchange = entry->exchange;
    uint64_t sent_ns = atomic_load(&exchange->seen.sent_ns), head_ns = atomic_load(&exchange->seen.head_ns);
    int status = exchange->answer.head.head.status;
    struct http_visit visit = {.started_ns = exchange->seen.started_ns,
                               .latency_ns = sent_ns > 0 && head_ns > sent_ns ? head_ns - sent_ns : 0,
                               .body_ns = head_ns > 0 ? exchange->outcome.ended_ns - head_ns : 0,
                               .body_bytes = atomic_load(&exchange->seen.body_bytes),
                               .is_throttled = status == 429 || status == 503};
    bool is_dropped =
        exchange->outcome.end == HTTP_END_BROKEN && !exchange->answer.has_head && exchange->curl.n_connects > 0;
    visit.is_refused =
        is_dropped && (exchange->curl.code == CURLE_COULDNT_CONNECT || exchange->curl.code == CURLE_RECV_ERROR ||
                       exchange->curl.code == CURLE_SEND_ERROR || exchange->curl.code == CURLE_GOT_NOTHING);
    http_slots_leave(&watch->engine->slots, entry->slot, &visit);
}

static void cancel_entry(struct http_entry *entry, enum http_cause cause)
{
    if (entry->cause != HTTP_CAUSE_NONE || entry->exchange->is_over)
        return;
    entry->cause = cause;
    http_mover_cancel(entry->exchange);
}

static void check_body(struct http_watch *watch, struct http_entry *entry, uint64_t head_ns, uint64_t now_ns)
{
    const struct http_engine_options *limits = &watch->engine->options;
    uint64_t last_ns = atomic_load(&entry->exchange->seen.last_byte_ns),
             bytes = atomic_load(&entry->exchange->seen.body_bytes);
    uint64_t stall_ns = ms(limits->stall_timeout_ms);
    watch->progress_ns = last_ns > watch->progress_ns ? last_ns : watch->progress_ns;
    if (entry->mark_ns < head_ns)
        entry->mark_ns = head_ns;
    if (now_ns >= last_ns + stall_ns) {
        cancel_entry(entry, HTTP_CAUSE_STALLED);
    } else if (now_ns >= entry->mark_ns + RATE_STALLS * stall_ns) {
        if ((bytes - entry->mark_bytes) * 1000 < limits->minimum_bytes_per_s * RATE_STALLS * limits->stall_timeout_ms)
            cancel_entry(entry, HTTP_CAUSE_SLOW);
        entry->mark_ns = now_ns;
        entry->mark_bytes = bytes;
    }
}

/* Looks at one exchange, every HTTP_ASK_AGAIN_NS at least; returns when to look earlier. */
static uint64_t check_entry(struct http_watch *watch, struct http_entry *entry, uint64_t now_ns)
{
    uint64_t head_ns = atomic_load(&entry->exchange->seen.head_ns), due_ns = UINT64_MAX;
    if (entry->cause != HTTP_CAUSE_NONE || entry->exchange->is_over)
        return due_ns;
    if (atomic_load(&entry->slot->is_recalled)) {
        cancel_entry(entry, HTTP_CAUSE_RECALLED);
        return due_ns;
    }
    if (head_ns > 0) {
        check_body(watch, entry, head_ns, now_ns);
        return due_ns;
    }
    const struct http_engine_options *limits = &watch->engine->options;
    uint64_t sent_ns = atomic_load(&entry->exchange->seen.sent_ns),
             upload_bytes = entry->exchange->order.attempt->body_bytes;
    uint64_t from_ns = sent_ns ? sent_ns : entry->exchange->seen.started_ns + ms(limits->connect_timeout_ms);
    uint64_t upload_ms = upload_bytes > HTTP_LARGE_BODY ? upload_bytes / limits->minimum_bytes_per_s * 1000 : 0;
    due_ns = from_ns + ms(limits->first_byte_timeout_ms + upload_ms);
    uint64_t taken_ns = atomic_load(&entry->exchange->seen.last_taken_ns);
    if (taken_ns > 0) { /* no byte of what is sent is taken any more, or all are and no answer comes */
        watch->progress_ns = taken_ns > watch->progress_ns ? taken_ns : watch->progress_ns;
        due_ns = http_sooner(due_ns, taken_ns + ms(limits->first_byte_timeout_ms));
    }
    if (now_ns >= due_ns)
        cancel_entry(entry, HTTP_CAUSE_FIRST_BYTE);
    return due_ns;
}

/* When the first exchange's answer is late enough for a second request; UINT64_MAX = never. */
static uint64_t hedge_due(const struct http_watch *watch)
{
    const struct http_exchange *first = watch->entries[0].exchange;
    if (!watch->may_hedge || watch->n_entries > 1 || watch->entries[0].cause != HTTP_CAUSE_NONE || first->is_over ||
        atomic_load(&first->seen.head_ns) > 0)
        return UINT64_MAX;
    uint64_t floor_ns = ms(watch->engine->options.hedge_after_ms);
    uint64_t slow_ns = http_origin_slow_ns(&watch->engine->origins, watch->origin);
    uint64_t sent_ns = atomic_load(&first->seen.sent_ns);
    return (sent_ns ? sent_ns : first->seen.started_ns) + (slow_ns > floor_ns ? slow_ns : floor_ns);
}

static void hedge(struct http_watch *watch)
{
    struct error ignored; /* the first one is still on its way */
    const struct http_exchange *first = watch->entries[0].exchange;
    if (!http_slots_enter_hedge(&watch->engine->slots, watch->origin, watch->wish, &watch->hedge_slot,
                                watch->engine->options.hedge_percent)) {
        watch->may_hedge = false;
        return;
    }
    struct http_exchange *second = memory_alloc(sizeof *second);
    second->order.attempt = first->order.attempt;
    second->order.store = first->order.store;
    second->order.expected = first->order.expected;
    second->sink = watch->first_sink;
    second->order.has_sink = first->order.has_sink;
    second->order.is_fresh = true;
    if (send_one(watch, second, &watch->hedge_slot, &ignored) == 0)
        return;
    watch->may_hedge = false;
    http_slots_leave(&watch->engine->slots, &watch->hedge_slot, &(struct http_visit){0});
    http_exchange_drop(watch->engine, second);
}

/* A second without a byte is told; retries say more than that. */
static void tell_silence(struct http_watch *watch, uint64_t now_ns)
{
    bool is_silent = true, has_head = false;
    for (unsigned i = 0; i < watch->n_entries; i++) {
        const struct http_progress *seen = &watch->entries[i].exchange->seen;
        uint64_t head_ns = atomic_load(&seen->head_ns), last_ns = atomic_load(&seen->last_byte_ns);
        uint64_t heard_ns = last_ns ? last_ns : head_ns ? head_ns : seen->started_ns;
        has_head = has_head || head_ns;
        is_silent = is_silent && now_ns >= heard_ns + ms(SILENT_MS);
    }
    if (is_silent == watch->is_silent)
        return;
    watch->is_silent = is_silent;
    char text[WAITING_CHARS];
    snprintf(text, sizeof text, "%s%.100s%s", has_head ? "more bytes from " : "", watch->origin->name,
             has_head ? "" : " to answer");
    if (is_silent)
        waiting_begin(waiting_current(), text, 0);
    else
        waiting_end(waiting_current());
}

static bool is_all_over(const struct http_watch *watch)
{
    for (unsigned i = 0; i < watch->n_entries; i++)
        if (!watch->entries[i].exchange->is_over)
            return false;
    return true;
}

static enum http_cause cause_of_all(const struct http_watch *watch, uint64_t now_ns)
{
    if (cancel_is_set(watch->wish->cancel))
        return HTTP_CAUSE_CANCELLED;
    if (watch->wish->deadline_ns > 0 && now_ns >= watch->wish->deadline_ns)
        return HTTP_CAUSE_DEADLINE;
    if (now_ns >= watch->progress_ns + ms(watch->engine->options.progress_timeout_ms))
        return HTTP_CAUSE_PROGRESS;
    return HTTP_CAUSE_NONE;
}

/* Under the race's lock. Returns when to look again. */
static uint64_t look_at_entries(struct http_watch *watch)
{
    uint64_t now_ns = clock_now_ns(), next_ns = now_ns + HTTP_ASK_AGAIN_NS;
    struct http_exchange *winner = atomic_load(&watch->race.winner);
    for (unsigned i = 0; winner && i < watch->n_entries; i++)
        if (watch->entries[i].exchange != winner)
            cancel_entry(&watch->entries[i], HTTP_CAUSE_CANCELLED);
    for (unsigned i = 0; i < watch->n_entries; i++)
        next_ns = http_sooner(next_ns, check_entry(watch, &watch->entries[i], now_ns));
    tell_silence(watch, now_ns);
    enum http_cause cause = cause_of_all(watch, now_ns);
    if (cause != HTTP_CAUSE_NONE) {
        for (unsigned i = 0; i < watch->n_entries; i++)
            cancel_entry(&watch->entries[i], cause);
    } else if (watch->wish->deadline_ns > 0)
        next_ns = http_sooner(next_ns, watch->wish->deadline_ns);
    return next_ns;
}

static void watch_until_over(struct http_watch *watch)
{
    pthread_mutex_lock(&watch->race.lock);
    while (!is_all_over(watch)) {
        uint64_t hedge_ns = hedge_due(watch), next_ns = http_sooner(look_at_entries(watch), hedge_ns);
        if (hedge_ns <= clock_now_ns()) {
            pthread_mutex_unlock(&watch->race.lock);
            hedge(watch);
            pthread_mutex_lock(&watch->race.lock);
            continue;
        }
        condition_wait_until(&watch->race.changed, &watch->race.lock, next_ns);
    }
    pthread_mutex_unlock(&watch->race.lock);
    if (watch->is_silent)
        waiting_end(waiting_current());
    watch->is_silent = false;
}

/* The winner; without one whoever has something to say. */
static unsigned decider(struct http_watch *watch)
{
    static const int weight[] = {[HTTP_END_COMPLETE] = 4, [HTTP_END_UNACCEPTABLE] = 3, [HTTP_END_REFUSED] = 3,
                                 [HTTP_END_BROKEN] = 2,   [HTTP_END_CANCELLED] = 1,    [HTTP_END_LOST] = 0};
    unsigned best = 0;
    const struct http_exchange *winner = atomic_load(&watch->race.winner);
    for (unsigned i = 0; i < watch->n_entries; i++) {
        const struct http_exchange *exchange = watch->entries[i].exchange;
        if (exchange == winner)
            return i;
        if (weight[exchange->outcome.end] > weight[watch->entries[best].exchange->outcome.end])
            best = i;
    }
    return best;
}

struct http_entry *http_watch_run(struct http_watch *watch, struct http_exchange *first, struct error *error)
{
    http_race_init(&watch->race);
    watch->n_entries = 0;
    watch->first_sink = first->sink;
    struct http_entry *result = NULL;
    if (send_one(watch, first, watch->slot, error)) {
        http_slots_leave(&watch->engine->slots, watch->slot, &(struct http_visit){0});
        http_exchange_drop(watch->engine, first);
    } else {
        watch_until_over(watch);
        result = &watch->entries[decider(watch)];
    }
    for (unsigned i = 0; i < watch->n_entries; i++) {
        leave(watch, &watch->entries[i]);
        if (&watch->entries[i] != result)
            http_exchange_drop(watch->engine, watch->entries[i].exchange);
    }
    http_race_fini(&watch->race);
    return result;
}
