/* Random rows with strides on both sides, for tests of whatever moves rows: what it did is compared with what
 * row_move_by_bytes() does to a model. Rows of one move lie in the gaps of another one's, and never overlap them.
 * Prints its seed; TEST_SEED repeats a run. */
#ifndef SUPPORT_ROW_MOVES_H
#define SUPPORT_ROW_MOVES_H

#include <stdbool.h>
#include <stdint.h>

#include "device/device.h"

enum { ROW_MOVES_BYTES = 3 << 20 }; /* of the memory they go to */

struct row_move {
    uint64_t offset; /* in that memory */
    uint64_t src_offset;
    struct device_rows rows;
};

struct row_moves {
    unsigned char *source; /* random bytes */
    uint64_t end;          /* of the moves so far */
    uint64_t random;
    struct row_move last;
};

void row_moves_init(struct row_moves *moves);
void row_moves_fini(struct row_moves *moves);
bool row_moves_next(struct row_moves *moves, struct row_move *move); /* false when the memory is full */
uint64_t row_moves_random(struct row_moves *moves, uint64_t below);
void row_move_by_bytes(const struct row_moves *moves, const struct row_move *move, unsigned char *memory);

#endif
