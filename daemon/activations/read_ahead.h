/* Reads a file from its beginning to its end past the page cache, the next piece while the one before is used. */
#ifndef ACTIVATIONS_READ_AHEAD_H
#define ACTIVATIONS_READ_AHEAD_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* Calls take() with file_bytes bytes, piece by piece, in order, on this thread; a second one reads until this returns. The
 * descriptor is nobody else's meanwhile. DATA_LOSS: the file ends before. `name` is for errors. Blocks. */
int read_ahead(int fd, const char *name, uint64_t file_bytes, void (*take)(void *data, const void *bytes, size_t count),
               void *data, struct error *error);

#endif
