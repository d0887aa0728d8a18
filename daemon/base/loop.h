/* The event loop: one thread owns all state (loads, replicas, leases, tables) and never blocks.
 *
 * Loop thread, except for what says "any thread". A task is embedded in what it is about; posting hands it to the loop until
 * `run` is called, exactly once, on the loop thread. Work that may block or takes long runs on helper threads, in pools by kind
 * of work and shared fairly between users, and reports back to the loop. */
#ifndef BASE_LOOP_H
#define BASE_LOOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

struct error;
struct loop;

struct loop_task {
    struct loop_task *next;
    void (*run)(struct loop_task *task);
};

enum loop_pool {              /* kinds of work, which never wait for each other */
                 LOOP_LOCAL,  /* short: decoding, planning, packing */
                 LOOP_DISK,   /* system calls on files, which a dead mount does not answer */
                 LOOP_REMOTE, /* requests to stores */
                 LOOP_VERIFY, /* reads whole checkpoints */
                 LOOP_POOLS
};

struct loop_work { /* do_work on a helper thread, then done on the loop, exactly once each */
    void (*do_work)(struct loop_work *work);
    void (*done)(struct loop_work *work);
    enum loop_pool pool;
    uint32_t uid;  /* for whom: users have equal shares of a pool */
    uint64_t lane; /* what it asks, see source_place_work(): if that hangs, the user's other work goes on; 0 = nothing */
    /* the helpers' own */
    struct loop_task task;
    STAILQ_ENTRY(loop_work) next;
    struct loop_lane *own_lane;
    bool is_waiting;
};

struct loop_timer; /* opaque */
struct loop_watch; /* opaque */

struct loop *loop_create(void);
/* After loop_run() has returned, timers and watches are destroyed, and no other thread posts any more. Runs what is still
 * posted, waits for work in flight and ends the helpers. Accepts NULL. */
void loop_destroy(struct loop *loop);
/* After loop_run(): runs what is posted and waits for work in flight, until there is neither. Accepts NULL. */
void loop_finish(struct loop *loop);
void loop_run(struct loop *loop);  /* until loop_stop() */
void loop_stop(struct loop *loop); /* loop thread */

void loop_post(struct loop *loop, struct loop_task *task); /* any thread */

/* Any thread, before loop_finish() and loop_destroy(). The work belongs to the loop until `done`, which may run before the call
 * returns if another thread than the loop's submits. -1 with RESOURCE_EXHAUSTED when too much waits for the user already: then
 * nothing of the work is called. */
int loop_submit(struct loop *loop, struct loop_work *work, struct error *error);
/* The same for a further step of what was submitted once: never refused. */
void loop_continue(struct loop *loop, struct loop_work *work);
/* Between submit and done: work that no helper has begun is not begun any more, and `done` runs soon without do_work. Otherwise
 * nothing changes. */
void loop_cancel(struct loop *loop, struct loop_work *work);
/* Helper thread, in do_work, before it asks what `lanes` stand for as well: a link led to another file system. Adds them to the
 * work's lane, and waits for its turn there. -1 with UNAVAILABLE when no request there was answered for a second. On other
 * threads, and for work without a lane, it does nothing and returns 0. */
int loop_enter_lane(uint64_t lanes, struct error *error);

/* The lane of a number: four bits, so that lanes are OR'd into sets. A set of three seems to contain a fourth that it does not
 * have one time in a thousand. */
static inline uint64_t loop_lane_of(uint64_t number)
{
    uint64_t hash = (number + 1) * 0x9e3779b97f4a7c15, bits = 0;
    for (int i = 1; i <= 4; i++)
        bits |= (uint64_t)1 << (hash >> (64 - 6 * i) & 63);
    return bits;
}
/* Up to `room` lanes of work on helpers that asks file systems or servers now. Any thread; the number of them. */
size_t loop_list_lanes(struct loop *loop, uint64_t *lanes, size_t room);

/* Work of that pool: what waits for a helper, and what helpers are at. Any thread. */
struct loop_queue {
    size_t waiting, running;
};
struct loop_queue loop_queue_of(struct loop *loop, enum loop_pool pool);

/* Calls fn after delay_ms, then every repeat_ms (0 = once). Destroy accepts NULL and stops it. */
struct loop_timer *loop_timer_create(struct loop *loop, void (*fn)(void *data), void *data);
void loop_timer_start(struct loop_timer *timer, uint64_t delay_ms, uint64_t repeat_ms);
void loop_timer_stop(struct loop_timer *timer);
void loop_timer_destroy(struct loop_timer *timer);

enum loop_events { LOOP_READABLE = 1, LOOP_WRITABLE = 2, LOOP_HANGUP = 4 };
/* Watches a descriptor, which stays the caller's; destroy the watch before closing it. NULL when the
 * descriptor cannot be watched (a plain file). Makes it non-blocking. Destroy accepts NULL. */
struct loop_watch *loop_watch_create(struct loop *loop, int fd, int events, void (*fn)(void *data, int events), void *data);
void loop_watch_change(struct loop_watch *watch, int events); /* what it watches for from now on */
void loop_watch_destroy(struct loop_watch *watch);

/* Calls fn each time before the loop waits: for what is better done once for everything that has happened. */
struct loop_turn;
struct loop_turn *loop_turn_create(struct loop *loop, void (*fn)(void *data), void *data);
void loop_turn_destroy(struct loop_turn *turn); /* accepts NULL */

/* Calls fn on the loop for each of these signals. */
void loop_on_signal(struct loop *loop, int signal_number, void (*fn)(void *data, int signal_number), void *data);

#endif
