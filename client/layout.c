/* A tensor that would reach beyond the memory, or whose shape does not fit its bytes, would make its user read wild. */
#include "layout.h"

#include "base/checked.h"
#include "dtype_name.h"
#include "tensorcast.h"

/* Strides of one tensor, and whether shape, dtype and size agree. */
static bool measure_tensor(const uint64_t *dims, size_t rank, uint64_t bits, uint64_t bytes, uint64_t *strides)
{
    uint64_t elements = 1, n_bits;
    bool empty = false;
    for (size_t k = rank; k-- > 0;) {
        strides[k] = elements;
        empty |= dims[k] == 0;
        if (!checked_mul(elements, dims[k] ? dims[k] : 1, &elements))
            return false;
    }
    return empty ? bytes == 0 : checked_mul(elements, bits, &n_bits) && bytes == n_bits / 8 + (n_bits % 8 != 0);
}

static bool has_columns(const Tensorcast__Daemon__V1__Layout *columns, size_t n_tensors)
{
    return columns->n_dtypes == n_tensors && columns->n_ranks == n_tensors && columns->n_offsets == n_tensors &&
           columns->n_sizes == n_tensors;
}

/* A column without entries is NULL, to which nothing may be added, not even 0. */
static const uint64_t *entries_at(const uint64_t *column, size_t at)
{
    return at ? column + at : column;
}

int layout_build(const Tensorcast__Daemon__V1__Layout *columns, size_t n_tensors, uint64_t memory_bytes, struct arena *arena,
                 struct layout *layout, struct error *error)
{
    uint64_t bits, end;
    size_t n_dims = 0;
    bool sound = has_columns(columns, n_tensors);
    layout->n_tensors = n_tensors;
    layout->first_dim = arena_array(arena, n_tensors + 1, sizeof *layout->first_dim);
    layout->strides = arena_array(arena, columns->n_dims + 1, sizeof *layout->strides);
    for (size_t i = 0; sound && i < n_tensors; i++) {
        size_t rank = columns->ranks[i];
        layout->first_dim[i] = n_dims;
        sound = rank <= TC_MAX_RANK && rank <= columns->n_dims - n_dims && dtype_name_of((int)columns->dtypes[i], &bits) &&
                checked_add(columns->offsets[i], columns->sizes[i], &end) && end <= memory_bytes &&
                measure_tensor(entries_at(columns->dims, n_dims), rank, bits, columns->sizes[i], layout->strides + n_dims);
        n_dims += rank;
    }
    if (sound && n_dims == columns->n_dims)
        return 0;
    return fail(error, ERROR_INTERNAL, "BAD_ANSWER",
                "the daemon's layout of %zu tensors does not fit the %llu bytes handed off", n_tensors,
                (unsigned long long)memory_bytes);
}

/* Bytes from a tensor's first to behind its last, and the strides in elements. */
static bool measure_strided(const uint64_t *dims, const uint64_t *bytes_apart, size_t rank, uint64_t element_bytes,
                            uint64_t *strides, uint64_t *span)
{
    *span = element_bytes;
    for (size_t k = 0; k < rank; k++) {
        uint64_t reach;
        if (bytes_apart[k] % element_bytes || !checked_mul(dims[k] - 1, bytes_apart[k], &reach) ||
            !checked_add(*span, reach, span))
            return false;
        strides[k] = bytes_apart[k] / element_bytes;
    }
    return true;
}

int layout_build_files(const Tensorcast__Daemon__V1__Layout *columns, size_t n_tensors, const uint64_t *file_bytes,
                       size_t n_files, struct arena *arena, struct layout *layout, struct error *error)
{
    uint64_t bits, end, span;
    size_t n_dims = 0;
    bool sound =
        has_columns(columns, n_tensors) && columns->n_file_indexes == n_tensors && columns->n_strides == columns->n_dims;
    layout->n_tensors = n_tensors;
    layout->first_dim = arena_array(arena, n_tensors + 1, sizeof *layout->first_dim);
    layout->strides = arena_array(arena, columns->n_dims + 1, sizeof *layout->strides);
    for (size_t i = 0; sound && i < n_tensors; i++) {
        size_t rank = columns->ranks[i];
        uint64_t *strides = layout->strides + n_dims;
        layout->first_dim[i] = n_dims;
        span = columns->sizes[i];
        sound = rank <= TC_MAX_RANK && rank <= columns->n_dims - n_dims && dtype_name_of((int)columns->dtypes[i], &bits) &&
                measure_tensor(entries_at(columns->dims, n_dims), rank, bits, span, strides);
        if (sound && columns->sizes[i])
            sound = (bits % 8 || measure_strided(entries_at(columns->dims, n_dims), entries_at(columns->strides, n_dims),
                                                 rank, bits / 8, strides, &span)) &&
                    columns->file_indexes[i] < n_files && checked_add(columns->offsets[i], span, &end) &&
                    end <= file_bytes[columns->file_indexes[i]];
        n_dims += rank;
    }
    if (sound && n_dims == columns->n_dims)
        return 0;
    return fail(error, ERROR_INTERNAL, "BAD_ANSWER",
                "the daemon's layout of %zu tensors does not fit the %zu files handed off", n_tensors, n_files);
}
