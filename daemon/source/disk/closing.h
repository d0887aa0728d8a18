/* Closes files where it may hang: a FUSE server is asked (FLUSH) when a descriptor is closed, and the last reference to an
 * artifact often goes on the loop. A thread for each batch closes it and ends. */
#ifndef SOURCE_CLOSING_H
#define SOURCE_CLOSING_H

#include <stddef.h>
#include <stdint.h>

/* Takes fds, from malloc; those below 0 are left out. Any thread; does not block while threads can be started. */
void closing_submit(uint64_t device_id, int *fds, size_t n_fds);
/* Up to `room` devices of which something is to be closed; the number of them. Any thread. */
size_t closing_list(uint64_t *device_ids, size_t room);

#endif
