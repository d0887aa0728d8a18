/* Reaches pickle_reader.c, pickle_array.c and pickle_shard.c. What is accepted has arrays of as many bytes as their shapes say,
 * inside the pickle. */
#include <stdint.h>
#include <stdlib.h>

#include "client/cli/pickle_shard.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena arena = {0};
    struct pickle_shard shard;
    struct error error = {0};
    if (pickle_shard_read(data, size, &arena, &shard, &error) != 0 && (!error.message[0] || !error.reason[0]))
        abort();
    else if (!error.message[0])
        for (size_t i = 0; i < shard.n; i++) {
            const struct pickle_array *array = shard.list[i].array;
            uint64_t bytes = dtype_bits(array->dtype) / 8;
            for (uint32_t d = 0; d < array->rank; d++)
                bytes *= array->shape[d];
            if (bytes != array->n_bytes || array->bytes < data || array->n_bytes > size ||
                array->bytes + array->n_bytes > data + size)
                abort();
        }
    arena_fini(&arena);
    return 0;
}
