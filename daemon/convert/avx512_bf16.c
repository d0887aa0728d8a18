/* AVX512_BF16 on top of avx512.c: rounds 32 elements to BF16 by one instruction where two take ten. It takes subnormals of F32
 * for zero, so it serves only where there cannot be any: from F16, whose smallest number is 2^-24, and from F8 with a scale
 * that is not tiny. See version.h. */
#include "convert/pairs.h"
#include "convert/version.h"

#if defined(__x86_64__)

#include <immintrin.h>
#include <math.h>

#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))
#define TARGET_INLINE TARGET static inline __attribute__((always_inline))

enum { VECTOR_ELEMENTS = 64 };

/* 32 F16, none of them a NaN, times a factor. */
TARGET_INLINE void store_scaled(void *dst, __m512i halves, __m512 factor)
{
    __m512 low = _mm512_mul_ps(_mm512_cvtph_ps(_mm512_castsi512_si256(halves)), factor);
    __m512 high = _mm512_mul_ps(_mm512_cvtph_ps(_mm512_extracti64x4_epi64(halves, 1)), factor);
    __m512bh rounded = _mm512_cvtne2ps_pbh(high, low);
    memcpy(dst, &rounded, sizeof rounded);
}

/* F8 as the F16 of the same bits: that of F8_E4M3 is 2^8 times too small. */
TARGET_INLINE __m512i f16_of_f8(__m256i bytes, enum dtype from)
{
    if (from == DTYPE_F8_E5M2)
        return _mm512_slli_epi16(_mm512_cvtepu8_epi16(bytes), 8);
    return _mm512_and_si512(_mm512_slli_epi16(_mm512_cvtepi8_epi16(bytes), 7), _mm512_set1_epi16((short)0xbfff));
}

TARGET_INLINE bool any_nan_f8(__m512i bytes, enum dtype from)
{
    __m512i negative = _mm512_or_si512(bytes, _mm512_set1_epi8((char)0x80));
    return _mm512_cmpge_epu8_mask(negative, _mm512_set1_epi8((char)(from == DTYPE_F8_E5M2 ? 0xfd : 0xff))) != 0;
}

/* The smallest numbers of F8_E4M3 and F8_E5M2 are 2^-9 and 2^-16, the smallest normal one of F32 2^-126. The upper bound keeps
 * F8_E4M3's factor finite. What these scales do not fit, vectors with a NaN, and what fills no vector are left to the loop. */
TARGET_INLINE void scale_f8(void *dst, const void *src, size_t n_elements, float scale, enum dtype from, enum dtype to,
                            scale_function *loop)
{
    (void)to; /* BF16 */
    const __m512 factor = _mm512_set1_ps(from == DTYPE_F8_E5M2 ? scale : scale * 0x1p8F);
    const bool fits = fabsf(scale) >= 0x1p-110F && fabsf(scale) < 0x1p119F;
    size_t done = 0;
    for (; fits && done + VECTOR_ELEMENTS <= n_elements; done += VECTOR_ELEMENTS) {
        char *at = (char *)dst + 2 * done;
        __m512i bytes = _mm512_loadu_si512((const char *)src + done);
        if (__builtin_expect(any_nan_f8(bytes, from), 0)) {
            loop(at, (const char *)src + done, VECTOR_ELEMENTS, scale);
            continue;
        }
        store_scaled(at, f16_of_f8(_mm512_castsi512_si256(bytes), from), factor);
        store_scaled(at + VECTOR_ELEMENTS, f16_of_f8(_mm512_extracti64x4_epi64(bytes, 1), from), factor);
    }
    if (done < n_elements)
        loop((char *)dst + 2 * done, (const char *)src + done, n_elements - done, scale);
}

TARGET static void loop_F16_to_BF16(void *dst, const void *src, size_t n_elements)
{
    cast_elements(dst, src, n_elements, DTYPE_F16, DTYPE_BF16);
}

TARGET static void cast_F16_to_BF16(void *dst, const void *src, size_t n_elements)
{
    const __m512 one = _mm512_set1_ps(1);
    const size_t n = VECTOR_ELEMENTS / 2;
    size_t done = 0;
    for (; done + n <= n_elements; done += n) {
        __m512i halves = _mm512_loadu_si512((const char *)src + 2 * done);
        __m512i magnitudes = _mm512_and_si512(halves, _mm512_set1_epi16(0x7fff));
        if (__builtin_expect(_mm512_cmpgt_epu16_mask(magnitudes, _mm512_set1_epi16(0x7c00)) != 0, 0))
            loop_F16_to_BF16((char *)dst + 2 * done, (const char *)src + 2 * done, n);
        else
            store_scaled((char *)dst + 2 * done, halves, one);
    }
    loop_F16_to_BF16((char *)dst + 2 * done, (const char *)src + 2 * done, n_elements - done);
}

#define PAIRS(X) X(F8_E4M3, BF16) X(F8_E5M2, BF16)
PAIRS(DEFINE_F8)

static cast_function *bf16_cast(enum dtype from, enum dtype to)
{
    static cast_function *const table[DTYPE_COUNT][DTYPE_COUNT] = {PAIRS(CAST_ENTRY) CAST_ENTRY(F16, BF16)};
    return table[from][to];
}

static dequantize_function *bf16_dequantize(enum dtype from, enum dtype to)
{
    static dequantize_function *const table[DTYPE_COUNT][DTYPE_COUNT] = {PAIRS(DEQUANTIZE_ENTRY)};
    return table[from][to];
}

const struct version version_avx512_bf16 = {.name = "avx512_bf16", .cast = bf16_cast, .dequantize = bf16_dequantize};

#endif
