/* A small file as a whole. Blocks. */
#ifndef CLI_READ_FILE_H
#define CLI_READ_FILE_H

#include <stddef.h>

#include "base/error.h"

/* RESOURCE_EXHAUSTED when it is longer. The caller frees; there is a NUL behind it. */
int read_file(const char *path, size_t max_bytes, char **text, size_t *length, struct error *error);

#endif
