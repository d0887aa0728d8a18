/* A load's report as the JSON object of `tensorcast load --json`; without tensors, that of `explain` and `prewarm`.
 * The library makes it from what the daemon sent, the command line from its own engine: one writer, one shape. Pure. */
#ifndef CLIENT_REPORT_JSON_H
#define CLIENT_REPORT_JSON_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/digest.h"
#include "base/json.h"
#include "client/tensor_bytes.h"
#include "tensorcast/daemon/v1/store_daemon.pb-c.h"

struct report_json_tensor { /* of a load: where it is and how it is told of */
    const char *name;       /* name_length counts */
    size_t name_length;
    const char *dtype;
    const uint64_t *shape;
    size_t rank;
    uint64_t offset, bytes;
    const char *file;        /* that it lies in; NULL = it is in memory */
    const uint64_t *strides; /* in bytes; NULL = packed */
    const void *data;        /* NULL = not to be seen from here */
};

struct tensor_bytes report_json_elements(const struct report_json_tensor *tensor); /* of one whose data is to be seen */
void report_json_digest(const struct report_json_tensor *tensor, char hex[DIGEST_HEX_CHARS + 1]); /* SHA-256 of its data */

/* tensors NULL = no such list. with_digests: a sha256 of each whose data is to be seen. The caller frees. */
char *report_json(const Tensorcast__Daemon__V1__LoadReport *report, const struct report_json_tensor *tensors,
                  size_t n_tensors, bool with_digests);

#endif
