/* topology.json as input. What is accepted names plain files, each once, and every tensor's chunks lie in it, in different files,
 * and have as many elements as it. Reaches topology.c and cover.c. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "resolve/topology.h"

static void check(int truth)
{
    if (!truth)
        abort();
}

static uint64_t elements(const uint64_t *shape, uint32_t rank)
{
    uint64_t n = 1;
    for (uint32_t d = 0; d < rank; d++)
        n *= shape[d];
    return n;
}

static void check_tensor(const struct topology *topology, const struct topology_tensor *tensor)
{
    const uint64_t *shape = &topology->numbers[tensor->shape_at];
    uint64_t n = 0;
    check(tensor->is_shared || tensor->n_chunks == topology->world_size);
    check(elements(shape, tensor->rank) * dtype_bits(tensor->dtype) == tensor->bytes * 8);
    for (uint32_t i = 0; i < tensor->n_chunks; i++) {
        const struct topology_chunk *chunk = &topology->chunks[tensor->first_chunk + i];
        check(chunk->file < topology->n_files && (!i || chunk[-1].file < chunk->file));
        if (tensor->is_shared)
            continue;
        const uint64_t *box = &topology->numbers[chunk->box_at];
        for (uint32_t d = 0; d < tensor->rank; d++)
            check(box[d] <= shape[d] && box[tensor->rank + d] <= shape[d] - box[d]);
        n += elements(box + tensor->rank, tensor->rank);
    }
    check(tensor->is_shared || n == elements(shape, tensor->rank));
}

static void check_topology(const struct topology *topology)
{
    check(topology->world_size > 0);
    for (size_t i = 0; i < topology->n_files; i++)
        check(topology->files[i][0] && topology->files[i][0] != '.' && !strchr(topology->files[i], '/'));
    for (size_t i = 0; i < topology->n_tensors; i++)
        check_tensor(topology, &topology->tensors[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct error error;
    struct topology *topology = topology_parse((const char *)data, size, &error);
    if (topology)
        check_topology(topology);
    else
        check((error.code == ERROR_DATA_LOSS || error.code == ERROR_UNIMPLEMENTED) && error.message[0]);
    topology_destroy(topology);
    return 0;
}
