/* How much memory there is, and how much may be taken ahead of need. Any thread; reads a few files of /proc and /sys, 50 us. */
#ifndef BASE_HOST_HEADROOM_H
#define BASE_HOST_HEADROOM_H

#include <stdbool.h>
#include <stdint.h>

struct host_headroom {
    uint64_t limit_bytes;     /* UINT64_MAX, here and in the next: nothing tells */
    uint64_t available_bytes; /* of it */
    uint64_t free_bytes;      /* beyond an eighth of all, which is left for others */
    bool is_short;            /* less than a sixteenth of all is left: spare memory is to be given back */
};

/* Of the host and of each memory cgroup above this process, of version 1 or 2: the least. Memory that the
 * kernel frees by dropping file pages counts as free (MemAvailable); memory that it frees by swapping does not.
 * `root` goes before the paths; "" = the real ones. */
struct host_headroom host_headroom_at(const char *root);

#endif
