/* How long the waits of HTTP requests are; how they wait is in base/condition.h. */
#ifndef SOURCE_HTTP_WAIT_H
#define SOURCE_HTTP_WAIT_H

#include <stdint.h>

#include "base/clock.h"

/* Nobody tells a waiter that its cancel was set: it asks this often, and looks at its deadlines meanwhile. */
#define HTTP_ASK_AGAIN_NS (50 * (uint64_t)NS_PER_MS)

static inline uint64_t http_sooner(uint64_t a_ns, uint64_t b_ns)
{
    return a_ns < b_ns ? a_ns : b_ns;
}

#endif
