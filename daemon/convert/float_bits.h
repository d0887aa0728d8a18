/* One element of a float type <-> the bits of an F32. All of it is inlined with constant types, has no branches and no
 * calls, and becomes vector code where the compiler is told which vectors there are.
 *
 * A small type has `m` bits of mantissa below its exponent, whose bias is `bias`. Its subnormals are multiples of
 * 2^(1 - bias - m): an F32 whose last bit has that weight holds such a multiple in its last bits, so an addition of floats
 * rounds to it, and a subtraction gives its value. */
#ifndef CONVERT_FLOAT_BITS_H
#define CONVERT_FLOAT_BITS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/dtype.h"
#include "convert/dequantize.h"

#define FLOAT_BITS_INLINE static inline __attribute__((always_inline))

enum {
    F32_SIGN_SHIFT = 31,
    F32_MANTISSA = 23,
    F32_BIAS = 127,
    F32_NO_SIGN = 0x7fffffff,
    F32_INFINITY = 0x7f800000,
    F32_QUIET_NAN = 0x7fc00000,
};

/* Elements at any address. */
typedef uint16_t __attribute__((aligned(1), may_alias)) unaligned_u16;
typedef uint32_t __attribute__((aligned(1), may_alias)) unaligned_u32;
typedef uint64_t __attribute__((aligned(1), may_alias)) unaligned_u64;

FLOAT_BITS_INLINE float float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

FLOAT_BITS_INLINE uint32_t bits_of_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

FLOAT_BITS_INLINE double double_of_bits(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

FLOAT_BITS_INLINE uint64_t bits_of_double(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* The F32 whose last bit weighs as much as the last bit of a small type's subnormals. */
FLOAT_BITS_INLINE uint32_t subnormal_unit(unsigned m, unsigned bias)
{
    return (F32_BIAS + F32_MANTISSA + 1 - bias - m) << F32_MANTISSA;
}

/* --- small types to F32 ------------------------------------------------------------------------------------------- */

/* A finite magnitude. */
FLOAT_BITS_INLINE uint32_t widen(uint32_t magnitude, unsigned m, unsigned bias)
{
    uint32_t unit = subnormal_unit(m, bias);
    uint32_t subnormal = bits_of_float(float_of_bits(unit | magnitude) - float_of_bits(unit));
    uint32_t normal = (magnitude << (F32_MANTISSA - m)) + ((F32_BIAS - bias) << F32_MANTISSA);
    return magnitude < 1u << m ? subnormal : normal;
}

FLOAT_BITS_INLINE uint32_t f32_of_f16(uint32_t bits)
{
    uint32_t magnitude = bits & 0x7fff, sign = (bits & 0x8000) << 16;
    uint32_t not_finite = magnitude << 13 | F32_INFINITY; /* the payload of a NaN stays as it is */
    return sign | (magnitude >= 0x7c00 ? not_finite : widen(magnitude, 10, 15));
}

FLOAT_BITS_INLINE uint32_t f32_of_e4m3(uint32_t bits)
{
    uint32_t magnitude = bits & 0x7f, sign = (bits & 0x80) << 24;
    return sign | (magnitude == 0x7f ? F32_QUIET_NAN : widen(magnitude, 3, 7));
}

FLOAT_BITS_INLINE uint32_t f32_of_e5m2(uint32_t bits)
{
    uint32_t magnitude = bits & 0x7f, sign = (bits & 0x80) << 24;
    uint32_t not_finite = magnitude == 0x7c ? F32_INFINITY : F32_QUIET_NAN;
    return sign | (magnitude >= 0x7c ? not_finite : widen(magnitude, 2, 15));
}

/* The NaN of the FNUZ types is where the others have -0, and their F32 is negative. */
FLOAT_BITS_INLINE uint32_t f32_of_fnuz(uint32_t bits, unsigned m, unsigned bias)
{
    uint32_t sign = (bits & 0x80) << 24;
    return sign | (bits == 0x80 ? F32_QUIET_NAN : widen(bits & 0x7f, m, bias));
}

FLOAT_BITS_INLINE uint32_t f32_of_e8m0(uint32_t bits)
{
    uint32_t finite = bits == 0 ? 1u << (F32_MANTISSA - 1) : bits << F32_MANTISSA;
    return bits == 0xff ? F32_QUIET_NAN : finite;
}

/* --- F32 to small types ------------------------------------------------------------------------------------------- */

/* The nearest magnitude, beyond the largest finite one when it overflows or is a NaN. */
FLOAT_BITS_INLINE uint32_t narrow(uint32_t magnitude, unsigned m, unsigned bias)
{
    uint32_t unit = subnormal_unit(m, bias), drop = F32_MANTISSA - m;
    uint32_t subnormal = bits_of_float(float_of_bits(magnitude) + float_of_bits(unit)) - unit;
    uint32_t rounded = magnitude + (1u << (drop - 1)) - 1 + (magnitude >> drop & 1);
    uint32_t normal = (rounded >> drop) - ((F32_BIAS - bias) << m);
    return magnitude < (F32_BIAS - bias + 1) << F32_MANTISSA ? subnormal : normal;
}

FLOAT_BITS_INLINE uint32_t lesser(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* The payload of a NaN keeps its upper bits; one that had none there gets the last. */
FLOAT_BITS_INLINE uint32_t f16_of_f32(uint32_t bits)
{
    uint32_t magnitude = bits & F32_NO_SIGN, sign = bits >> 16 & 0x8000;
    uint32_t payload = magnitude >> 13 & 0x3ff;
    uint32_t nan = 0x7c00 | (payload ? payload : 1);
    return sign | (magnitude > F32_INFINITY ? nan : lesser(narrow(magnitude, 10, 15), 0x7c00));
}

FLOAT_BITS_INLINE uint32_t bf16_of_f32(uint32_t bits)
{
    uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return (bits & F32_NO_SIGN) > F32_INFINITY ? (bits >> 16 & 0x8000) | 0x7fc0 : rounded;
}

FLOAT_BITS_INLINE uint32_t e4m3_of_f32(uint32_t bits)
{
    return (bits >> 24 & 0x80) | lesser(narrow(bits & F32_NO_SIGN, 3, 7), 0x7f);
}

FLOAT_BITS_INLINE uint32_t e5m2_of_f32(uint32_t bits)
{
    uint32_t magnitude = bits & F32_NO_SIGN;
    return (bits >> 24 & 0x80) | (magnitude > F32_INFINITY ? 0x7e : lesser(narrow(magnitude, 2, 15), 0x7c));
}

FLOAT_BITS_INLINE uint32_t fnuz_of_f32(uint32_t bits, unsigned m, unsigned bias)
{
    uint32_t nearest = narrow(bits & F32_NO_SIGN, m, bias), sign = nearest ? bits >> 24 & 0x80 : 0;
    return nearest > 0x7f ? 0x80 : sign | nearest;
}

/* A power of two, ties away from zero; below 2^-126 all that is more than 2^-127 becomes 2^-126, as in the reference. */
FLOAT_BITS_INLINE uint32_t e8m0_of_f32(uint32_t bits)
{
    uint32_t nearest =
        bits <= 1u << (F32_MANTISSA - 1) ? 0 : lesser((bits + (1u << (F32_MANTISSA - 1))) >> F32_MANTISSA, 0xff);
    return bits - 1 >= F32_INFINITY ? 0xff : nearest; /* zero and negative, infinity, NaN */
}

/* --- F64 and F16, which know each other ----------------------------------------------------------------------------- */

FLOAT_BITS_INLINE uint64_t f64_of_f16(uint32_t bits)
{
    uint64_t sign = (uint64_t)(bits & 0x8000) << 48, nan = (uint64_t)(bits & 0x7fff) << 42 | (uint64_t)0x7ff << 52;
    uint64_t number = bits_of_double((double)float_of_bits(f32_of_f16(bits & 0x7fff)));
    return sign | ((bits & 0x7fff) > 0x7c00 ? nan : number);
}

FLOAT_BITS_INLINE uint32_t f16_of_f64(uint64_t bits)
{
    const uint64_t infinity = (uint64_t)0x7ff << 52, unit = (uint64_t)(1023 + 52 - 24) << 52;
    uint64_t magnitude = bits & (((uint64_t)1 << 63) - 1), payload = magnitude >> 42 & 0x3ff;
    uint64_t nan = 0x7c00 | (payload ? payload : 1);
    uint64_t subnormal = bits_of_double(double_of_bits(magnitude) + double_of_bits(unit)) - unit;
    uint64_t rounded = magnitude + ((uint64_t)1 << 41) - 1 + (magnitude >> 42 & 1);
    uint64_t normal = (rounded >> 42) - ((1023 - 15) << 10);
    uint64_t nearest = magnitude < (uint64_t)(1023 - 14) << 52 ? subnormal : normal;
    uint64_t finite = nearest < 0x7c00 ? nearest : 0x7c00;
    return (uint32_t)(bits >> 48 & 0x8000) | (uint32_t)(magnitude > infinity ? nan : finite);
}

/* --- elements in memory ------------------------------------------------------------------------------------------- */

FLOAT_BITS_INLINE size_t float_bytes(enum dtype dtype)
{
    return dtype == DTYPE_F64 ? 8 : dtype == DTYPE_F32 ? 4 : dtype == DTYPE_F16 || dtype == DTYPE_BF16 ? 2 : 1;
}

/* Element i of `src` as F32. */
FLOAT_BITS_INLINE uint32_t load_f32(const void *src, size_t i, enum dtype from)
{
    switch (from) {
    case DTYPE_F64:
        return bits_of_float((float)double_of_bits(((const unaligned_u64 *)src)[i]));
    case DTYPE_F32:
        return ((const unaligned_u32 *)src)[i];
    case DTYPE_F16:
        return f32_of_f16(((const unaligned_u16 *)src)[i]);
    case DTYPE_BF16:
        return (uint32_t)((const unaligned_u16 *)src)[i] << 16;
    case DTYPE_F8_E4M3:
        return f32_of_e4m3(((const uint8_t *)src)[i]);
    case DTYPE_F8_E5M2:
        return f32_of_e5m2(((const uint8_t *)src)[i]);
    case DTYPE_F8_E4M3FNUZ:
        return f32_of_fnuz(((const uint8_t *)src)[i], 3, 8);
    case DTYPE_F8_E5M2FNUZ:
        return f32_of_fnuz(((const uint8_t *)src)[i], 2, 16);
    default: /* DTYPE_F8_E8M0 */
        return f32_of_e8m0(((const uint8_t *)src)[i]);
    }
}

/* The F32 `bits` to element i of `dst`. */
FLOAT_BITS_INLINE void store_f32(void *dst, size_t i, enum dtype to, uint32_t bits)
{
    switch (to) {
    case DTYPE_F64:
        ((unaligned_u64 *)dst)[i] = bits_of_double((double)float_of_bits(bits));
        break;
    case DTYPE_F32:
        ((unaligned_u32 *)dst)[i] = bits;
        break;
    case DTYPE_F16:
        ((unaligned_u16 *)dst)[i] = (uint16_t)f16_of_f32(bits);
        break;
    case DTYPE_BF16:
        ((unaligned_u16 *)dst)[i] = (uint16_t)bf16_of_f32(bits);
        break;
    case DTYPE_F8_E4M3:
        ((uint8_t *)dst)[i] = (uint8_t)e4m3_of_f32(bits);
        break;
    case DTYPE_F8_E5M2:
        ((uint8_t *)dst)[i] = (uint8_t)e5m2_of_f32(bits);
        break;
    case DTYPE_F8_E4M3FNUZ:
        ((uint8_t *)dst)[i] = (uint8_t)fnuz_of_f32(bits, 3, 8);
        break;
    case DTYPE_F8_E5M2FNUZ:
        ((uint8_t *)dst)[i] = (uint8_t)fnuz_of_f32(bits, 2, 16);
        break;
    default: /* DTYPE_F8_E8M0 */
        ((uint8_t *)dst)[i] = (uint8_t)e8m0_of_f32(bits);
    }
}

/* A NaN of BF16 is canonical in F16, unlike one that comes as F32. */
FLOAT_BITS_INLINE void cast_elements(void *restrict dst, const void *restrict src, size_t n_elements, enum dtype from,
                                     enum dtype to)
{
    for (size_t i = 0; i < n_elements; i++) {
        if (from == DTYPE_F64 && to == DTYPE_F16) {
            ((unaligned_u16 *)dst)[i] = (uint16_t)f16_of_f64(((const unaligned_u64 *)src)[i]);
        } else if (from == DTYPE_F16 && to == DTYPE_F64) {
            ((unaligned_u64 *)dst)[i] = f64_of_f16(((const unaligned_u16 *)src)[i]);
        } else if (from == DTYPE_BF16 && to == DTYPE_F16) {
            uint32_t bits = load_f32(src, i, from), nan = (bits & ~(uint32_t)F32_NO_SIGN) | F32_QUIET_NAN;
            store_f32(dst, i, to, (bits & F32_NO_SIGN) > F32_INFINITY ? nan : bits);
        } else {
            store_f32(dst, i, to, load_f32(src, i, from));
        }
    }
}

/* Elements that share one scale. */
FLOAT_BITS_INLINE void scale_elements(void *restrict dst, const void *restrict src, size_t n_elements, float scale,
                                      enum dtype from, enum dtype to)
{
    for (size_t i = 0; i < n_elements; i++)
        store_f32(dst, i, to, bits_of_float(float_of_bits(load_f32(src, i, from)) * scale));
}

typedef void scale_function(void *dst, const void *src, size_t n_elements, float scale);

/* A run of elements of one byte each, by a function for elements of one scale. */
FLOAT_BITS_INLINE void dequantize_by_blocks(void *dst, const void *src, size_t n_elements, const struct dequantize_run *run,
                                            size_t to_bytes, scale_function *scale)
{
    size_t block = run->column / run->block_columns, until_next = run->block_columns - run->column % run->block_columns;
    for (size_t done = 0; done < n_elements; block++, until_next = run->block_columns) {
        size_t n = until_next < n_elements - done ? until_next : n_elements - done;
        scale((char *)dst + done * to_bytes, (const char *)src + done, n, run->scales[block]);
        done += n;
    }
}

#endif
