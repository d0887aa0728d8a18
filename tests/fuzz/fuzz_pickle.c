/* Reaches pickle_shard.c. What is accepted has arrays of as many bytes as their shapes say, inside the pickle, and their
 * dimensions in some order. */
#include <stdint.h>
#include <stdlib.h>

#include "activations/pickle_shard.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct span {
    const uint8_t *start, *end;
};

static int check(void *data, const struct pickle_entry *entry, struct error *error)
{
    const struct span *all = data;
    uint64_t bytes = dtype_bits(entry->dtype) / 8;
    (void)error;
    uint64_t seen = 0;
    for (uint32_t d = 0; d < entry->rank; d++) {
        bytes *= entry->shape[d];
        if (entry->axes[d] >= entry->rank || seen >> entry->axes[d] & 1)
            abort();
        seen |= (uint64_t)1 << entry->axes[d];
    }
    if (bytes != entry->n_bytes || entry->bytes < all->start || entry->n_bytes > (size_t)(all->end - entry->bytes))
        abort();
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct span all = {data, data + size};
    struct error error = {0};
    if (pickle_shard_read(data, size, check, &all, &error) != 0 && (!error.message[0] || !error.reason[0]))
        abort();
    return 0;
}
