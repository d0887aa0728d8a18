/* An attempt under way; see http_run.h.
 *
 *   first ----------------------------> head: wins ---> body ---> over
 *          hedge_after, no head: second ------> head: lost, or cancelled when the first one won
 *
 * Every exchange is waited for: when the watch returns nothing writes into the caller's memory any more. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/condition.h"
#include "base/memory.h"
#include "base/waiting.h"
#include "source/http/http_direct.h"
#include "source/http/http_run.h"

enum {
    SILENT_MS = 500,
    RATE_STALLS = 2 /* the rate is looked at over so many stall timeouts: 10 s unless told otherwise */
};

struct watch {
    struct http_run *run;
    struct http_race race;
    struct http_slot hedge_slot;
    struct entry {
        struct http_exchange *exchange;
        struct http_slot *slot;
        enum http_cause cause;
        uint64_t mark_ns, mark_bytes; /* where the rate is counted from */
    } entries[2];
    unsigned n_entries;
    bool may_hedge;
    bool is_silent; /* the client was told so */
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

/* On a slot that is held; it is left when nothing can be sent. */
static int send_one(struct watch *watch, struct http_slot *slot, bool is_fresh, struct error *error)
{
    struct http_run *run = watch->run;
    struct http_engine *engine = run->engine;
    struct http_exchange *exchange = memory_alloc(sizeof *exchange);
    exchange->order = (struct http_order){.attempt = &run->attempt,
                                          .store = run->call.store,
                                          .expected = &run->expected,
                                          .origin = run->origin,
                                          .race = &watch->race,
                                          .has_sink = run->has_sink,
                                          .is_fresh = is_fresh};
    exchange->sink = run->sink;
    if (!http_direct_prepare(exchange, &run->wire))
        exchange->curl.easy = http_engine_take_easy(engine);
    if (http_exchange_set_up(exchange, &run->wire, error)) {
        http_slots_leave(&engine->slots, slot, &(struct http_visit){0});
        http_exchange_drop(engine, exchange);
        return -1;
    }
    watch->entries[watch->n_entries++] =
        (struct entry){.exchange = exchange, .slot = slot, .mark_ns = exchange->seen.started_ns};
    http_engine_submit(engine, slot->mover, exchange);
    return 0;
}

static void leave(const struct watch *watch, const struct entry *entry)
{
    const struct http_exchange *exchange = entry->exchange;
    uint64_t sent_ns = __atomic_load_n(&exchange->seen.sent_ns, __ATOMIC_SEQ_CST),
             head_ns = __atomic_load_n(&exchange->seen.head_ns, __ATOMIC_SEQ_CST);
    int status = exchange->answer.head.head.status;
    CURLcode code = exchange->curl.code;
    bool is_dropped =
        exchange->outcome.end == HTTP_END_BROKEN && !exchange->answer.has_head && exchange->curl.n_connects > 0;
    const struct http_visit visit = {.started_ns = exchange->seen.started_ns,
                                     .latency_ns = sent_ns > 0 && head_ns > sent_ns ? head_ns - sent_ns : 0,
                                     .body_ns = head_ns > 0 ? exchange->outcome.ended_ns - head_ns : 0,
                                     .body_bytes = __atomic_load_n(&exchange->seen.body_bytes, __ATOMIC_SEQ_CST),
                                     .is_throttled = status == 429 || status == 503,
                                     .is_refused =
                                         is_dropped && (code == CURLE_COULDNT_CONNECT || code == CURLE_RECV_ERROR ||
                                                        code == CURLE_SEND_ERROR || code == CURLE_GOT_NOTHING)};
    http_slots_leave(&watch->run->engine->slots, entry->slot, &visit);
}

static void cancel_entry(struct entry *entry, enum http_cause cause)
{
    if (entry->cause != HTTP_CAUSE_NONE || entry->exchange->is_over)
        return;
    entry->cause = cause;
    http_engine_cancel(entry->exchange);
}

static void note_progress(struct watch *watch, uint64_t ns)
{
    watch->run->progress_ns = ns > watch->run->progress_ns ? ns : watch->run->progress_ns;
}

static void check_body(struct watch *watch, struct entry *entry, uint64_t head_ns, uint64_t now_ns)
{
    const struct http_engine_options *limits = &watch->run->engine->options;
    const struct http_progress *seen = &entry->exchange->seen;
    uint64_t last_ns = __atomic_load_n(&seen->last_byte_ns, __ATOMIC_SEQ_CST),
             bytes = __atomic_load_n(&seen->body_bytes, __ATOMIC_SEQ_CST);
    uint64_t stall_ns = ms(limits->stall_timeout_ms);
    note_progress(watch, last_ns);
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
static uint64_t check_entry(struct watch *watch, struct entry *entry, uint64_t now_ns)
{
    const struct http_engine_options *limits = &watch->run->engine->options;
    const struct http_progress *seen = &entry->exchange->seen;
    uint64_t head_ns = __atomic_load_n(&seen->head_ns, __ATOMIC_SEQ_CST),
             sent_ns = __atomic_load_n(&seen->sent_ns, __ATOMIC_SEQ_CST);
    if (entry->cause != HTTP_CAUSE_NONE || entry->exchange->is_over)
        return UINT64_MAX;
    if (__atomic_load_n(&entry->slot->is_recalled, __ATOMIC_SEQ_CST)) {
        cancel_entry(entry, HTTP_CAUSE_RECALLED);
        return UINT64_MAX;
    }
    if (head_ns > 0) {
        check_body(watch, entry, head_ns, now_ns);
        return UINT64_MAX;
    }
    uint64_t upload_bytes = watch->run->attempt.body_bytes,
             taken_ns = __atomic_load_n(&seen->last_taken_ns, __ATOMIC_SEQ_CST);
    uint64_t upload_ms = upload_bytes > HTTP_LARGE_BODY ? upload_bytes / limits->minimum_bytes_per_s * 1000 : 0;
    uint64_t due_ns = (sent_ns ? sent_ns : seen->started_ns + ms(limits->connect_timeout_ms)) +
                      ms(limits->first_byte_timeout_ms + upload_ms);
    if (taken_ns > 0) { /* no byte of what is sent is taken any more, or all are and no answer comes */
        note_progress(watch, taken_ns);
        due_ns = http_sooner(due_ns, taken_ns + ms(limits->first_byte_timeout_ms));
    }
    if (now_ns >= due_ns)
        cancel_entry(entry, HTTP_CAUSE_FIRST_BYTE);
    return due_ns;
}

/* When the first exchange's answer is late enough for a second request; UINT64_MAX = never. */
static uint64_t hedge_due(const struct watch *watch)
{
    const struct entry *first = &watch->entries[0];
    const struct http_progress *seen = &first->exchange->seen;
    struct http_engine *engine = watch->run->engine;
    if (!watch->may_hedge || first->cause != HTTP_CAUSE_NONE || first->exchange->is_over ||
        __atomic_load_n(&seen->head_ns, __ATOMIC_SEQ_CST) > 0)
        return UINT64_MAX;
    uint64_t floor_ns = ms(engine->options.hedge_after_ms), sent_ns = __atomic_load_n(&seen->sent_ns, __ATOMIC_SEQ_CST);
    uint64_t slow_ns = http_origin_slow_ns(&engine->origins, watch->run->origin);
    return (sent_ns ? sent_ns : seen->started_ns) + (slow_ns > floor_ns ? slow_ns : floor_ns);
}

/* A second without a byte is told; retries say more than that. */
static void tell_silence(struct watch *watch, uint64_t now_ns)
{
    bool is_silent = true, has_head = false;
    for (unsigned i = 0; i < watch->n_entries; i++) {
        const struct http_progress *seen = &watch->entries[i].exchange->seen;
        uint64_t head_ns = __atomic_load_n(&seen->head_ns, __ATOMIC_SEQ_CST),
                 last_ns = __atomic_load_n(&seen->last_byte_ns, __ATOMIC_SEQ_CST);
        uint64_t heard_ns = last_ns ? last_ns : head_ns ? head_ns : seen->started_ns;
        has_head = has_head || head_ns;
        is_silent = is_silent && now_ns >= heard_ns + ms(SILENT_MS);
    }
    if (is_silent == watch->is_silent)
        return;
    watch->is_silent = is_silent;
    char text[WAITING_CHARS];
    snprintf(text, sizeof text, "%s%.100s%s", has_head ? "more bytes from " : "", watch->run->origin->name,
             has_head ? "" : " to answer");
    if (is_silent)
        waiting_begin(waiting_current(), text, 0);
    else
        waiting_end(waiting_current());
}

/* Under the race's lock. Returns when to look again. */
static uint64_t look_at_entries(struct watch *watch)
{
    const struct http_run *run = watch->run;
    uint64_t now_ns = clock_now_ns(), next_ns = now_ns + HTTP_ASK_AGAIN_NS, deadline_ns = run->wish.deadline_ns;
    const struct http_exchange *winner = __atomic_load_n(&watch->race.winner, __ATOMIC_SEQ_CST);
    for (unsigned i = 0; i < watch->n_entries; i++) {
        if (winner && watch->entries[i].exchange != winner)
            cancel_entry(&watch->entries[i], HTTP_CAUSE_CANCELLED);
        next_ns = http_sooner(next_ns, check_entry(watch, &watch->entries[i], now_ns));
    }
    tell_silence(watch, now_ns);
    enum http_cause cause = cancel_is_set(run->wish.cancel)            ? HTTP_CAUSE_CANCELLED
                            : deadline_ns > 0 && now_ns >= deadline_ns ? HTTP_CAUSE_DEADLINE
                            : now_ns >= run->progress_ns + ms(run->engine->options.progress_timeout_ms) ? HTTP_CAUSE_PROGRESS
                                                                                                        : HTTP_CAUSE_NONE;
    for (unsigned i = 0; cause != HTTP_CAUSE_NONE && i < watch->n_entries; i++)
        cancel_entry(&watch->entries[i], cause);
    return deadline_ns > now_ns ? http_sooner(next_ns, deadline_ns) : next_ns;
}

static void watch_until_over(struct watch *watch)
{
    struct http_run *run = watch->run;
    struct error ignored; /* the first one is still on its way */
    pthread_mutex_lock(&watch->race.lock);
    while (!watch->entries[0].exchange->is_over || (watch->n_entries > 1 && !watch->entries[1].exchange->is_over)) {
        uint64_t hedge_ns = hedge_due(watch), next_ns = http_sooner(look_at_entries(watch), hedge_ns);
        if (hedge_ns > clock_now_ns()) {
            condition_wait_until(&watch->race.changed, &watch->race.lock, next_ns);
            continue;
        }
        watch->may_hedge = false;
        pthread_mutex_unlock(&watch->race.lock);
        if (http_slots_enter_hedge(&run->engine->slots, run->origin, &run->wish, &watch->hedge_slot,
                                   run->engine->options.hedge_percent))
            send_one(watch, &watch->hedge_slot, true, &ignored);
        pthread_mutex_lock(&watch->race.lock);
    }
    pthread_mutex_unlock(&watch->race.lock);
    if (watch->is_silent)
        waiting_end(waiting_current());
}

int http_watch(struct http_run *run, struct http_ending *ending, struct error *error)
{
    static const int weight[] = {[HTTP_END_COMPLETE] = 4, [HTTP_END_UNACCEPTABLE] = 3, [HTTP_END_REFUSED] = 3,
                                 [HTTP_END_BROKEN] = 2,   [HTTP_END_CANCELLED] = 1,    [HTTP_END_LOST] = 0};
    struct watch watch = {.run = run, .may_hedge = run->has_sink};
    const struct entry *entries = watch.entries;
    condition_init(&watch.race.changed);
    pthread_mutex_init(&watch.race.lock, NULL);
    int failed = send_one(&watch, &run->slot, run->is_fresh, error);
    if (!failed) {
        watch_until_over(&watch);
        /* the winner decides; without one the exchange that has something to say */
        const struct http_exchange *winner = __atomic_load_n(&watch.race.winner, __ATOMIC_SEQ_CST);
        bool is_second = watch.n_entries > 1 &&
                         (winner ? winner == entries[1].exchange
                                 : weight[entries[1].exchange->outcome.end] > weight[entries[0].exchange->outcome.end]);
        *ending = (struct http_ending){entries[is_second].exchange, entries[is_second].cause};
    }
    for (unsigned i = 0; i < watch.n_entries; i++) {
        leave(&watch, &entries[i]);
        if (entries[i].exchange != ending->exchange)
            http_exchange_drop(run->engine, entries[i].exchange);
    }
    pthread_cond_destroy(&watch.race.changed);
    pthread_mutex_destroy(&watch.race.lock);
    return failed;
}
