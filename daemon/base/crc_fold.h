/* The part of a CRC that wide multiplications do: a message is folded into a short one with the same remainder, which
 * tables then finish. Which widths a processor has is asked once, in crc_folds(). Any thread. */
#ifndef BASE_CRC_FOLD_H
#define BASE_CRC_FOLD_H

#include <stddef.h>
#include <stdint.h>

/* One width. Lanes lie behind one another in a block; folding moves a lane one block ahead: its first eight bytes times
 * x^(bits + 63), its last eight times x^(bits - 1), modulo the polynomial, bits reflected and left-aligned. */
struct crc_fold {
    size_t block_bytes; /* what remains */
    /* Folds n_blocks >= 1 blocks into `remains`; `state` is the register before them. */
    void (*fold)(const unsigned char *bytes, size_t n_blocks, uint64_t state, const uint64_t factors[2],
                 unsigned char *remains);
};

enum { CRC_FOLD_WIDTHS = 2, CRC_FOLD_MAX_BLOCK_BYTES = 256 };

/* The widths of this processor, wide ones first; each block is a multiple of the next one's. Returns how many. */
size_t crc_folds(const struct crc_fold *folds[CRC_FOLD_WIDTHS]);

#endif
