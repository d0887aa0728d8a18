/* The Mersenne twister MT19937 of Matsumoto and Nishimura (1998), and what torch.randperm makes of it on a CPU: shuffles
 * that are the same as those of torch.manual_seed(seed). */
#ifndef VARIANT_MT19937_H
#define VARIANT_MT19937_H

#include <stdint.h>

enum { MT19937_WORDS = 624 };

struct mt19937 {
    uint32_t state[MT19937_WORDS];
    uint32_t next;
};

void mt19937_init(struct mt19937 *twister, uint32_t seed);
uint32_t mt19937_next(struct mt19937 *twister);

/* Of 0 to n - 1. torch does it this way for n below 2^32 / 20. */
enum { MT19937_MAX_PERMUTATION = 214748364 };
void mt19937_permute(struct mt19937 *twister, uint32_t *permutation, uint32_t n);

#endif
