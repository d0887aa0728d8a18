/* Reads shards of activations that were written as Python pickles, without executing anything: a stack machine that knows the
 * opcodes and globals which such a shard is made of, and refuses every other. docs/activations.md lists them.
 *
 *     {layer: [{"sample_idx": 17, "activation": array, "shape": (3, 5), "text_preview": "..."}, ...], ...}
 *
 * Pure: bytes in, entries out, which point into the bytes; any thread. Memory is bounded by PICKLE_MAX_ARENA_BYTES. */
#ifndef ACTIVATIONS_PICKLE_SHARD_H
#define ACTIVATIONS_PICKLE_SHARD_H

#include "activations/sample.h"

enum { PICKLE_MAX_ARENA_BYTES = 1 << 30 };

struct pickle_entry {
    uint32_t sample, layer;
    enum dtype dtype;
    uint32_t rank;
    const uint64_t *shape;      /* gone when the reader returns, as is all but the bytes and the text */
    const unsigned char *bytes; /* of its elements */
    uint64_t n_bytes;
    bool is_big_endian;
    const uint8_t *axes; /* the dimensions in the order in which they lie there, the slowest first; in C order 0, 1, 2 ... */
    const char *text;
    size_t text_bytes;
};

/* Protocols 4 and 5. `take` gets each entry, in the order of the shard. -1: DATA_LOSS or INVALID_ARGUMENT with the offset,
 * UNIMPLEMENTED for element types that there are not here, RESOURCE_EXHAUSTED, or what take() said. */
int pickle_shard_read(const unsigned char *bytes, size_t count,
                      int (*take)(void *data, const struct pickle_entry *entry, struct error *error), void *data,
                      struct error *error);

#endif
