/* Tells the thread that waits for a read how many of its bytes have come so far. Counting is all it is for: bytes that have to
 * be asked for again, or come twice, are told twice. A call for each piece that is received, by the thread that received it,
 * and never after the read has returned: it adds and does nothing else. */
#ifndef BASE_ARRIVAL_H
#define BASE_ARRIVAL_H

#include <stdint.h>

struct arrival {
    void (*tell)(struct arrival *arrival, uint64_t bytes);
};

/* NULL: nothing is told. */
static inline void arrival_tell(struct arrival *arrival, uint64_t bytes)
{
    if (arrival)
        arrival->tell(arrival, bytes);
}

#endif
