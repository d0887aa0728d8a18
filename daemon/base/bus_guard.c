/* One handler. In a copy it jumps back to where that began; in a guarded range it replaces the page.
 *
 * SIGBUS of the kernel is raised by an instruction of the thread itself, and between the two stores to `start` those that
 * read there are of copy_streaming_row() alone, which has no state and takes no lock: leaving it half-way leaves nothing
 * behind. The handler restores the signal mask by itself, so that setting the mark costs no system call.
 *
 * Ranges are in a fixed table, since a signal handler can neither lock nor allocate. A row is free while its end is 0, being
 * written while that is 1. */
#include "base/bus_guard.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "base/copy.h"
#include "base/huge_pages.h"

struct bus_guard {
    uintptr_t start, end; /* atomic, both */
    bool is_broken;       /* atomic */
};

enum { ROW_FREE = 0, ROW_BUSY = 1 };

static struct bus_guard guards[BUS_GUARD_MAX];
static _Thread_local struct {
    volatile uintptr_t start, end; /* of what is copied now; 0 = nothing */
    bool is_unblocked;             /* in this thread */
    sigjmp_buf escape;
} copying;
static struct sigaction before;
static pthread_once_t installing = PTHREAD_ONCE_INIT;

static struct bus_guard *find_guard(uintptr_t address)
{
    for (size_t i = 0; i < BUS_GUARD_MAX; i++) {
        uintptr_t end = __atomic_load_n(&guards[i].end, __ATOMIC_ACQUIRE);
        if (end > ROW_BUSY && address < end && address >= __atomic_load_n(&guards[i].start, __ATOMIC_RELAXED))
            return &guards[i];
    }
    return NULL;
}

static void on_bus_error(int signal_number, siginfo_t *info, void *context)
{
    uintptr_t address = (uintptr_t)info->si_addr, page = address & ~(uintptr_t)(HUGE_PAGE_BYTES - 1);
    bool is_sent = info->si_code <= 0; /* by a process: then there is no address */
    if (!is_sent && copying.start <= address && address < copying.end) {
        copying.start = copying.end = 0;
        pthread_sigmask(SIG_SETMASK, &((const ucontext_t *)context)->uc_sigmask, NULL); /* as returning from here would do */
        siglongjmp(copying.escape, 1);
    }
    struct bus_guard *guard = is_sent ? NULL : find_guard(address);
    /* of the size of a huge page: a mapping of such pages cannot be replaced in smaller pieces; mmap() is a mere system call */
    if (guard && mmap((void *)page, HUGE_PAGE_BYTES, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED) {
        __atomic_store_n(&guard->is_broken, true, __ATOMIC_RELEASE);
        return;
    }
    if (before.sa_flags & SA_SIGINFO) {
        before.sa_sigaction(signal_number, info, context);
    } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
        before.sa_handler(signal_number);
    } else {
        sigaction(signal_number, &before, NULL); /* the same access again, as if there was no guard */
        if (is_sent)
            raise(signal_number);
    }
}

static void install(void)
{
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | SA_RESTART | SA_NODEFER};
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, &before);
}

int bus_guard_copy(void *dst, const void *src, size_t bytes)
{
    if (!copying.is_unblocked) {
        sigset_t bus_error;
        pthread_once(&installing, install);
        sigemptyset(&bus_error);
        sigaddset(&bus_error, SIGBUS);
        pthread_sigmask(SIG_UNBLOCK, &bus_error, NULL);
        copying.is_unblocked = true;
    }
    if (sigsetjmp(copying.escape, 0))
        return -1;
    copying.start = (uintptr_t)src;
    copying.end = copying.start + bytes;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    copy_streaming_row(dst, src, bytes);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    copying.start = copying.end = 0;
    return 0;
}

int bus_guard_begin(void *address, size_t bytes, struct bus_guard **guard, struct error *error)
{
    pthread_once(&installing, install);
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
