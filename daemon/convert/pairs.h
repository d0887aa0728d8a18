/* The conversions that every version has a function for; all others go by F32 (cast.c, dequantize.c). Each list calls its
 * argument with two names of types. */
#ifndef CONVERT_PAIRS_H
#define CONVERT_PAIRS_H

#include "convert/float_bits.h"

/* between F32 and every other float, except for F8_E4M3 and F8_E5M2 to F32 */
#define PAIRS_WITH_F32(X)                                                                                                   \
    X(F64, F32)                                                                                                             \
    X(F16, F32)                                                                                                             \
    X(BF16, F32)                                                                                                            \
    X(F8_E8M0, F32)                                                                                                         \
    X(F8_E4M3FNUZ, F32)                                                                                                     \
    X(F8_E5M2FNUZ, F32)                                                                                                     \
    X(F32, F64)                                                                                                             \
    X(F32, F16)                                                                                                             \
    X(F32, BF16)                                                                                                            \
    X(F32, F8_E4M3)                                                                                                         \
    X(F32, F8_E5M2)                                                                                                         \
    X(F32, F8_E8M0)                                                                                                         \
    X(F32, F8_E4M3FNUZ)                                                                                                     \
    X(F32, F8_E5M2FNUZ)

/* models are trained in these and served in those */
#define PAIRS_TO_F8(X)                                                                                                      \
    X(F16, F8_E4M3)                                                                                                         \
    X(F16, F8_E5M2)                                                                                                         \
    X(BF16, F8_E4M3)                                                                                                        \
    X(BF16, F8_E5M2)
#define PAIRS_OF_HALVES(X)                                                                                                  \
    X(BF16, F16)                                                                                                            \
    X(F16, BF16)

/* with scales and without */
#define PAIRS_FROM_F8(X)                                                                                                    \
    X(F8_E4M3, F32)                                                                                                         \
    X(F8_E4M3, F16)                                                                                                         \
    X(F8_E4M3, BF16)                                                                                                        \
    X(F8_E5M2, F32)                                                                                                         \
    X(F8_E5M2, F16)                                                                                                         \
    X(F8_E5M2, BF16)
/* with scales */
#define PAIRS_FROM_RARE_F8(X)                                                                                               \
    X(F8_E8M0, F32)                                                                                                         \
    X(F8_E4M3FNUZ, F32)                                                                                                     \
    X(F8_E5M2FNUZ, F32)

/* Defines the loop that casts FROM to TO, with the vectors of TARGET, a macro of the file that uses it. */
#define DEFINE_CAST_LOOP(FROM, TO)                                                                                          \
    TARGET static void cast_##FROM##_to_##TO(void *dst, const void *src, size_t n_elements)                                 \
    {                                                                                                                       \
        cast_elements(dst, src, n_elements, DTYPE_##FROM, DTYPE_##TO);                                                      \
    }

/* Defines a loop over elements of one scale, and with it the conversion of a run. */
#define DEFINE_SCALE_LOOP(FROM, TO)                                                                                         \
    TARGET static void loop_##FROM##_to_##TO(void *dst, const void *src, size_t n_elements, float scale)                    \
    {                                                                                                                       \
        scale_elements(dst, src, n_elements, scale, DTYPE_##FROM, DTYPE_##TO);                                              \
    }
#define DEFINE_DEQUANTIZE_LOOP(FROM, TO)                                                                                    \
    DEFINE_SCALE_LOOP(FROM, TO)                                                                                             \
    static void dequantize_##FROM##_to_##TO(void *dst, const void *src, size_t n_elements,                                  \
                                            const struct dequantize_run *run)                                               \
    {                                                                                                                       \
        dequantize_by_blocks(dst, src, n_elements, run, float_bytes(DTYPE_##TO), loop_##FROM##_to_##TO);                    \
    }

/* With vectors by hand, by scale_f8() and cast_halves() of the file that uses them. */
#define DEFINE_F8(FROM, TO)                                                                                                 \
    DEFINE_SCALE_LOOP(FROM, TO)                                                                                             \
    TARGET static void scale_##FROM##_to_##TO(void *dst, const void *src, size_t n_elements, float scale)                   \
    {                                                                                                                       \
        scale_f8(dst, src, n_elements, scale, DTYPE_##FROM, DTYPE_##TO, loop_##FROM##_to_##TO);                             \
    }                                                                                                                       \
    static void cast_##FROM##_to_##TO(void *dst, const void *src, size_t n_elements)                                        \
    {                                                                                                                       \
        scale_##FROM##_to_##TO(dst, src, n_elements, 1);                                                                    \
    }                                                                                                                       \
    static void dequantize_##FROM##_to_##TO(void *dst, const void *src, size_t n_elements,                                  \
                                            const struct dequantize_run *run)                                               \
    {                                                                                                                       \
        dequantize_by_blocks(dst, src, n_elements, run, float_bytes(DTYPE_##TO), scale_##FROM##_to_##TO);                   \
    }

#define DEFINE_HALVES(FROM, TO)                                                                                             \
    TARGET static void loop_##FROM##_to_##TO(void *dst, const void *src, size_t n_elements)                                 \
    {                                                                                                                       \
        cast_elements(dst, src, n_elements, DTYPE_##FROM, DTYPE_##TO);                                                      \
    }                                                                                                                       \
    TARGET static void cast_##FROM##_to_##TO(void *dst, const void *src, size_t n_elements)                                 \
    {                                                                                                                       \
        cast_halves(dst, src, n_elements, DTYPE_##FROM, DTYPE_##TO, loop_##FROM##_to_##TO);                                 \
    }

/* Entries of a table [from][to]. */
#define CAST_ENTRY(FROM, TO) [DTYPE_##FROM][DTYPE_##TO] = cast_##FROM##_to_##TO,
#define DEQUANTIZE_ENTRY(FROM, TO) [DTYPE_##FROM][DTYPE_##TO] = dequantize_##FROM##_to_##TO,

#endif
