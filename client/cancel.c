/* A lock-free flag, because signal handlers raise it; whoever waits looks at it (see wait.h). */
#include "cancel.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/memory.h"

struct tc_cancel {
    atomic_bool raised;
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

bool cancel_is_raised(const struct tc_cancel *cancel)
{
    return atomic_load(&cancel->raised);
}
