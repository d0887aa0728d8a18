/* A fixed table, since a signal handler can neither lock nor allocate; see bus_guard.h. A row is free while its end is 0,
 * being written while that is 1. */
#include "device/bus_guard.h"

#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>

#include "base/huge_pages.h"

struct bus_guard {
    uintptr_t start, end; /* atomic, both */
    bool is_broken;       /* atomic */
};

enum { ROW_FREE = 0, ROW_BUSY = 1 };

static struct bus_guard guards[BUS_GUARD_MAX];
static struct sigaction before;

static struct bus_guard *find_guard(uintptr_t address)
{
    for (size_t i = 0; i < BUS_GUARD_MAX; i++) {
        uintptr_t end = __atomic_load_n(&guards[i].end, __ATOMIC_ACQUIRE);
        if (end > ROW_BUSY && address < end && address >= __atomic_load_n(&guards[i].start, __ATOMIC_RELAXED))
            return &guards[i];
    }
    return NULL;
}

/* Of the size of a huge page: a mapping of such pages cannot be replaced in smaller pieces. mmap() is a mere system call. */
static void on_bus_error(int signal_number, siginfo_t *info, void *context)
{
    uintptr_t address = (uintptr_t)info->si_addr, page = address & ~(uintptr_t)(HUGE_PAGE_BYTES - 1);
    bool is_sent = info->si_code <= 0; /* by a process: then there is no address */
    struct bus_guard *guard = is_sent ? NULL : find_guard(address);
    if (guard && mmap((void *)page, HUGE_PAGE_BYTES, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED) {
        __atomic_store_n(&guard->is_broken, true, __ATOMIC_RELEASE);
        return;
    }
    if (before.sa_flags & SA_SIGINFO) {
        before.sa_sigaction(signal_number, info, context);
        return;
    }
    sigaction(signal_number, &before, NULL); /* the same access again, as if there was no guard */
    if (is_sent)
        raise(signal_number);
}

static void install(void)
{
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | SA_RESTART | SA_NODEFER};
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, &before);
}

int bus_guard_begin(void *address, size_t bytes, struct bus_guard **guard, struct error *error)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, install);
    for (size_t i = 0; i < BUS_GUARD_MAX; i++) {
        uintptr_t row_free = ROW_FREE;
        if (!__atomic_compare_exchange_n(&guards[i].end, &row_free, ROW_BUSY, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
            continue;
        __atomic_store_n(&guards[i].is_broken, false, __ATOMIC_RELAXED);
        __atomic_store_n(&guards[i].start, (uintptr_t)address, __ATOMIC_RELAXED);
        __atomic_store_n(&guards[i].end, (uintptr_t)address + bytes, __ATOMIC_RELEASE);
        *guard = &guards[i];
        return 0;
    }
    return fail(error, ERROR_RESOURCE_EXHAUSTED, "TOO_MANY_REGIONS", "%d loads into memory of clients are under way",
                BUS_GUARD_MAX);
}

bool bus_guard_is_broken(const struct bus_guard *guard)
{
    return __atomic_load_n(&guard->is_broken, __ATOMIC_ACQUIRE);
}

void bus_guard_end(struct bus_guard *guard)
{
    if (guard)
        __atomic_store_n(&guard->end, ROW_FREE, __ATOMIC_RELEASE);
}
