/* Plain C; see version.h and pairs.h. */
#include "convert/pairs.h"
#include "convert/version.h"

#define TARGET

/* these two know each other's NaNs and round once */
#define PAIRS_F64_F16(X) X(F64, F16) X(F16, F64)
#define ALL_CASTS(X) PAIRS_WITH_F32(X) PAIRS_TO_F8(X) PAIRS_OF_HALVES(X) PAIRS_FROM_F8(X) PAIRS_F64_F16(X)

ALL_CASTS(DEFINE_CAST_LOOP)
PAIRS_FROM_F8(DEFINE_DEQUANTIZE_LOOP)
PAIRS_FROM_RARE_F8(DEFINE_DEQUANTIZE_LOOP)

static cast_function *portable_cast(enum dtype from, enum dtype to)
{
    static cast_function *const table[DTYPE_COUNT][DTYPE_COUNT] = {ALL_CASTS(CAST_ENTRY)};
    return table[from][to];
}

static dequantize_function *portable_dequantize(enum dtype from, enum dtype to)
{
    static dequantize_function *const table[DTYPE_COUNT][DTYPE_COUNT] = {PAIRS_FROM_F8(DEQUANTIZE_ENTRY)
                                                                             PAIRS_FROM_RARE_F8(DEQUANTIZE_ENTRY)};
    return table[from][to];
}

const struct version version_portable = {.name = "portable", .cast = portable_cast, .dequantize = portable_dequantize};
