/* Writes tensors as a safetensors file, in their order, so that the official readers take it: one header, padded with
 * blanks to a multiple of 8, then the data without gaps. Where it goes is out_file.h's business. Blocks. */
#ifndef CLI_SAFETENSORS_WRITER_H
#define CLI_SAFETENSORS_WRITER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "client/report_json.h"

/* `stopped` (may be NULL) is asked every few MiB; true ends it with CANCELLED. After an error the path is as it was. */
int safetensors_writer_write(const char *path, const struct report_json_tensor *tensors, size_t n_tensors,
                             bool (*stopped)(void), struct error *error);

/* Length field and header of these tensors, and how long it is. The caller frees. NULL when it would be longer than the
 * format allows. Pure. */
char *safetensors_writer_header(const struct report_json_tensor *tensors, size_t n_tensors, size_t *length,
                                struct error *error);

#endif
