/* Tensors with strides as runs of bytes, against one element after the other. */
#include "tests/support/unit.h"

#undef fail /* ours is in base/error.h */

#include "client/tensor_bytes.h"

struct taken {
    char *bytes;
    size_t n, n_pieces, stop_at; /* stop_at: the piece that ends the walk, from 1; 0 = none */
};

static int take(void *data, const void *piece, size_t bytes)
{
    struct taken *taken = data;
    memcpy(taken->bytes + taken->n, piece, bytes);
    taken->n += bytes;
    return ++taken->n_pieces == taken->stop_at ? 7 : 0;
}

static size_t one_by_one(const struct tensor_bytes *tensor, size_t element_bytes, size_t dim, const char *at, char *to)
{
    size_t n = 0;
    if (dim == tensor->rank) {
        memcpy(to, at, element_bytes);
        return element_bytes;
    }
    for (uint64_t i = 0; i < tensor->shape[dim]; i++)
        n += one_by_one(tensor, element_bytes, dim + 1, at + i * tensor->strides[dim], to + n);
    return n;
}

TEST(every_box_of_an_array_comes_out_in_c_order)
{
    enum { N = 5 };
    static char content[N * N * N * 4];
    for (size_t i = 0; i < sizeof content; i++)
        content[i] = (char)(i * 7 + i / 256);
    for (unsigned box = 0; box < 1u << 12; box++) { /* two bits each for start and extent of three dimensions */
        uint64_t shape[3], strides[3] = {N * N * 4, N * 4, 4}, bytes = 4;
        const char *start = content;
        for (size_t d = 0; d < 3; d++) {
            start += (box >> 4 * d & 1) * strides[d];
            bytes *= shape[d] = (box >> (4 * d + 1) & 7) % N + (box >> 4 * d & 1 ? 0 : 1);
        }
        const struct tensor_bytes tensor = {start, shape, strides, 3, bytes};
        char wanted[sizeof content], got[sizeof content];
        struct taken taken = {.bytes = got};
        assert_int_equal(tensor_bytes_walk(&tensor, take, &taken), 0);
        assert_int_equal(taken.n, bytes);
        assert_int_equal(one_by_one(&tensor, 4, 0, start, wanted), bytes);
        assert_memory_equal(got, wanted, bytes);
        assert_true(taken.n_pieces <= 1);
    }
}

TEST(what_is_packed_is_one_piece_and_what_is_empty_is_none)
{
    static const uint64_t shape[] = {1, 4, 2}, strides[] = {99, 4, 2}, empty[] = {3, 0};
    char got[16];
    struct taken taken = {.bytes = got};
    const struct tensor_bytes packed = {"0123456789abcdef", shape, NULL, 3, 16},
                              same = {"0123456789abcdef", shape, strides, 3, 16};
    assert_int_equal(tensor_bytes_walk(&packed, take, &taken), 0);
    assert_int_equal(taken.n_pieces, 1);
    taken.n = 0;
    assert_int_equal(tensor_bytes_walk(&same, take, &taken), 0);
    assert_int_equal(taken.n_pieces, 2);
    assert_memory_equal(got, "0123456789abcdef", 16);
    const struct tensor_bytes nothing = {"", empty, strides, 2, 0}, scalar = {"xyz", NULL, strides, 0, 3};
    assert_int_equal(tensor_bytes_walk(&nothing, take, &taken), 0);
    assert_int_equal(taken.n_pieces, 2);
    taken.n = 0;
    assert_int_equal(tensor_bytes_walk(&scalar, take, &taken), 0);
    assert_int_equal(taken.n, 3);
}

TEST(long_columns_come_in_pieces_of_a_mebibyte_and_long_rows_as_they_are)
{
    enum { ROWS = 3 << 18 };
    static const uint64_t shape[] = {ROWS, 4}, strides[] = {8, 1}, long_shape[] = {2, 5 << 19},
                          long_strides[] = {3 << 20, 1};
    char *content = calloc(ROWS, 8), *got = malloc((size_t)ROWS * 8);
    struct taken taken = {.bytes = got};
    for (size_t i = 0; i < ROWS; i++)
        memcpy(content + 8 * i, &(uint32_t){(uint32_t)i}, 4);
    const struct tensor_bytes columns = {content, shape, strides, 2, (uint64_t)ROWS * 4};
    assert_int_equal(tensor_bytes_walk(&columns, take, &taken), 0);
    assert_int_equal(taken.n_pieces, 3);
    for (uint32_t i = 0; i < ROWS; i++)
        assert_memory_equal(got + (size_t)4 * i, &i, 4);
    taken = (struct taken){.bytes = got, .stop_at = 2};
    assert_int_equal(tensor_bytes_walk(&columns, take, &taken), 7);
    assert_int_equal(taken.n_pieces, 2);
    const struct tensor_bytes rows = {content, long_shape, long_strides, 2, 5 << 20};
    taken = (struct taken){.bytes = got};
    assert_int_equal(tensor_bytes_walk(&rows, take, &taken), 0);
    assert_int_equal(taken.n_pieces, 2);
    free(content);
    free(got);
}
