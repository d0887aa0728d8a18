/* Tiles of 64 x 64 elements: what a tile touches, a line or a part of one for each of its rows and columns, stays in the
 * first cache until it is written completely. Elements that lie side by side in a row of the source and in a column of the
 * destination are turned 8 x 8 or 4 x 4 at a time in registers; SSE2 is part of every x86-64. */
#include "base/transpose.h"

#include <string.h>

#ifdef __x86_64__
#include <emmintrin.h>
#endif

enum { TILE = 64 };

struct tile {
    const struct transpose *all;
    uint64_t first_row, rows_end, first_column, columns_end;
    unsigned char *dst;
    const unsigned char *src;
};

static inline unsigned char *place_of(const struct tile *tile, uint64_t row, uint64_t column)
{
    return tile->dst + (int64_t)row * tile->all->dst_row_stride + (int64_t)column * tile->all->dst_column_stride;
}

static inline __attribute__((always_inline)) void move_one_by_one(const struct tile *tile, size_t element_bytes)
{
    const struct transpose *all = tile->all;
    for (uint64_t column = tile->first_column; column < tile->columns_end; column++) {
        const unsigned char *src = tile->src + tile->first_row * all->src_row_stride + column * all->src_column_stride;
        unsigned char *dst = place_of(tile, tile->first_row, column);
        for (uint64_t row = tile->first_row; row < tile->rows_end; row++) {
            memcpy(dst, src, element_bytes);
            src += all->src_row_stride;
            dst += all->dst_row_stride;
        }
    }
}

#ifdef __x86_64__

/* Eight rows of eight elements of 2 bytes. */
static void turn_2(unsigned char *dst, int64_t dst_stride, const unsigned char *src, int64_t src_stride)
{
    __m128i in[8], pairs[8], quads[8];
    for (size_t i = 0; i < 8; i++)
        in[i] = _mm_loadu_si128((const __m128i *)(src + (int64_t)i * src_stride));
    for (size_t i = 0; i < 4; i++) {
        pairs[2 * i] = _mm_unpacklo_epi16(in[2 * i], in[2 * i + 1]);
        pairs[2 * i + 1] = _mm_unpackhi_epi16(in[2 * i], in[2 * i + 1]);
    }
    for (size_t i = 0; i < 2; i++)
        for (size_t half = 0; half < 2; half++) {
            quads[4 * i + 2 * half] = _mm_unpacklo_epi32(pairs[4 * i + half], pairs[4 * i + 2 + half]);
            quads[4 * i + 2 * half + 1] = _mm_unpackhi_epi32(pairs[4 * i + half], pairs[4 * i + 2 + half]);
        }
    for (size_t i = 0; i < 4; i++) {
        _mm_storeu_si128((__m128i *)(dst + (int64_t)(2 * i) * dst_stride), _mm_unpacklo_epi64(quads[i], quads[4 + i]));
        _mm_storeu_si128((__m128i *)(dst + (int64_t)(2 * i + 1) * dst_stride), _mm_unpackhi_epi64(quads[i], quads[4 + i]));
    }
}

/* Four rows of four elements of 4 bytes. */
static void turn_4(unsigned char *dst, int64_t dst_stride, const unsigned char *src, int64_t src_stride)
{
    __m128i in[4], pairs[4];
    for (size_t i = 0; i < 4; i++)
        in[i] = _mm_loadu_si128((const __m128i *)(src + (int64_t)i * src_stride));
    for (size_t i = 0; i < 2; i++) {
        pairs[2 * i] = _mm_unpacklo_epi32(in[2 * i], in[2 * i + 1]);
        pairs[2 * i + 1] = _mm_unpackhi_epi32(in[2 * i], in[2 * i + 1]);
    }
    for (size_t i = 0; i < 2; i++) {
        _mm_storeu_si128((__m128i *)(dst + (int64_t)(2 * i) * dst_stride), _mm_unpacklo_epi64(pairs[i], pairs[2 + i]));
        _mm_storeu_si128((__m128i *)(dst + (int64_t)(2 * i + 1) * dst_stride), _mm_unpackhi_epi64(pairs[i], pairs[2 + i]));
    }
}

/* The part of the tile that is whole blocks; the rest is left in `tile`, first what lies right of them, then below. */
static void move_by_registers(const struct tile *tile, uint64_t element_bytes)
{
    const struct transpose *all = tile->all;
    const uint64_t n = 16 / element_bytes;
    void (*turn)(unsigned char *, int64_t, const unsigned char *, int64_t) = element_bytes == 2 ? turn_2 : turn_4;
    uint64_t rows_end = tile->first_row + (tile->rows_end - tile->first_row) / n * n;
    uint64_t columns_end = tile->first_column + (tile->columns_end - tile->first_column) / n * n;
    bool is_backwards = all->dst_row_stride < 0; /* then the last row of a block comes first */
    int64_t src_stride = is_backwards ? -(int64_t)all->src_row_stride : (int64_t)all->src_row_stride;
    for (uint64_t column = tile->first_column; column < columns_end; column += n)
        for (uint64_t row = tile->first_row; row < rows_end; row += n) {
            uint64_t first = is_backwards ? row + n - 1 : row;
            turn(place_of(tile, first, column), all->dst_column_stride,
                 tile->src + first * all->src_row_stride + column * all->src_column_stride, src_stride);
        }
    struct tile right = *tile, under = *tile;
    right.first_column = columns_end;
    under.columns_end = columns_end;
    under.first_row = rows_end;
    if (element_bytes == 2) {
        move_one_by_one(&right, 2);
        move_one_by_one(&under, 2);
    } else {
        move_one_by_one(&right, 4);
        move_one_by_one(&under, 4);
    }
}

#endif

static void move_tile(const struct tile *tile, uint64_t element_bytes)
{
#ifdef __x86_64__
    const struct transpose *all = tile->all;
    if ((element_bytes == 2 || element_bytes == 4) && all->src_column_stride == element_bytes &&
        (all->dst_row_stride == (int64_t)element_bytes || all->dst_row_stride == -(int64_t)element_bytes)) {
        move_by_registers(tile, element_bytes);
        return;
    }
#endif
    if (element_bytes == 1)
        move_one_by_one(tile, 1);
    else if (element_bytes == 2)
        move_one_by_one(tile, 2);
    else if (element_bytes == 4)
        move_one_by_one(tile, 4);
    else
        move_one_by_one(tile, 8);
}

bool transpose_takes(uint64_t element_bytes)
{
    return element_bytes == 1 || element_bytes == 2 || element_bytes == 4 || element_bytes == 8;
}

void transpose_copy(const struct transpose *transpose, uint64_t element_bytes, void *dst, const void *src)
{
    struct tile tile = {.all = transpose, .dst = dst, .src = src};
    for (uint64_t row = 0; row < transpose->n_rows; row += TILE) {
        tile.first_row = row;
        tile.rows_end = transpose->n_rows - row < TILE ? transpose->n_rows : row + TILE;
        for (uint64_t column = 0; column < transpose->n_columns; column += TILE) {
            tile.first_column = column;
            tile.columns_end = transpose->n_columns - column < TILE ? transpose->n_columns : column + TILE;
            move_tile(&tile, element_bytes);
        }
    }
}
