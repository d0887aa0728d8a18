/* Deadlines and the cancel flag; see wait.h. */
#include "wait.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"

/* --- cancel --- */

struct tc_cancel {
    atomic_bool raised;
    int reader_of; /* + 1; 0 = of no descriptor */
};
_Static_assert(ATOMIC_BOOL_LOCK_FREE == 2, "a signal handler may set it");

struct tc_cancel *tc_cancel_create(void)
{
    return memory_alloc(sizeof(struct tc_cancel));
}

void tc_cancel_raise(struct tc_cancel *cancel)
{
    atomic_store(&cancel->raised, true);
}

void tc_cancel_destroy(struct tc_cancel *cancel)
{
    free(cancel);
}

void cancel_watch_reader(struct tc_cancel *cancel, int fd)
{
    cancel->reader_of = fd + 1;
}

bool cancel_reader_left(int fd)
{
    struct pollfd out = {.fd = fd};
    return poll(&out, 1, 0) == 1 && (out.revents & (POLLERR | POLLHUP));
}

struct wait wait_begin(uint64_t timeout_ms, const struct tc_cancel *cancel)
{
    uint64_t now = clock_now_ns(), room = UINT64_MAX - now;
    bool endless = timeout_ms == 0 || timeout_ms >= room / NS_PER_MS;
    return (struct wait){
        .deadline_ns = endless ? UINT64_MAX : now + timeout_ms * NS_PER_MS, .timeout_ms = timeout_ms, .cancel = cancel};
}

bool wait_is_cancelled(const struct wait *wait)
{
    return wait->cancel && (atomic_load(&wait->cancel->raised) ||
                            (wait->cancel->reader_of && cancel_reader_left(wait->cancel->reader_of - 1)));
}

int wait_cancelled(struct error *error)
{
    return fail(error, ERROR_CANCELLED, "CANCELLED", "cancelled by the caller");
}

int wait_deadline_exceeded(const struct wait *wait, struct error *error)
{
    return fail(error, ERROR_DEADLINE_EXCEEDED, REASON(DEADLINE_EXCEEDED), "not done within the time limit of %llu ms",
                (unsigned long long)wait->timeout_ms);
}

int wait_check(const struct wait *wait, struct error *error)
{
    if (wait_is_cancelled(wait))
        return wait_cancelled(error);
    if (clock_now_ns() >= wait->deadline_ns)
        return wait_deadline_exceeded(wait, error);
    return 0;
}

int wait_readable(const struct wait *wait, int fd, struct error *error)
{
    struct pollfd poller = {.fd = fd, .events = POLLIN};
    for (;;) {
        if (wait_check(wait, error))
            return -1;
        int ready = poll(&poller, 1, WAIT_SLICE_MS);
        if (ready > 0)
            return 0;
        if (ready < 0 && errno != EINTR)
            return fail_errno(error, errno, "poll");
    }
}
