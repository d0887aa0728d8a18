/* The process while nothing is left but its spare memory, which has been opened: what grows is refused then, small things are had. */
#ifndef SUPPORT_WITHOUT_MEMORY_H
#define SUPPORT_WITHOUT_MEMORY_H

#include <sys/resource.h>

#include "base/spare_memory.h"

/* Sanitizers end the process where they get no memory. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SKIP_WITHOUT_MEMORY() skip()
#else
#define SKIP_WITHOUT_MEMORY() ((void)0)
#endif

static inline struct rlimit without_memory_begin(void)
{
    struct rlimit before;
    struct error error;
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    assert_int_equal(spare_memory_keep(&error), 0);
    assert_int_equal(setrlimit(RLIMIT_AS, &(struct rlimit){1 << 20, before.rlim_max}), 0);
    spare_memory_open();
    return before;
}

static inline void without_memory_end(struct rlimit before)
{
    spare_memory_give();
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
}

#endif
