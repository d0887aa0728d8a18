/* A sample: one array per layer, under a number that its host uses once. Values; any thread. */
#ifndef ACTIVATIONS_SAMPLE_H
#define ACTIVATIONS_SAMPLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/activation_name.h"
#include "base/dtype.h"
#include "base/error.h"

enum {
    SAMPLE_MAX_TENSORS = 65536,
    SAMPLE_MAX_RANK = 64, /* what readers of safetensors take here */
    SAMPLE_MAX_INFO_BYTES = 1 << 20,
};
#define SAMPLE_MAX_BYTES ((uint64_t)1 << 46)

struct sample_tensor { /* in C order, without a gap to the one before */
    uint64_t bytes;
    const uint64_t *shape; /* rank numbers, borrowed */
    uint32_t layer, rank;
    enum dtype dtype;
    bool is_narrowed; /* BF16 that was F32 with zeros in the lower half of every element */
};

struct sample {
    uint32_t id;
    const struct sample_tensor *tensors; /* borrowed; in the order of their bytes */
    size_t n_tensors;
    const char *info; /* a JSON object about it, borrowed; info_bytes 0 = none */
    size_t info_bytes;
    uint64_t bytes; /* of all tensors */
};

/* Works out `bytes` of the tensors, which are the caller's own, and of the sample. INVALID_ARGUMENT naming the sample: its
 * number, a layer that comes twice, a shape whose size is none, text that is no JSON object. */
int sample_check(struct sample *sample, struct sample_tensor *tensors, struct error *error);

#endif
