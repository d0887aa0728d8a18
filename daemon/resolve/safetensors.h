/* The safetensors header: bytes in, table out. Pure (no I/O); any thread.
 *
 * Rules and their order are those of the reference reader (safetensors/src/tensor.rs: read_metadata, validate), and
 * stricter in one point the format's text demands: a name may not occur twice. Errors are DATA_LOSS (a dtype we do not
 * know: UNIMPLEMENTED) with reasons named after the reference's error, and name the tensor where there is one. */
#ifndef RESOLVE_SAFETENSORS_H
#define RESOLVE_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/checksum.h"
#include "base/error.h"
#include "resolve/dtype.h"

enum { SAFETENSORS_MAX_HEADER_BYTES = 100000000, TENSOR_MAX_RANK = 64 };

struct safetensors_tensor {
    const char *name; /* NUL-terminated copy; name_length counts */
    uint32_t name_length;
    enum dtype dtype;
    uint32_t rank;
    const uint64_t *shape;
    uint64_t offset; /* absolute in the file */
    uint64_t bytes;
};

struct safetensors_header {             /* const and reference-counted once parsed */
    struct safetensors_tensor *tensors; /* by offset, then name */
    size_t n_tensors;
    uint64_t data_offset; /* 8 + header length */
    uint64_t file_bytes;
    uint64_t prefix_crcs[CHECKSUM_CRC64NVME + 1]; /* by kind, of the first data_offset bytes */
    struct arena arena;
    int references; /* atomic */
};

/* First 8 bytes -> length of the JSON, checked against the limit and the file's size. */
int safetensors_header_length(const unsigned char first[8], uint64_t file_bytes, uint64_t *json_bytes, struct error *error);
/* The JSON -> table. NULL on error. */
struct safetensors_header *safetensors_parse(const char *json, uint64_t json_bytes, uint64_t file_bytes,
                                             struct error *error);
struct safetensors_header *safetensors_ref(struct safetensors_header *header);
void safetensors_unref(struct safetensors_header *header); /* accepts NULL */

#endif
