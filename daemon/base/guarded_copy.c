/* A handler that jumps back into the copy of its thread; see guarded_copy.h.
 *
 * SIGBUS of the kernel is raised by an instruction of the thread itself, and between the two stores to `start` those that
 * read there are of copy_streaming_row() alone, which has no state and takes no lock: leaving it half-way leaves nothing behind.
 * The handler restores the signal mask by itself, so that setting the mark costs no system call. */
#include "base/guarded_copy.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <ucontext.h>

#include "base/copy.h"

struct guard {
    const unsigned char *volatile start, *volatile end; /* of what is copied now; NULL = nothing */
    bool is_unblocked;                                  /* in this thread */
    sigjmp_buf escape;
};

static _Thread_local struct guard guard;
static pthread_once_t installing = PTHREAD_ONCE_INIT;
static struct sigaction before;

/* What it would have done without us: an instruction that raised it raises it again. */
static void pass_on(int signal, siginfo_t *info, void *context)
{
    if (before.sa_flags & SA_SIGINFO) {
        before.sa_sigaction(signal, info, context);
    } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
        before.sa_handler(signal);
    } else {
        sigaction(SIGBUS, &before, NULL);
        if (info->si_code <= 0)
            raise(signal);
    }
}

static void on_bus_error(int signal, siginfo_t *info, void *context)
{
    const unsigned char *address = info->si_addr;
    bool is_ours = info->si_code > 0 && guard.start <= address && address < guard.end; /* and not sent by a process */
    if (!is_ours) {
        pass_on(signal, info, context);
        return;
    }
    guard.start = guard.end = NULL;
    pthread_sigmask(SIG_SETMASK, &((ucontext_t *)context)->uc_sigmask, NULL); /* as returning from here would do */
    siglongjmp(guard.escape, 1);
}

static void install_handler(void)
{
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, &before);
}

static void begin_thread(void)
{
    sigset_t bus_error;
    pthread_once(&installing, install_handler);
    sigemptyset(&bus_error);
    sigaddset(&bus_error, SIGBUS);
    pthread_sigmask(SIG_UNBLOCK, &bus_error, NULL);
    guard.is_unblocked = true;
}

int guarded_copy(void *dst, const void *src, size_t bytes)
{
    if (!guard.is_unblocked)
        begin_thread();
    if (sigsetjmp(guard.escape, 0))
        return -1;
    guard.start = src;
    guard.end = guard.start + bytes;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    copy_streaming_row(dst, src, bytes);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    guard.start = guard.end = NULL;
    return 0;
}
