/* See row_moves.h. */
#include "tests/support/row_moves.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/memory.h"
#include "tests/support/random_bytes.h"

enum { SOURCE_BYTES = 4 << 20 };

uint64_t row_moves_random(struct row_moves *moves, uint64_t below)
{
    moves->random ^= moves->random << 13;
    moves->random ^= moves->random >> 7;
    moves->random ^= moves->random << 17;
    return (moves->random * 0x2545F4914F6CDD1Du >> 33) % below;
}

void row_moves_init(struct row_moves *moves)
{
    const char *seed = getenv("TEST_SEED");
    *moves = (struct row_moves){.random = seed ? strtoull(seed, NULL, 0) : (uint64_t)time(NULL) * 0x9E3779B97F4A7C15u};
    printf("TEST_SEED=%llu\n", (unsigned long long)moves->random);
    moves->source = memory_alloc(SOURCE_BYTES);
    random_bytes_fill(moves->source, SOURCE_BYTES, moves->random);
    for (uint64_t i = 0; i < SOURCE_BYTES; i++)
        moves->source[i] |= 1; /* never as memory that nothing was moved to */
}

void row_moves_fini(struct row_moves *moves)
{
    free(moves->source);
}

/* Of any magnitude below 2 to the power of `bits`. */
static uint64_t any_size(struct row_moves *moves, unsigned bits)
{
    return row_moves_random(moves, (uint64_t)1 << row_moves_random(moves, bits));
}

/* In the gaps of the last move, once; else a little behind it. */
static struct row_move choose(struct row_moves *moves)
{
    struct row_move move = {0};
    const struct device_rows *last = &moves->last.rows;
    bool is_between = last->count > 1 && last->dst_stride > last->bytes && row_moves_random(moves, 2) == 0;
    struct device_rows *rows = &move.rows;
    if (is_between) {
        uint64_t gap = last->dst_stride - last->bytes, skip = row_moves_random(moves, gap);
        move.offset = moves->last.offset + last->bytes + skip;
        *rows = (struct device_rows){1 + row_moves_random(moves, gap - skip), last->count - 1, 0, last->dst_stride};
    } else {
        move.offset = moves->end + any_size(moves, 12);
        *rows = (struct device_rows){1 + any_size(moves, 15), 1 + any_size(moves, 7), 0, 0};
        rows->dst_stride = rows->bytes + any_size(moves, 12);
    }
    rows->src_stride = rows->bytes + any_size(moves, 12);
    return move;
}

bool row_moves_next(struct row_moves *moves, struct row_move *move)
{
    uint64_t dst_bytes, src_bytes;
    do {
        *move = choose(moves);
        src_bytes = (move->rows.count - 1) * move->rows.src_stride + move->rows.bytes;
    } while (src_bytes > SOURCE_BYTES);
    device_rows_extent(&move->rows, &dst_bytes);
    if (move->offset + dst_bytes > ROW_MOVES_BYTES)
        return false;
    move->src_offset = row_moves_random(moves, SOURCE_BYTES - src_bytes + 1);
    bool is_between = move->offset < moves->end;
    moves->end = is_between ? moves->end : move->offset + dst_bytes;
    moves->last = is_between ? (struct row_move){0} : *move;
    return true;
}

void row_move_by_bytes(const struct row_moves *moves, const struct row_move *move, unsigned char *memory)
{
    for (uint64_t row = 0; row < move->rows.count; row++) {
        unsigned char *dst = memory + move->offset + row * move->rows.dst_stride;
        const unsigned char *src = moves->source + move->src_offset + row * move->rows.src_stride;
        for (uint64_t i = 0; i < move->rows.bytes; i++)
            dst[i] = src[i];
    }
}
