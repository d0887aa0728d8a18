/* Folding with PCLMULQDQ (four lanes of 16 bytes) and VPCLMULQDQ (four of 64); see crc_fold.h. Other processors: none, the
 * tables do it all. */
#include "base/crc_fold.h"

#if defined(__x86_64__)

#include <immintrin.h>

__attribute__((target("pclmul"))) static inline __m128i fold_lane(__m128i lane, __m128i factors, __m128i next)
{
    __m128i first = _mm_clmulepi64_si128(lane, factors, 0x00), last = _mm_clmulepi64_si128(lane, factors, 0x11);
    return _mm_xor_si128(_mm_xor_si128(first, last), next);
}

__attribute__((target("pclmul"))) static void fold_16(const unsigned char *bytes, size_t n_blocks, uint64_t state,
                                                      const uint64_t factors[2], unsigned char *remains)
{
    const __m128i *from = (const __m128i *)bytes;
    __m128i by = _mm_loadu_si128((const __m128i *)factors);
    __m128i a = _mm_xor_si128(_mm_loadu_si128(from), _mm_set_epi64x(0, (long long)state));
    __m128i b = _mm_loadu_si128(from + 1), c = _mm_loadu_si128(from + 2), d = _mm_loadu_si128(from + 3);
    for (from += 4; --n_blocks > 0; from += 4) {
        a = fold_lane(a, by, _mm_loadu_si128(from));
        b = fold_lane(b, by, _mm_loadu_si128(from + 1));
        c = fold_lane(c, by, _mm_loadu_si128(from + 2));
        d = fold_lane(d, by, _mm_loadu_si128(from + 3));
    }
    __m128i *to = (__m128i *)remains;
    _mm_storeu_si128(to, a);
    _mm_storeu_si128(to + 1, b);
    _mm_storeu_si128(to + 2, c);
    _mm_storeu_si128(to + 3, d);
}

__attribute__((target("avx512f,vpclmulqdq"))) static inline __m512i fold_wide_lane(__m512i lane, __m512i factors,
                                                                                   __m512i next)
{
    enum { XOR_OF_THREE = 0x96 };
    __m512i first = _mm512_clmulepi64_epi128(lane, factors, 0x00), last = _mm512_clmulepi64_epi128(lane, factors, 0x11);
    return _mm512_ternarylogic_epi64(first, last, next, XOR_OF_THREE);
}

__attribute__((target("avx512f,vpclmulqdq"))) static void
fold_64(const unsigned char *bytes, size_t n_blocks, uint64_t state, const uint64_t factors[2], unsigned char *remains)
{
    __m512i by = _mm512_broadcast_i64x4(
        _mm256_setr_epi64x((long long)factors[0], (long long)factors[1], (long long)factors[0], (long long)factors[1]));
    __m512i a = _mm512_xor_si512(_mm512_loadu_si512(bytes), _mm512_zextsi128_si512(_mm_set_epi64x(0, (long long)state)));
    __m512i b = _mm512_loadu_si512(bytes + 64), c = _mm512_loadu_si512(bytes + 128), d = _mm512_loadu_si512(bytes + 192);
    for (bytes += 256; --n_blocks > 0; bytes += 256) {
        a = fold_wide_lane(a, by, _mm512_loadu_si512(bytes));
        b = fold_wide_lane(b, by, _mm512_loadu_si512(bytes + 64));
        c = fold_wide_lane(c, by, _mm512_loadu_si512(bytes + 128));
        d = fold_wide_lane(d, by, _mm512_loadu_si512(bytes + 192));
    }
    _mm512_storeu_si512(remains, a);
    _mm512_storeu_si512(remains + 64, b);
    _mm512_storeu_si512(remains + 128, c);
    _mm512_storeu_si512(remains + 192, d);
}

size_t crc_folds(const struct crc_fold *folds[CRC_FOLD_WIDTHS])
{
    static const struct crc_fold wide = {256, fold_64}, narrow = {64, fold_16};
    size_t n = 0;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq"))
        folds[n++] = &wide;
    if (__builtin_cpu_supports("pclmul"))
        folds[n++] = &narrow;
    return n;
}

#else

size_t crc_folds(const struct crc_fold *folds[CRC_FOLD_WIDTHS])
{
    (void)folds;
    return 0;
}

#endif
