#include "variant/mt19937.h"

enum { SHIFT = 397 };

void mt19937_init(struct mt19937 *twister, uint32_t seed)
{
    twister->state[0] = seed;
    for (uint32_t i = 1; i < MT19937_WORDS; i++)
        twister->state[i] = 1812433253u * (twister->state[i - 1] ^ twister->state[i - 1] >> 30) + i;
    twister->next = MT19937_WORDS;
}

uint32_t mt19937_next(struct mt19937 *twister)
{
    for (uint32_t i = 0; i < MT19937_WORDS && twister->next == MT19937_WORDS; i++) {
        uint32_t mixed = (twister->state[i] & 0x80000000u) | (twister->state[(i + 1) % MT19937_WORDS] & 0x7fffffffu);
        twister->state[i] = twister->state[(i + SHIFT) % MT19937_WORDS] ^ mixed >> 1 ^ (mixed & 1 ? 0x9908b0dfu : 0);
    }
    twister->next %= MT19937_WORDS;
    uint32_t word = twister->state[twister->next++];
    word ^= word >> 11;
    word ^= word << 7 & 0x9d2c5680u;
    word ^= word << 15 & 0xefc60000u;
    return word ^ word >> 18;
}

void mt19937_permute(struct mt19937 *twister, uint32_t *permutation, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        permutation[i] = i;
    for (uint32_t i = 0; i + 1 < n; i++) {
        uint32_t other = i + mt19937_next(twister) % (n - i), old = permutation[i];
        permutation[i] = permutation[other];
        permutation[other] = old;
    }
}
