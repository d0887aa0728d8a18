/* A variant as one safetensors file, made of windows of its tensors: no more memory than the largest tensor, or 64 MiB. */
#ifndef CLI_VARIANT_FILE_H
#define CLI_VARIANT_FILE_H

#include "backend.h"

struct variant_file {
    struct report_json_tensor *tensors; /* in the order of the file */
    size_t n_tensors;
    char *head; /* length field and header */
    size_t head_bytes;
    uint64_t file_bytes;
    struct catalog *catalog;
};

/* What it will be. To be given to variant_file_fini() also after a failure. */
int variant_file_plan(struct backend *backend, struct variant_file *file, struct error *error);
/* ABORTED when the artifact changed since it was planned. */
int variant_file_write(struct backend *backend, const struct variant_file *file, int fd, struct error *error);
void variant_file_fini(struct variant_file *file); /* accepts a zeroed one */

#endif
