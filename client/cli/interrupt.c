/* The handler only touches a flag, the cancel object and an eventfd. The eventfd is what interrupt_sleep() waits for: the
 * signal may be delivered to any thread of the process, so EINTR alone would not wake the right one. */
#include "interrupt.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"

static volatile sig_atomic_t seen, deferred;
static struct tc_cancel *volatile cancel_of_load;
static int wakeup = -1;

static void on_signal(int signal_number)
{
    const uint64_t one = 1;
    int saved_errno = errno;
    (void)signal_number;
    if (!deferred || seen)
        _exit(INTERRUPT_EXIT_STATUS);
    seen = 1;
    if (cancel_of_load)
        tc_cancel_raise(cancel_of_load);
    if (write(wakeup, &one, sizeof one) < 0) {
        /* only a full counter fails, and then it is readable anyway */
    }
    errno = saved_errno;
}

void interrupt_install(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaddset(&action.sa_mask, SIGINT);
    sigaddset(&action.sa_mask, SIGTERM);
    wakeup = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

void interrupt_defer(struct tc_cancel *cancel)
{
    cancel_of_load = cancel;
    deferred = 1;
}

bool interrupt_seen(void)
{
    return seen;
}

void interrupt_sleep(uint64_t duration_ms)
{
    uint64_t end_ns = clock_now_ns() + duration_ms * NS_PER_MS;
    struct pollfd wait = {.fd = wakeup, .events = POLLIN};
    while (!seen) {
        uint64_t now_ns = clock_now_ns();
        if (now_ns >= end_ns)
            return;
        uint64_t left_ms = (end_ns - now_ns + NS_PER_MS - 1) / NS_PER_MS;
        poll(&wait, 1, left_ms < 60000 ? (int)left_ms : 60000);
    }
}
