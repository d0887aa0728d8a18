/* One attempt under way, watched from the caller's thread: deadlines, cancellation, and a second request when the first
 * one's answer is slow to begin. */
#ifndef SOURCE_HTTP_WATCH_H
#define SOURCE_HTTP_WATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/cancel.h"
#include "source/http/http_engine.h"

enum http_cause { /* why the watch ended it */
                  HTTP_CAUSE_NONE,
                  HTTP_CAUSE_CANCELLED,
                  HTTP_CAUSE_DEADLINE, /* of the call */
                  HTTP_CAUSE_PROGRESS, /* the call has had no byte for too long */
                  HTTP_CAUSE_FIRST_BYTE,
                  HTTP_CAUSE_STALLED,
                  HTTP_CAUSE_SLOW,
                  HTTP_CAUSE_RECALLED, /* others need the slot more */
};

struct http_watch {
    struct http_engine *engine;
    struct http_origin *origin;
    const struct http_wish *wish; /* for a slot; had for the first exchange */
    struct http_slot *slot;       /* this one; left when the watch returns */
    struct http_wire wire;
    uint64_t progress_ns; /* of the last byte so far */
    bool may_hedge;
    /* its own */
    struct http_race race;
    struct http_sink first_sink; /* as it was before the first byte */
    struct http_slot hedge_slot;
    struct http_entry {
        struct http_exchange *exchange;
        struct http_slot *slot;
        enum http_cause cause;
        uint64_t mark_ns, mark_bytes; /* where the rate is counted from */
    } entries[2];
    unsigned n_entries;
    bool is_silent; /* who waits for it was told so */
};

/* Sends `first` (whose given fields are set) and waits until all is over and every slot left. The entry that decides is the
 * caller's: http_exchange_drop() it. NULL and an error when nothing could be sent. */
struct http_entry *http_watch_run(struct http_watch *watch, struct http_exchange *first, struct error *error);
void http_exchange_drop(struct http_engine *engine, struct http_exchange *exchange);

#endif
