/* One thread that sleeps most of the time, and two numbers that it looks at. */
#include "watchdog.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/condition.h"
#include "base/memory.h"
#include "observe/log.h"
#include "supervisor.h"

enum { BEAT_MS = 200, LAST_LINES_MS = 1000, BEATS_PER_TIMEOUT = 3 };

struct watchdog {
    struct loop_timer *timer;
    pid_t loop_thread;
    uint64_t notify_every_ns, notified_ns;                        /* 0 = not asked for */
    _Atomic uint64_t beat_ns, exit_at_ns, lost_loads, lost_bytes; /* beat 0 = do not listen; exit 0 = never */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_ending; /* under lock */
};

static void beat(void *data)
{
    struct watchdog *watchdog = data;
    uint64_t now = clock_now_ns();
    watchdog->beat_ns = now;
    if (!watchdog->notify_every_ns || now - watchdog->notified_ns < watchdog->notify_every_ns)
        return;
    watchdog->notified_ns = now;
    supervisor_notify("WATCHDOG=1");
}

void watchdog_exit(const struct watchdog *watchdog)
{
    log_error("stop_forced", LOG_U64("loads", watchdog->lost_loads), LOG_U64("bytes_left", watchdog->lost_bytes),
              LOG_TEXT("message", "the time for a stop is over; what still runs, such as a read of a dead mount, is left "
                                  "to the kernel"));
    log_flush(LAST_LINES_MS);
    _exit(WATCHDOG_FORCED_EXIT);
}

struct stall {
    uint64_t told_ns; /* how long it was when we said so last; 0 = the loop turns */
    uint64_t for_ns;
};

static void look_at_the_loop(const struct watchdog *watchdog, struct stall *stall)
{
    char path[64], name[64];
    uint64_t beat_ns = watchdog->beat_ns, now = clock_now_ns();
    uint64_t for_ns = beat_ns && now > beat_ns ? now - beat_ns : 0;
    uint64_t next_ns = stall->told_ns ? 2 * stall->told_ns : (uint64_t)WATCHDOG_STALL_MS * NS_PER_MS;
    if (for_ns >= next_ns) {
        stall->told_ns = for_ns;
        /* where in the kernel the loop's thread waits; "0" when it runs, "" when that is not to be seen */
        snprintf(path, sizeof path, "/proc/self/task/%d/wchan", (int)watchdog->loop_thread);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? 0 : read(fd, name, sizeof name - 1);
        if (fd >= 0)
            close(fd);
        name[n > 0 ? n : 0] = '\0';
        log_warn("loop_stalled", LOG_MS("for_ms", for_ns), LOG_TEXT("in", name));
    } else if (stall->told_ns && for_ns < (uint64_t)WATCHDOG_STALL_MS * NS_PER_MS) {
        log_warn("loop_resumed", LOG_MS("stalled_ms", stall->for_ns));
        stall->told_ns = 0;
    }
    stall->for_ns = for_ns;
}

/* False: it is to end. */
static bool sleep_a_beat(struct watchdog *watchdog)
{
    uint64_t until_ns = clock_now_ns() + (uint64_t)BEAT_MS * NS_PER_MS;
    pthread_mutex_lock(&watchdog->lock);
    while (!watchdog->is_ending && clock_now_ns() < until_ns)
        condition_wait_until(&watchdog->changed, &watchdog->lock, until_ns);
    bool goes_on = !watchdog->is_ending;
    pthread_mutex_unlock(&watchdog->lock);
    return goes_on;
}

static void *listen_for_beats(void *data)
{
    struct watchdog *watchdog = data;
    struct stall stall = {0};
    uint64_t before = clock_now_ns();
    while (sleep_a_beat(watchdog)) {
        uint64_t now = clock_now_ns(), exit_at = watchdog->exit_at_ns;
        bool overslept =
            now - before > 3 * (uint64_t)BEAT_MS * NS_PER_MS; /* the whole process was stopped, or the host busy */
        before = now;
        if (exit_at && now >= exit_at)
            watchdog_exit(watchdog);
        if (!overslept)
            look_at_the_loop(watchdog, &stall);
    }
    return NULL;
}

struct watchdog *watchdog_create(struct loop *loop)
{
    struct watchdog *watchdog = memory_alloc(sizeof *watchdog);
    sigset_t all, old;
    uint64_t period_ms = BEAT_MS;
    watchdog->loop_thread = gettid();
    watchdog->notify_every_ns = supervisor_watchdog_ns() / BEATS_PER_TIMEOUT;
    if (watchdog->notify_every_ns && watchdog->notify_every_ns < period_ms * NS_PER_MS)
        period_ms = watchdog->notify_every_ns / NS_PER_MS + 1;
    pthread_mutex_init(&watchdog->lock, NULL);
    pthread_cond_init(&watchdog->changed, NULL);
    watchdog->timer = loop_timer_create(loop, beat, watchdog);
    loop_timer_start(watchdog->timer, 0, period_ms);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    if (pthread_create(&watchdog->thread, NULL, listen_for_beats, watchdog))
        abort(); /* at start only */
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return watchdog;
}

void watchdog_stop_listening(struct watchdog *watchdog)
{
    if (!watchdog)
        return;
    loop_timer_destroy(watchdog->timer);
    watchdog->timer = NULL;
    watchdog->beat_ns = 0;
}

void watchdog_exit_at(struct watchdog *watchdog, uint64_t when_ns)
{
    uint64_t old = watchdog->exit_at_ns;
    while ((!old || when_ns < old) && !atomic_compare_exchange_weak(&watchdog->exit_at_ns, &old, when_ns))
        ;
}

void watchdog_set_lost(struct watchdog *watchdog, uint64_t loads, uint64_t bytes)
{
    watchdog->lost_loads = loads;
    watchdog->lost_bytes = bytes;
}

void watchdog_destroy(struct watchdog *watchdog)
{
    if (!watchdog)
        return;
    watchdog_stop_listening(watchdog);
    pthread_mutex_lock(&watchdog->lock);
    watchdog->is_ending = true;
    pthread_cond_signal(&watchdog->changed);
    pthread_mutex_unlock(&watchdog->lock);
    pthread_join(watchdog->thread, NULL);
    pthread_cond_destroy(&watchdog->changed);
    pthread_mutex_destroy(&watchdog->lock);
    free(watchdog);
}
