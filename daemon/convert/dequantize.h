/* Elements of 8 bits that share a scale block by block: f32(element) * f32(scale) in F32, then a cast to the target's type
 * (cast.h). A NaN times a NaN is a NaN of the sign of either. Pure; any thread. */
#ifndef CONVERT_DEQUANTIZE_H
#define CONVERT_DEQUANTIZE_H

#include <stddef.h>

#include "base/dtype.h"

/* A run of elements within one row of a scaled tensor. */
struct dequantize_run {
    const float *scales;  /* of the row of blocks that the run lies in; scales[column / block_columns] is an element's */
    size_t column;        /* of the run's first element in its row */
    size_t block_columns; /* elements of a row that share a scale, at least 1; the row's last block may be shorter */
};

/* Converts n_elements of the run from `src` to `dst`, which do not overlap and need no alignment. */
typedef void dequantize_function(void *dst, const void *src, size_t n_elements, const struct dequantize_run *run);

/* NULL unless `from` is one of the five F8 and `to` a float that can be cast to. Scales of other types become F32 by
 * cast_find(type, DTYPE_F32) first. */
dequantize_function *dequantize_find(enum dtype from, enum dtype to);

#endif
