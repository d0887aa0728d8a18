/* Tensors lie in view order, so one pass finds every gap; see padding.h. Runs once per load into re-used memory, on a
 * worker. */
#include "execute/padding.h"

static int zero(struct segment *segment, uint64_t lo, uint64_t hi, struct error *error)
{
    if (lo >= hi)
        return 0;
    return device_zero(segment, lo, hi - lo, error);
}

int padding_zero(const struct mapping *mapping, struct segment *segment, struct error *error)
{
    uint64_t at = 0;
    for (size_t i = 0; i < mapping->n_tensors; i++) {
        const struct view_tensor *tensor = &mapping->tensors[i];
        if (tensor->bytes == 0)
            continue;
        if (zero(segment, at, tensor->offset, error))
            return -1;
        at = tensor->offset + tensor->bytes;
    }
    return zero(segment, at, segment->allocated_bytes, error);
}
