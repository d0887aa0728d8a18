/* A part of a file as it lies in the page cache, to be summed and sent without a copy of its own.
 *
 * A process that may write the file may change these bytes at any moment, or cut them off; then zeros may be read here, and
 * the window is no longer whole. So a sender must tell the receiver a sum of what it read, made in one pass,
 * which the receiver compares: a second look may find other bytes than were sent. Any thread; one at a time
 * opens and closes. */
#ifndef SINK_SINK_WINDOW_H
#define SINK_SINK_WINDOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sink_window; /* opaque */

/* offset: of a page. NULL: it cannot be had, and the bytes have to be read. */
struct sink_window *sink_window_open(int fd, uint64_t offset, size_t count);
void sink_window_close(struct sink_window *window); /* accepts NULL */
const void *sink_window_bytes(const struct sink_window *window);
/* Every byte that was read so far was the file's. */
bool sink_window_is_whole(const struct sink_window *window);

#endif
