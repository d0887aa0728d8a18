/* Reads a window into a staging buffer, past the page cache where that pays, and copies out of it. */
#ifndef EXECUTE_GATHER_H
#define EXECUTE_GATHER_H

#include "execute/engine_private.h"

/* Reads the extents into worker->buffer, whose `start` is set. direct = past the page cache. */
int gather_read(struct worker *worker, bool direct, struct error *error);
/* Copies the clips of what the requests have brought. */
void gather_place(struct worker *worker);

#endif
