/* AVX-512 (F, BW, DQ, VL): the loops of pairs.h with its vectors, and by hand what has few bytes in the source; see version.h. */
#include "convert/pairs.h"
#include "convert/version.h"

#if defined(__x86_64__)

#include <immintrin.h>
#include <math.h>

#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define TARGET_INLINE TARGET static inline __attribute__((always_inline))

enum { VECTOR_ELEMENTS = 32 };

/* --- 32 elements to two vectors of F32 and back ------------------------------------------------------------------------ */

TARGET_INLINE __m512i round_to_bf16(__m512 values)
{
    __m512i bits = _mm512_castps_si512(values);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    return _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
}

TARGET_INLINE void store_pair(void *dst, __m512 low, __m512 high, enum dtype to)
{
    if (to == DTYPE_F32) {
        _mm512_storeu_ps(dst, low);
        _mm512_storeu_ps((float *)dst + 16, high);
    } else if (to == DTYPE_F16) {
        _mm256_storeu_si256((__m256i *)dst, _mm512_cvtps_ph(low, _MM_FROUND_TO_NEAREST_INT));
        _mm256_storeu_si256((__m256i *)dst + 1, _mm512_cvtps_ph(high, _MM_FROUND_TO_NEAREST_INT));
    } else { /* BF16: the upper halves */
        static const uint16_t odd_words[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
                                               33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
        __m512i upper = _mm512_permutex2var_epi16(round_to_bf16(low), _mm512_loadu_si512(odd_words), round_to_bf16(high));
        _mm512_storeu_si512(dst, upper);
    }
}

/* F8 as the F16 of the same bits: that of F8_E4M3 is 2^8 times too small. */
TARGET_INLINE __m512i f16_of_f8(__m256i bytes, enum dtype from)
{
    if (from == DTYPE_F8_E5M2)
        return _mm512_slli_epi16(_mm512_cvtepu8_epi16(bytes), 8);
    return _mm512_and_si512(_mm512_slli_epi16(_mm512_cvtepi8_epi16(bytes), 7), _mm512_set1_epi16((short)0xbfff));
}

TARGET_INLINE bool any_nan_f8(__m256i bytes, enum dtype from)
{
    __m256i negative = _mm256_or_si256(bytes, _mm256_set1_epi8((char)0x80));
    return _mm256_cmpge_epu8_mask(negative, _mm256_set1_epi8((char)(from == DTYPE_F8_E5M2 ? 0xfd : 0xff))) != 0;
}

/* Vectors with a NaN, and what does not fill one, are left to the loop. A scale that F8_E4M3's factor would take out of F32
 * leaves it everything. */
TARGET_INLINE void scale_f8(void *dst, const void *src, size_t n_elements, float scale, enum dtype from, enum dtype to,
                            scale_function *loop)
{
    const size_t to_bytes = float_bytes(to);
    __m512 factor = _mm512_set1_ps(from == DTYPE_F8_E5M2 ? scale : scale * 0x1p8F);
    size_t done = 0;
    for (; fabsf(scale) < 0x1p119F && done + VECTOR_ELEMENTS <= n_elements; done += VECTOR_ELEMENTS) {
        __m256i bytes = _mm256_loadu_si256((const __m256i *)((const char *)src + done));
        if (__builtin_expect(any_nan_f8(bytes, from), 0)) {
            loop((char *)dst + done * to_bytes, (const char *)src + done, VECTOR_ELEMENTS, scale);
            continue;
        }
        __m512i halves = f16_of_f8(bytes, from);
        __m512 low = _mm512_mul_ps(_mm512_cvtph_ps(_mm512_castsi512_si256(halves)), factor);
        __m512 high = _mm512_mul_ps(_mm512_cvtph_ps(_mm512_extracti64x4_epi64(halves, 1)), factor);
        store_pair((char *)dst + done * to_bytes, low, high, to);
    }
    if (done < n_elements)
        loop((char *)dst + done * to_bytes, (const char *)src + done, n_elements - done, scale);
}

TARGET_INLINE void cast_halves(void *dst, const void *src, size_t n_elements, enum dtype from, enum dtype to,
                               cast_function *loop)
{
    const __m512i infinity = _mm512_set1_epi16(from == DTYPE_BF16 ? 0x7f80 : 0x7c00), no_sign = _mm512_set1_epi16(0x7fff);
    size_t done = 0;
    for (; done + VECTOR_ELEMENTS <= n_elements; done += VECTOR_ELEMENTS) {
        __m512i halves = _mm512_loadu_si512((const char *)src + 2 * done);
        if (__builtin_expect(_mm512_cmpgt_epu16_mask(_mm512_and_si512(halves, no_sign), infinity) != 0, 0)) {
            loop((char *)dst + 2 * done, (const char *)src + 2 * done, VECTOR_ELEMENTS);
            continue;
        }
        __m256i low = _mm512_castsi512_si256(halves), high = _mm512_extracti64x4_epi64(halves, 1);
        if (from == DTYPE_BF16)
            store_pair((char *)dst + 2 * done, _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(low), 16)),
                       _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16)), to);
        else
            store_pair((char *)dst + 2 * done, _mm512_cvtph_ps(low), _mm512_cvtph_ps(high), to);
    }
    loop((char *)dst + 2 * done, (const char *)src + 2 * done, n_elements - done);
}

/* --- the functions -------------------------------------------------------------------------------------------------- */

PAIRS_WITH_F32(DEFINE_CAST_LOOP)
PAIRS_TO_F8(DEFINE_CAST_LOOP)
PAIRS_OF_HALVES(DEFINE_HALVES)
PAIRS_FROM_F8(DEFINE_F8)

static cast_function *avx512_cast(enum dtype from, enum dtype to)
{
    static cast_function *const table[DTYPE_COUNT][DTYPE_COUNT] = {
        PAIRS_WITH_F32(CAST_ENTRY) PAIRS_TO_F8(CAST_ENTRY) PAIRS_OF_HALVES(CAST_ENTRY) PAIRS_FROM_F8(CAST_ENTRY)};
    return table[from][to];
}

static dequantize_function *avx512_dequantize(enum dtype from, enum dtype to)
{
    static dequantize_function *const table[DTYPE_COUNT][DTYPE_COUNT] = {PAIRS_FROM_F8(DEQUANTIZE_ENTRY)};
    return table[from][to];
}

const struct version version_avx512 = {.name = "avx512", .cast = avx512_cast, .dequantize = avx512_dequantize};

#endif
