/* For tests of waits: a wall clock that is an hour ahead of what the kernel compares with. That is how a clock looks that is
 * set back by an hour while a thread waits, without setting any. Include it in the one file of a test. */
#ifndef TESTS_SUPPORT_CLOCK_AHEAD_H
#define TESTS_SUPPORT_CLOCK_AHEAD_H

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Instead of libc's, for everything that the test is linked from. */
int clock_gettime(clockid_t clock, struct timespec *now)
{
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    if (clock == CLOCK_REALTIME)
        now->tv_sec += 3600;
    return failed;
}

/* A wait that believes that clock ends the test instead of lasting an hour. */
static inline void clock_ahead_begin(void)
{
    alarm(60);
}

#endif
