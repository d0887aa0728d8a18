/* Arithmetic on sizes that come from outside: returns false instead of wrapping round. */
#ifndef BASE_CHECKED_H
#define BASE_CHECKED_H

#include <stdbool.h>
#include <stdint.h>

static inline bool checked_add(uint64_t a, uint64_t b, uint64_t *sum)
{
    return !__builtin_add_overflow(a, b, sum);
}

static inline bool checked_mul(uint64_t a, uint64_t b, uint64_t *product)
{
    return !__builtin_mul_overflow(a, b, product);
}

/* Without the sign, of INT64_MIN too. */
static inline uint64_t checked_magnitude(int64_t value)
{
    return value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
}

/* Rounds up to a multiple of `alignment`, a power of two. */
static inline bool checked_align(uint64_t value, uint64_t alignment, uint64_t *aligned)
{
    return checked_add(value, alignment - 1, aligned) && ((*aligned &= ~(alignment - 1)), true);
}

#endif
