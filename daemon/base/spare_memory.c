/* Two mappings. Each is opened by unmapping it; malloc() finds the room that it leaves. See spare_memory.h. */
#include "base/spare_memory.h"

#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>

enum { N_PARTS = 2 };

static const size_t part_bytes[N_PARTS] = {SPARE_MEMORY_BYTES, SPARE_MEMORY_LAST_BYTES};

static struct {
    atomic_flag is_locked; /* malloc() comes here: nothing that allocates may wait */
    _Atomic(void *) parts[N_PARTS];
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

static void take_again(size_t i)
{
    if (spare.parts[i])
        return;
    void *fresh = mmap(NULL, part_bytes[i], PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    lock();
    if (fresh != MAP_FAILED && !spare.parts[i] && spare.is_wanted) {
        spare.parts[i] = fresh;
        fresh = MAP_FAILED;
    }
    unlock();
    if (fresh != MAP_FAILED)
        munmap(fresh, part_bytes[i]);
}

/* The last part first: the other one is of no use to who finds it opened and taken. */
static bool take_all_again(void)
{
    bool has_all = true;
    for (size_t i = N_PARTS; i-- > 0;) {
        take_again(i);
        has_all = spare.parts[i] && has_all;
    }
    return has_all;
}

int spare_memory_keep(struct error *error)
{
    spare.is_wanted = true;
    if (take_all_again())
        return 0;
    return fail(error, ERROR_RESOURCE_EXHAUSTED, "OUT_OF_MEMORY",
                "there are no %d MiB of memory to keep for when there is none; raise the limit (ulimit -v, LimitAS=)",
                (SPARE_MEMORY_BYTES + SPARE_MEMORY_LAST_BYTES) >> 20);
}

static bool unmap(size_t i)
{
    lock(); /* until it is unmapped, so that others who fail do not try again too early */
    void *part = atomic_exchange(&spare.parts[i], NULL);
    if (part)
        munmap(part, part_bytes[i]);
    unlock();
    return part != NULL;
}

void spare_memory_give(void)
{
    spare.is_wanted = false;
    for (size_t i = 0; i < N_PARTS; i++)
        unmap(i);
}

bool spare_memory_open(void)
{
    bool is_open = false;
    for (size_t i = 0; i < N_PARTS && !is_open && spare.is_wanted; i++)
        is_open = unmap(i);
    return is_open;
}

bool spare_memory_is_kept(void)
{
    return !spare.is_wanted || (spare.parts[0] && spare.parts[1]) || take_all_again();
}
