/* Reads a window straight into place, with as few system calls as there are extents. */
#ifndef EXECUTE_SCATTER_H
#define EXECUTE_SCATTER_H

#include "execute/engine_private.h"

/* All parts have host addresses; extents and clips are collected. Bytes that several parts want are read into the first and
 * copied to the others. Returns -1 when reading fails. */
int scatter_window(struct worker *worker, struct error *error);

#endif
