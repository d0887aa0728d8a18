/* Writes tensors as a safetensors file, in their order, so that the official readers take it: one header, padded with
 * blanks to a multiple of 8, then the data without gaps.
 *
 * A regular file appears or changes only when it is complete: the bytes go to an unnamed file (or, where the file system
 * has none, a hidden one) in the same folder, which is then renamed over the path; a symbolic link stays and what it leads
 * to is replaced. A path that is a device or a pipe is written straight. Blocks. */
#ifndef CLI_SAFETENSORS_WRITER_H
#define CLI_SAFETENSORS_WRITER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "loaded.h"

/* Would a file be accepted there? Asked before a long load; writes nothing. */
int safetensors_writer_check(const char *path, struct error *error);

/* `stopped` (may be NULL) is asked every few MiB; true ends it with CANCELLED. After an error the path is as it was. */
int safetensors_writer_write(const char *path, const struct loaded_tensor *tensors, size_t n_tensors, bool (*stopped)(void),
                             struct error *error);

/* Length field and header of these tensors, and how long it is. The caller frees. NULL when it would be longer than the
 * format allows. Pure. */
char *safetensors_writer_header(const struct loaded_tensor *tensors, size_t n_tensors, size_t *length, struct error *error);

#endif
