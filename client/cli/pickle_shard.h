/* A shard of activations as document 002's programs write them: {layer: [{"sample_idx", "activation", "shape",
 * "text_preview"}]}, where a layer is a number or "layer_N". Pure; any thread. */
#ifndef CLI_PICKLE_SHARD_H
#define CLI_PICKLE_SHARD_H

#include "base/arena.h"
#include "base/error.h"
#include "pickle_value.h"

enum { PICKLE_SHARD_MAX_SAMPLE = 99999999, PICKLE_SHARD_MAX_LAYER = 1 << 30 };

struct pickle_activation {
    uint32_t layer, sample;
    const struct pickle_array *array;
    const unsigned char *preview; /* UTF-8 that nobody has checked; NULL = it has none */
    uint64_t preview_bytes;
};

struct pickle_shard {
    struct pickle_activation *list; /* in the shard's order */
    size_t n;
};

/* All of it points into `bytes` and the arena. Fails as pickle_read() does, and with INVALID_ARGUMENT (NOT_A_SHARD) telling
 * the layer and the entry. */
int pickle_shard_read(const unsigned char *bytes, uint64_t n_bytes, struct arena *arena, struct pickle_shard *shard,
                      struct error *error);

#endif
