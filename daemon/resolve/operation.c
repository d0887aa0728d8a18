/* One step goes straight from source to destination; a chain goes in pieces through two small buffers, back and forth. */
#include "resolve/operation.h"

#include "convert/cast.h"
#include "convert/dequantize.h"

enum { PIECE_ELEMENTS = 512, ELEMENT_BYTES = 8 };

/* Elements `first` and on of the stored box, which may begin and end within its rows. */
static void dequantize(const struct operation_step *step, enum dtype from, unsigned char *dst, const unsigned char *src,
                       uint64_t first, size_t n_elements)
{
    const struct scale_grid *grid = step->grid;
    dequantize_function *convert = dequantize_find(from, step->to);
    size_t from_bytes = dtype_bits(from) / 8, to_bytes = dtype_bits(step->to) / 8;
    while (n_elements > 0) {
        uint64_t row = first / grid->n_columns, column = first % grid->n_columns, left = grid->n_columns - column;
        size_t n = left < n_elements ? left : n_elements;
        const struct dequantize_run run = {.scales = grid->values +
                                                     (grid->first_row + row) / grid->block_rows * grid->grid_columns,
                                           .column = grid->first_column + column,
                                           .block_columns = grid->block_columns};
        convert(dst, src, n, &run);
        src += n * from_bytes;
        dst += n * to_bytes;
        first += n;
        n_elements -= n;
    }
}

static void apply_step(const struct operation *operation, uint32_t i, unsigned char *dst, const unsigned char *src,
                       uint64_t file_offset, size_t n_elements)
{
    const struct operation_step *step = &operation->steps[i];
    enum dtype from = i ? operation->steps[i - 1].to : operation->from;
    if (step->grid)
        dequantize(step, from, dst, src, (file_offset - step->grid->origin) / operation->from_bytes, n_elements);
    else
        cast_find(from, step->to)(dst, src, n_elements);
}

void operation_apply(const struct operation *operation, void *dst, const void *src, uint64_t file_offset, size_t n_elements)
{
    unsigned char buffers[2][PIECE_ELEMENTS * ELEMENT_BYTES], *to = dst;
    const unsigned char *from = src;
    uint32_t last = operation->n_steps - 1;
    if (last == 0) {
        apply_step(operation, 0, to, from, file_offset, n_elements);
        return;
    }
    while (n_elements > 0) {
        size_t n = n_elements < PIECE_ELEMENTS ? n_elements : PIECE_ELEMENTS;
        for (uint32_t i = 0; i <= last; i++)
            apply_step(operation, i, i == last ? to : buffers[i % 2], i ? buffers[(i - 1) % 2] : from, file_offset, n);
        from += n * operation->from_bytes;
        to += n * operation->to_bytes;
        file_offset += n * operation->from_bytes;
        n_elements -= n;
    }
}
