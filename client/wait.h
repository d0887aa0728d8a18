/* How long a call may wait and who may end it early: a deadline and a cancel flag, looked at every few milliseconds because
 * a signal handler may only raise it. Any thread. */
#ifndef CLIENT_WAIT_H
#define CLIENT_WAIT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "tensorcast.h"

enum { WAIT_SLICE_MS = 20, WAIT_TOLD_MS = 500, WAIT_TOLD_AGAIN_MS = 400, WAIT_TOLD_CHARS = 256 };

struct wait {
    uint64_t deadline_ns;           /* clock_now_ns() scale; UINT64_MAX = none */
    uint64_t timeout_ms;            /* it came from; for messages */
    const struct tc_cancel *cancel; /* may be NULL */
    /* Of a call that is silent for WAIT_TOLD_MS, and then every WAIT_TOLD_AGAIN_MS; non-zero ends it. NULL = not at all.
     * told: what was told, for the error should the deadline pass. */
    int (*tell)(const struct wait *wait, const char *method, char told[WAIT_TOLD_CHARS]);
    struct tc_client *client; /* for `tell`, as are the options */
    const struct tc_options *options;
};

struct wait wait_begin(uint64_t timeout_ms, const struct tc_cancel *cancel); /* timeout_ms 0 = none */
bool wait_is_cancelled(const struct wait *wait);
/* -1: cancelled, or the deadline has passed. */
int wait_check(const struct wait *wait, struct error *error);
int wait_deadline_exceeded(const struct wait *wait, struct error *error); /* fills error, returns -1 */
int wait_cancelled(struct error *error);                                  /* the same for CANCELLED */
/* Until fd is readable: 0, or -1 as wait_check(). */
int wait_readable(const struct wait *wait, int fd, struct error *error);

/* A flag that is raised once. Any thread, and signal handlers. */
/* From now on it also counts as raised when the reader of `fd`, a pipe or a socket, has gone. Before it is used
 * by another thread. */
void cancel_watch_reader(struct tc_cancel *cancel, int fd);
bool cancel_reader_left(int fd);

#endif
