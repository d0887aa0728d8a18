/* AVX2 with F16C: the loops of pairs.h with its vectors, and by hand what has few bytes in the source; see version.h. */
#include "convert/pairs.h"
#include "convert/version.h"

#if defined(__x86_64__)

#include <immintrin.h>
#include <math.h>

#define TARGET __attribute__((target("avx2,f16c")))
#define TARGET_INLINE TARGET static inline __attribute__((always_inline))

enum { VECTOR_ELEMENTS = 16 };

/* --- 16 elements to two vectors of F32 and back ------------------------------------------------------------------------ */

TARGET_INLINE void store_pair(void *dst, __m256 low, __m256 high, enum dtype to)
{
    __m256i *at = dst;
    if (to == DTYPE_F32) {
        _mm256_storeu_si256(at, _mm256_castps_si256(low));
        _mm256_storeu_si256(at + 1, _mm256_castps_si256(high));
    } else if (to == DTYPE_F16) {
        __m128i first = _mm256_cvtps_ph(low, _MM_FROUND_TO_NEAREST_INT),
                second = _mm256_cvtps_ph(high, _MM_FROUND_TO_NEAREST_INT);
        _mm256_storeu_si256(at, _mm256_set_m128i(second, first));
    } else { /* BF16 */
        __m256i half = _mm256_set1_epi32(0x7fff), one = _mm256_set1_epi32(1);
        __m256i a = _mm256_castps_si256(low), b = _mm256_castps_si256(high);
        a = _mm256_add_epi32(a, _mm256_add_epi32(half, _mm256_and_si256(_mm256_srli_epi32(a, 16), one)));
        b = _mm256_add_epi32(b, _mm256_add_epi32(half, _mm256_and_si256(_mm256_srli_epi32(b, 16), one)));
        __m256i packed = _mm256_packus_epi32(_mm256_srli_epi32(a, 16), _mm256_srli_epi32(b, 16)); /* per 128 bits */
        _mm256_storeu_si256(at, _mm256_permute4x64_epi64(packed, _MM_SHUFFLE(3, 1, 2, 0)));
    }
}

/* F8 as the F16 of the same bits: that of F8_E4M3 is 2^8 times too small. */
TARGET_INLINE __m256i f16_of_f8(__m128i bytes, enum dtype from)
{
    if (from == DTYPE_F8_E5M2)
        return _mm256_slli_epi16(_mm256_cvtepu8_epi16(bytes), 8);
    return _mm256_and_si256(_mm256_slli_epi16(_mm256_cvtepi8_epi16(bytes), 7), _mm256_set1_epi16((short)0xbfff));
}

TARGET_INLINE bool any_nan_f8(__m128i bytes, enum dtype from)
{
    __m128i negative = _mm_or_si128(bytes, _mm_set1_epi8((char)0x80));
    __m128i first_nan = _mm_set1_epi8((char)(from == DTYPE_F8_E5M2 ? 0xfd : 0xff));
    return _mm_movemask_epi8(_mm_cmpeq_epi8(_mm_max_epu8(negative, first_nan), negative)) != 0;
}

/* Vectors with a NaN, and what does not fill one, are left to the loop. A scale that F8_E4M3's factor would take out of F32
 * leaves it everything. */
TARGET_INLINE void scale_f8(void *dst, const void *src, size_t n_elements, float scale, enum dtype from, enum dtype to,
                            scale_function *loop)
{
    const size_t to_bytes = float_bytes(to);
    __m256 factor = _mm256_set1_ps(from == DTYPE_F8_E5M2 ? scale : scale * 0x1p8F);
    size_t done = 0;
    for (; fabsf(scale) < 0x1p119F && done + VECTOR_ELEMENTS <= n_elements; done += VECTOR_ELEMENTS) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)((const char *)src + done));
        if (__builtin_expect(any_nan_f8(bytes, from), 0)) {
            loop((char *)dst + done * to_bytes, (const char *)src + done, VECTOR_ELEMENTS, scale);
            continue;
        }
        __m256i halves = f16_of_f8(bytes, from);
        __m256 low = _mm256_mul_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(halves)), factor);
        __m256 high = _mm256_mul_ps(_mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1)), factor);
        store_pair((char *)dst + done * to_bytes, low, high, to);
    }
    if (done < n_elements)
        loop((char *)dst + done * to_bytes, (const char *)src + done, n_elements - done, scale);
}

TARGET_INLINE void cast_halves(void *dst, const void *src, size_t n_elements, enum dtype from, enum dtype to,
                               cast_function *loop)
{
    const __m256i infinity = _mm256_set1_epi16(from == DTYPE_BF16 ? 0x7f80 : 0x7c00), no_sign = _mm256_set1_epi16(0x7fff);
    size_t done = 0;
    for (; done + VECTOR_ELEMENTS <= n_elements; done += VECTOR_ELEMENTS) {
        __m256i halves = _mm256_loadu_si256((const __m256i *)((const char *)src + 2 * done));
        __m256i nans = _mm256_cmpgt_epi16(_mm256_and_si256(halves, no_sign), infinity);
        if (__builtin_expect(!_mm256_testz_si256(nans, nans), 0)) {
            loop((char *)dst + 2 * done, (const char *)src + 2 * done, VECTOR_ELEMENTS);
            continue;
        }
        __m128i low = _mm256_castsi256_si128(halves), high = _mm256_extracti128_si256(halves, 1);
        if (from == DTYPE_BF16)
            store_pair((char *)dst + 2 * done, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(low), 16)),
                       _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(high), 16)), to);
        else
            store_pair((char *)dst + 2 * done, _mm256_cvtph_ps(low), _mm256_cvtph_ps(high), to);
    }
    loop((char *)dst + 2 * done, (const char *)src + 2 * done, n_elements - done);
}

/* --- the functions -------------------------------------------------------------------------------------------------- */

PAIRS_WITH_F32(DEFINE_CAST_LOOP)
PAIRS_TO_F8(DEFINE_CAST_LOOP)
PAIRS_OF_HALVES(DEFINE_HALVES)
PAIRS_FROM_F8(DEFINE_F8)

static cast_function *avx2_cast(enum dtype from, enum dtype to)
{
    static cast_function *const table[DTYPE_COUNT][DTYPE_COUNT] = {
        PAIRS_WITH_F32(CAST_ENTRY) PAIRS_TO_F8(CAST_ENTRY) PAIRS_OF_HALVES(CAST_ENTRY) PAIRS_FROM_F8(CAST_ENTRY)};
    return table[from][to];
}

static dequantize_function *avx2_dequantize(enum dtype from, enum dtype to)
{
    static dequantize_function *const table[DTYPE_COUNT][DTYPE_COUNT] = {PAIRS_FROM_F8(DEQUANTIZE_ENTRY)};
    return table[from][to];
}

const struct version version_avx2 = {.name = "avx2", .cast = avx2_cast, .dequantize = avx2_dequantize};

#endif
