/* See random_bytes.h: splitmix64, eight bytes at a time. */
#include "tests/support/random_bytes.h"

#include <string.h>

#define UNSEEN __attribute__((no_sanitize("address,thread,undefined")))

UNSEEN static uint64_t next(uint64_t *seed)
{
    uint64_t value = *seed += 0x9E3779B97F4A7C15u;
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9u;
    value = (value ^ value >> 27) * 0x94D049BB133111EBu;
    return value ^ value >> 31;
}

UNSEEN void random_bytes_fill(void *memory, uint64_t bytes, uint64_t seed)
{
    unsigned char *at = memory;
    uint64_t n_words = bytes / sizeof(uint64_t), value;
    for (uint64_t i = 0; i < n_words; i++) {
        value = next(&seed);
        memcpy(at + i * sizeof value, &value, sizeof value); /* a store: its size is known */
    }
    value = next(&seed);
    memcpy(at + n_words * sizeof value, &value, bytes % sizeof value);
}
