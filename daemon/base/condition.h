/* Waiting on a condition until a point of CLOCK_MONOTONIC. A wait until a point of the wall clock gets longer by as much as that
 * clock is set back. */
#ifndef BASE_CONDITION_H
#define BASE_CONDITION_H

#include <pthread.h>
#include <stdint.h>
#include <time.h>

static inline void condition_init(pthread_cond_t *condition)
{
    pthread_cond_init(condition, NULL);
}

/* until_ns as clock_now_ns(), see base/clock.h. */
static inline void condition_wait_until(pthread_cond_t *condition, pthread_mutex_t *lock, uint64_t until_ns)
{
    struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000u), .tv_nsec = (long)(until_ns % 1000000000u)};
    pthread_cond_clockwait(condition, lock, CLOCK_MONOTONIC, &until);
}

#endif
