/* The dimensions that lie packed make a run; the others are counted through. Short runs are gathered in a buffer first: a hash
 * or a write call for each element of a column would take longer than the column. */
#include "tensor_bytes.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "tensorcast.h"

enum { GATHER_BYTES = 1 << 20 };

struct runs {
    const char *next;
    uint64_t run_bytes, n_runs;
    size_t n_dims;                /* outside of a run */
    uint64_t counts[TC_MAX_RANK]; /* how far each of them has come */
};

static void find_runs(const struct tensor_bytes *tensor, struct runs *runs)
{
    uint64_t n_elements = 1;
    *runs = (struct runs){.next = tensor->data, .n_runs = 1, .n_dims = tensor->rank};
    for (size_t d = 0; d < tensor->rank; d++)
        n_elements *= tensor->shape[d];
    runs->run_bytes = tensor->bytes / n_elements;
    while (runs->n_dims && (tensor->shape[runs->n_dims - 1] == 1 || tensor->strides[runs->n_dims - 1] == runs->run_bytes))
        runs->run_bytes *= tensor->shape[--runs->n_dims];
    for (size_t d = 0; d < runs->n_dims; d++)
        runs->n_runs *= tensor->shape[d];
}

static void next_run(const struct tensor_bytes *tensor, struct runs *runs)
{
    for (size_t d = runs->n_dims; d-- > 0;) {
        runs->next += tensor->strides[d];
        if (++runs->counts[d] < tensor->shape[d])
            return;
        runs->next -= tensor->shape[d] * tensor->strides[d];
        runs->counts[d] = 0;
    }
}

static int walk_gathered(const struct tensor_bytes *tensor, struct runs *runs,
                         int (*take)(void *data, const void *piece, size_t bytes), void *data)
{
    char *buffer = memory_alloc(GATHER_BYTES);
    size_t filled = 0;
    int status = 0;
    for (uint64_t i = 0; status == 0 && i < runs->n_runs; i++, next_run(tensor, runs)) {
        memcpy(buffer + filled, runs->next, runs->run_bytes);
        filled += runs->run_bytes;
        if (filled + runs->run_bytes <= GATHER_BYTES && i + 1 < runs->n_runs)
            continue;
        status = take(data, buffer, filled);
        filled = 0;
    }
    free(buffer);
    return status;
}

int tensor_bytes_walk(const struct tensor_bytes *tensor, int (*take)(void *data, const void *piece, size_t bytes),
                      void *data)
{
    struct runs runs;
    int status = 0;
    if (!tensor->bytes)
        return 0;
    if (!tensor->strides)
        return take(data, tensor->data, tensor->bytes);
    find_runs(tensor, &runs);
    if (runs.run_bytes <= GATHER_BYTES / 2 && runs.n_runs > 1)
        return walk_gathered(tensor, &runs, take, data);
    for (uint64_t i = 0; status == 0 && i < runs.n_runs; i++, next_run(tensor, &runs))
        status = take(data, runs.next, runs.run_bytes);
    return status;
}
