/* Copies in flight: which devices still read from a piece of host memory. The memory may be written again, unpinned or freed
 * once they have landed.
 *
 * A flight belongs to the owner of the memory. Errors need no handling here: a device whose copies fail is out of service,
 * and device_seal() says so for every segment on it. */
#ifndef EXECUTE_FLIGHT_H
#define EXECUTE_FLIGHT_H

#include <stddef.h>
#include <stdint.h>

enum { FLIGHT_MAX_MARKS = 8 };

struct device;
struct item;

struct flight {
    struct flight_mark {
        struct device *device;
        uint64_t mark;
    } marks[FLIGHT_MAX_MARKS];
    size_t n_marks;
};

/* Takes note of what the calling thread has queued for the parts of this item. */
void flight_begin(struct flight *flight, const struct item *item);
void flight_land(struct flight *flight); /* waits */

#endif
