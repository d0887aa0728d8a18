/* Of which sizes memory is prepared. Pure.
 *
 * Memory of a replica is one memfd, and pages cannot move from one memfd to another. But a memfd that nobody has seen can be
 * made shorter (2 ms per GiB given up) or longer (0.2 ms, then it is fresh from there on), so it need not fit exactly. */
#ifndef DEVICE_HOST_POOL_SIZES_H
#define DEVICE_HOST_POOL_SIZES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { POOL_RECENT = 32, POOL_SIZES = 96 };

/* What loads asked for lately, newest first. */
struct pool_recent {
    uint64_t sizes[POOL_RECENT];
    size_t n;
};
void pool_recent_add(struct pool_recent *recent, uint64_t bytes);

/* Sizes of memory to have, multiples of HUGE_PAGE_BYTES, the most useful first; together no more than the budget: those that
 * were asked for lately, each as often, and the rest by halves, so that any load finds something. Returns how many. */
size_t pool_sizes_choose(const struct pool_recent *recent, uint64_t budget_bytes, uint64_t sizes[POOL_SIZES]);

bool pool_size_is_met(uint64_t size, uint64_t memory_bytes); /* what is there does instead of what was chosen */
/* How much of a load's `bytes` is won by memory of which so much is ready; 0 when it is not worth it. */
uint64_t pool_size_gain(uint64_t bytes, uint64_t memory_bytes, uint64_t ready_bytes, bool can_grow);

#endif
