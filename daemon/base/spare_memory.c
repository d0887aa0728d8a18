/* One mapping. It is opened by unmapping it; malloc() finds the room that it leaves. See spare_memory.h. */
#include "base/spare_memory.h"

#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>

static struct {
    atomic_flag is_locked; /* malloc() comes here: nothing that allocates may wait */
    _Atomic(void *) mapping;
    atomic_bool is_wanted;
} spare = {.is_locked = ATOMIC_FLAG_INIT};

static void lock(void)
{
    while (atomic_flag_test_and_set_explicit(&spare.is_locked, memory_order_acquire))
        sched_yield();
}

static void unlock(void)
{
    atomic_flag_clear_explicit(&spare.is_locked, memory_order_release);
}

static void take_again(void)
{
    void *fresh = mmap(NULL, SPARE_MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    lock();
    if (fresh != MAP_FAILED && !spare.mapping && spare.is_wanted) {
        spare.mapping = fresh;
        fresh = MAP_FAILED;
    }
    unlock();
    if (fresh != MAP_FAILED)
        munmap(fresh, SPARE_MEMORY_BYTES);
}

int spare_memory_keep(struct error *error)
{
    spare.is_wanted = true;
    take_again();
    if (spare.mapping)
        return 0;
    return fail(error, ERROR_RESOURCE_EXHAUSTED, "OUT_OF_MEMORY",
                "there are no %d MiB of memory to keep for when there is none; raise the limit (ulimit -v, LimitAS=)",
                SPARE_MEMORY_BYTES >> 20);
}

static void unmap(void)
{
    lock(); /* until it is unmapped, so that others who fail do not try again too early */
    void *mapping = atomic_exchange(&spare.mapping, NULL);
    if (mapping)
        munmap(mapping, SPARE_MEMORY_BYTES);
    unlock();
}

void spare_memory_give(void)
{
    spare.is_wanted = false;
    unmap();
}

void spare_memory_open(void)
{
    if (spare.is_wanted)
        unmap();
}

bool spare_memory_is_kept(void)
{
    if (!spare.is_wanted || spare.mapping)
        return true;
    take_again();
    return spare.mapping != NULL;
}
