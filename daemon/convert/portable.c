/* Every conversion in plain C; see version.h. */
#include "convert/float_bits.h"
#include "convert/version.h"

#define FROM_EACH_F8(X, TO) X(F8_E4M3, TO) X(F8_E5M2, TO) X(F8_E8M0, TO) X(F8_E4M3FNUZ, TO) X(F8_E5M2FNUZ, TO)
#define FROM_EACH_FLOAT(X, TO) X(F64, TO) X(F32, TO) X(F16, TO) X(BF16, TO) FROM_EACH_F8(X, TO)
#define TO_EACH_FLOAT(FROM_EACH, X)                                                                                         \
    FROM_EACH(X, F64)                                                                                                       \
    FROM_EACH(X, F32)                                                                                                       \
    FROM_EACH(X, F16)                                                                                                       \
    FROM_EACH(X, BF16)                                                                                                      \
    FROM_EACH(X, F8_E4M3) FROM_EACH(X, F8_E5M2) FROM_EACH(X, F8_E8M0) FROM_EACH(X, F8_E4M3FNUZ) FROM_EACH(X, F8_E5M2FNUZ)

#define DEFINE_CAST(FROM, TO)                                                                                               \
    static void cast_##FROM##_to_##TO(void *dst, const void *src, size_t n_elements)                                        \
    {                                                                                                                       \
        cast_elements(dst, src, n_elements, DTYPE_##FROM, DTYPE_##TO);                                                      \
    }
#define DEFINE_DEQUANTIZE(FROM, TO)                                                                                         \
    static void dequantize_##FROM##_to_##TO(void *dst, const void *src, size_t n_elements,                                  \
                                            const struct dequantize_run *run)                                               \
    {                                                                                                                       \
        dequantize_elements(dst, src, n_elements, run, DTYPE_##FROM, DTYPE_##TO);                                           \
    }
#define CAST_ENTRY(FROM, TO) [DTYPE_##FROM][DTYPE_##TO] = cast_##FROM##_to_##TO,
#define DEQUANTIZE_ENTRY(FROM, TO) [DTYPE_##FROM][DTYPE_##TO] = dequantize_##FROM##_to_##TO,

TO_EACH_FLOAT(FROM_EACH_FLOAT, DEFINE_CAST)
TO_EACH_FLOAT(FROM_EACH_F8, DEFINE_DEQUANTIZE)

static cast_function *portable_cast(enum dtype from, enum dtype to)
{
    static cast_function *const table[DTYPE_COUNT][DTYPE_COUNT] = {TO_EACH_FLOAT(FROM_EACH_FLOAT, CAST_ENTRY)};
    return table[from][to];
}

static dequantize_function *portable_dequantize(enum dtype from, enum dtype to)
{
    static dequantize_function *const table[DTYPE_COUNT][DTYPE_COUNT] = {TO_EACH_FLOAT(FROM_EACH_F8, DEQUANTIZE_ENTRY)};
    return table[from][to];
}

const struct version version_portable = {.name = "portable", .cast = portable_cast, .dequantize = portable_dequantize};
