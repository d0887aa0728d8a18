/* A lock-free flag, because signal handlers raise it; whoever waits looks at it (see wait.h). */
#include "cancel.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/memory.h"

struct tc_cancel {
    atomic_bool raised;
    int reader_of; /* + 1; 0 = nobody's */
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

bool cancel_is_raised(const struct tc_cancel *cancel)
{
    return atomic_load(&cancel->raised) || (cancel->reader_of && cancel_reader_left(cancel->reader_of - 1));
}
