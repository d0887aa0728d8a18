/* See random_transfers.h. */
#include "tests/support/random_transfers.h"

#include <string.h>

static uint64_t below(struct random_transfers *all, uint64_t limit)
{
    all->random ^= all->random << 13;
    all->random ^= all->random >> 7;
    all->random ^= all->random << 17;
    return (all->random * 0x2545F4914F6CDD1Du >> 16) % limit;
}

static const enum dtype floats[] = {DTYPE_F64, DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_F8_E4M3, DTYPE_F8_E5M2};

static enum dtype random_float(struct random_transfers *all)
{
    return floats[below(all, sizeof floats / sizeof *floats)];
}

struct matrix { /* of elements, in the file */
    uint64_t offset, n_rows, n_columns;
    uint64_t src_bytes, dst_bytes; /* of an element */
    uint32_t file, operation;
};

static const struct scale_grid *add_grid(struct random_transfers *all, const struct matrix *matrix)
{
    struct scale_grid *grid = &all->grids[all->n_operations];
    *grid = (struct scale_grid){.origin = matrix->offset,
                                .n_columns = matrix->n_columns,
                                .first_row = below(all, 9),
                                .first_column = below(all, 9),
                                .block_rows = 1 + below(all, 16),
                                .block_columns = 1 + below(all, 16),
                                .values = all->scales};
    grid->grid_columns = (grid->first_column + matrix->n_columns) / grid->block_columns + 1;
    grid->grid_rows = (grid->first_row + matrix->n_rows) / grid->block_rows + 1;
    return grid->grid_columns * grid->grid_rows <= RANDOM_SCALES_MOST ? grid : NULL;
}

static void add_operation(struct random_transfers *all, struct matrix *matrix)
{
    struct operation *operation = &all->operations[all->n_operations];
    *operation = (struct operation){.from = random_float(all), .n_steps = 1 + (uint32_t)below(all, 3)};
    for (uint32_t i = 0; i < operation->n_steps; i++)
        operation->steps[i].to = random_float(all);
    if (below(all, 3) == 0) {
        operation->from = DTYPE_F8_E4M3;
        operation->steps[0].grid = add_grid(all, matrix);
    }
    operation->to = operation->steps[operation->n_steps - 1].to;
    operation->from_bytes = (uint32_t)(dtype_bits(operation->from) / 8);
    operation->to_bytes = (uint32_t)(dtype_bits(operation->to) / 8);
    matrix->operation = (uint32_t)all->n_operations++;
    matrix->src_bytes = operation->from_bytes;
    matrix->dst_bytes = operation->to_bytes;
}

static void add(struct random_transfers *all, const struct matrix *matrix, struct transfer transfer)
{
    if (transfer.n_rows == 1) {
        transfer.src_stride = transfer.row_bytes;
        transfer.dst_stride = transfer.row_bytes / matrix->src_bytes * matrix->dst_bytes;
    }
    transfer.file = matrix->file & 0xFF;
    transfer.operation = matrix->operation & 0xFF;
    if (all->n < RANDOM_TRANSFERS_MOST)
        all->list[all->n++] = transfer;
}

/* Every k-th row by itself, to be packed or to alternate at the destination. */
static void add_alternate_rows(struct random_transfers *all, const struct matrix *matrix)
{
    uint64_t k = 1 + below(all, 4), n_rows = matrix->n_rows / k, src = matrix->n_columns * matrix->src_bytes;
    uint64_t dst = matrix->n_columns * matrix->dst_bytes;
    bool alternates = below(all, 2);
    for (uint64_t i = 0; i < k && n_rows > 0; i++)
        add(all, matrix,
            (struct transfer){.src_offset = matrix->offset + (alternates ? i * n_rows : i) * src,
                              .dst_offset = all->dst_bytes + (alternates ? i : i * n_rows) * dst,
                              .row_bytes = src,
                              .n_rows = n_rows,
                              .src_stride = alternates ? src : k * src,
                              .dst_stride = alternates ? k * dst : dst});
    all->dst_bytes += k * n_rows * dst;
}

/* Turned, by rows or by columns of the file; only some of the columns. */
static void add_turned(struct random_transfers *all, const struct matrix *matrix)
{
    bool by_rows = below(all, 2);
    uint64_t first = below(all, matrix->n_columns), n_columns = 1 + below(all, matrix->n_columns - first);
    uint64_t n = by_rows ? matrix->n_rows : n_columns, src = matrix->src_bytes, dst = matrix->dst_bytes;
    for (uint64_t i = 0; i < n; i++)
        add(all, matrix,
            (struct transfer){.src_offset = matrix->offset + (by_rows ? i * matrix->n_columns + first : first + i) * src,
                              .dst_offset = all->dst_bytes + (by_rows ? i : i * matrix->n_rows) * dst,
                              .row_bytes = src,
                              .n_rows = by_rows ? n_columns : matrix->n_rows,
                              .src_stride = by_rows ? src : matrix->n_columns * src,
                              .dst_stride = by_rows ? matrix->n_rows * dst : dst});
    all->dst_bytes += matrix->n_rows * n_columns * dst;
}

/* All of it, or a box of some columns. */
static void add_box(struct random_transfers *all, const struct matrix *matrix)
{
    uint64_t first = below(all, matrix->n_columns), n_columns = 1 + below(all, matrix->n_columns - first);
    uint64_t src = matrix->n_columns * matrix->src_bytes, dst = n_columns * matrix->dst_bytes;
    bool is_whole = below(all, 2);
    if (is_whole)
        add(all, matrix,
            (struct transfer){
                .src_offset = matrix->offset, .dst_offset = all->dst_bytes, .row_bytes = matrix->n_rows * src, .n_rows = 1});
    else
        add(all, matrix,
            (struct transfer){.src_offset = matrix->offset + first * matrix->src_bytes,
                              .dst_offset = all->dst_bytes,
                              .row_bytes = n_columns * matrix->src_bytes,
                              .n_rows = matrix->n_rows,
                              .src_stride = src,
                              .dst_stride = dst + (below(all, 2) ? 3 : 0)});
    const struct transfer *last = &all->list[all->n - 1];
    all->dst_bytes = transfer_dst_end(last, last->row_bytes / matrix->src_bytes * matrix->dst_bytes);
}

/* The transfers from `first` on: their rows go backwards, or they are in each other's places, last to first. */
static void turn_round(struct random_transfers *all, size_t first)
{
    bool swaps = below(all, 3) == 0, goes_backwards = below(all, 3) == 0;
    for (size_t i = first, k = all->n; swaps && i + 1 < k; i++) {
        uint64_t offset = all->list[i].dst_offset;
        all->list[i].dst_offset = all->list[--k].dst_offset;
        all->list[k].dst_offset = offset;
    }
    for (size_t i = first; goes_backwards && i < all->n; i++) {
        struct transfer *transfer = &all->list[i];
        if (transfer->n_rows == 1)
            continue;
        transfer->dst_offset += (transfer->n_rows - 1) * (uint64_t)transfer->dst_stride;
        transfer->dst_stride = -transfer->dst_stride;
    }
}

void random_transfers_fill(struct random_transfers *all, uint64_t seed, uint32_t n_files, uint64_t file_bytes,
                           bool has_operations)
{
    memset(all, 0, sizeof *all);
    all->random = seed * 0x9E3779B97F4A7C15u + 1;
    all->n_operations = 1;
    for (size_t i = 0; i < RANDOM_SCALES_MOST; i++)
        all->scales[i] = (float)(below(all, 1000) + 1) / 64;
    size_t n = 1 + below(all, RANDOM_OPERATIONS_MOST - 2);
    uint64_t large = below(all, 4) ? 60 : 400;
    for (size_t i = 0; i < n && all->n + 1000 < RANDOM_TRANSFERS_MOST; i++) {
        struct matrix matrix = {.n_rows = 1 + below(all, large), .n_columns = 1 + below(all, large)};
        matrix.src_bytes = matrix.dst_bytes = (uint64_t)1 << below(all, 4);
        bool is_old = all->n > 0 && below(all, 3) == 0; /* where another one lies */
        matrix.offset = is_old ? all->list[below(all, all->n)].src_offset : below(all, file_bytes);
        matrix.file = (uint32_t)below(all, n_files);
        if (has_operations && below(all, 3))
            add_operation(all, &matrix);
        while (matrix.n_rows > 1 && matrix.offset + matrix.n_rows * matrix.n_columns * matrix.src_bytes > file_bytes)
            matrix.n_rows /= 2;
        if (matrix.offset + matrix.n_rows * matrix.n_columns * matrix.src_bytes > file_bytes)
            continue;
        all->dst_bytes += below(all, 2) ? below(all, 70) : 0;
        uint64_t kind = below(all, 3);
        size_t first = all->n;
        if (kind == 0)
            add_alternate_rows(all, &matrix);
        else if (kind == 1)
            add_turned(all, &matrix);
        else
            add_box(all, &matrix);
        turn_round(all, first);
    }
}
