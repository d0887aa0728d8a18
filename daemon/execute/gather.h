/* Reads a window into a staging buffer, past the page cache where that pays, and copies out of it. */
#ifndef EXECUTE_GATHER_H
#define EXECUTE_GATHER_H

#include "execute/item.h"
#include "execute/staging.h"
#include "execute/window.h"

/* Plans the requests for the window's extents and reads them into the buffer, whose `start` is set. */
int gather_read(struct item *item, struct window *window, struct staging_buffer *buffer, struct error *error);
/* Copies the window's clips of what its requests have brought. */
void gather_place(struct item *item, const struct window *window, struct staging_buffer *buffer);

#endif
