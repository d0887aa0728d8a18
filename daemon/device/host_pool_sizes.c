/* See host_pool_sizes.h. */
#include "device/host_pool_sizes.h"

#include <string.h>

#include "base/huge_pages.h"

static const uint64_t SMALL_BYTES = 64 << 20; /* is not cut into halves any more */

void pool_recent_add(struct pool_recent *recent, uint64_t bytes)
{
    size_t n_kept = recent->n < POOL_RECENT ? recent->n : POOL_RECENT - 1;
    memmove(recent->sizes + 1, recent->sizes, n_kept * sizeof recent->sizes[0]);
    recent->sizes[0] = bytes;
    recent->n = n_kept + 1;
}

static uint64_t round_down(uint64_t bytes)
{
    return bytes / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
}

size_t pool_sizes_choose(const struct pool_recent *recent, uint64_t budget_bytes, uint64_t sizes[POOL_SIZES])
{
    uint64_t left = round_down(budget_bytes);
    size_t n = 0;
    for (size_t i = 0; i < recent->n; i++) {
        if (recent->sizes[i] <= left) {
            sizes[n++] = recent->sizes[i];
            left -= recent->sizes[i];
        }
    }
    while (left > 0 && n < POOL_SIZES) {
        uint64_t half = round_down(left / 2);
        sizes[n] = half >= SMALL_BYTES ? half : left;
        left -= sizes[n++];
    }
    return n;
}

bool pool_size_is_met(uint64_t size, uint64_t memory_bytes)
{
    return memory_bytes >= size && memory_bytes - size <= size / 4;
}

/* What would be cut off was made in vain: at most as much as is used. What would be fresh behind it, at most seven eighths. */
uint64_t pool_size_gain(uint64_t bytes, uint64_t memory_bytes, uint64_t ready_bytes, bool can_grow)
{
    if (memory_bytes >= bytes)
        return memory_bytes - bytes <= bytes ? (ready_bytes < bytes ? ready_bytes : bytes) : 0;
    return can_grow && ready_bytes >= bytes / 8 ? ready_bytes : 0;
}
