/* Waiting on a condition until a point of CLOCK_MONOTONIC. */
#ifndef SOURCE_HTTP_WAIT_H
#define SOURCE_HTTP_WAIT_H

#include <pthread.h>
#include <stdint.h>

#include "base/clock.h"

/* Nobody tells a waiter that its cancel was set: it asks this often, and looks at its deadlines meanwhile. */
#define HTTP_ASK_AGAIN_NS (50 * (uint64_t)NS_PER_MS)

static inline void http_wait_init(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
}

static inline void http_wait_until(pthread_cond_t *condition, pthread_mutex_t *lock, uint64_t until_ns)
{
    struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000u), .tv_nsec = (long)(until_ns % 1000000000u)};
    pthread_cond_timedwait(condition, lock, &until);
}

static inline uint64_t http_sooner(uint64_t a_ns, uint64_t b_ns)
{
    return a_ns < b_ns ? a_ns : b_ns;
}

#endif
