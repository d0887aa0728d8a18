/* Casts between floating-point element types, bit for bit as ml_dtypes 0.6.0 with NumPy on x86-64:
 *  - to the nearest, ties to even; F64 to BF16 and to 8 bits by F32 (it rounds twice), F64 to F16 at once;
 *  - overflow gives infinity, or NaN where the type has none (F8_E4M3 from 465 on, FNUZ, E8M0);
 *  - NaN becomes the quiet NaN of its sign in BF16, F8_E4M3 and F8_E5M2, the only NaN in FNUZ (0x80) and E8M0 (0xff);
 *    among F64, F32 and F16 sign and upper bits of the payload stay; a type to itself copies;
 *  - E8M0 of zero and of negative numbers is NaN; between E8M0 and the other 8-bit types by F32.
 * The fastest version that the processor runs is chosen once. Pure; any thread. */
#ifndef CONVERT_CAST_H
#define CONVERT_CAST_H

#include <stdbool.h>
#include <stddef.h>

#include "base/dtype.h"

/* Converts n_elements from `src` to `dst`, which do not overlap and need no alignment. */
typedef void cast_function(void *dst, const void *src, size_t n_elements);

/* NULL unless both are floats in that sense. */
cast_function *cast_find(enum dtype from, enum dtype to);

#endif
