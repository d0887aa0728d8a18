/* All three CRCs are one algorithm with bits reflected: a register of up to 64 bits, a polynomial, all ones before and
 * after. Long messages are folded with PCLMULQDQ (four lanes of 16 bytes) or VPCLMULQDQ (four of 64), where the processor has them;
 * what remains goes eight bytes at a time through tables.
 *
 * A residue is kept with x^0 in the highest of its bits. Tables and factors are made at the first use, some 50 us. */
#include "base/crc.h"

#include <assert.h>
#include <endian.h>
#include <pthread.h>
#include <string.h>

#ifdef __x86_64__
#include <immintrin.h>
#endif

enum { FOLD_WIDTHS = 2, MAX_BLOCK_BYTES = 256 };

/* A message is folded by wide multiplications into a short one with the same remainder, which tables then finish. Lanes lie behind
 * one another in a block; folding moves a lane one block ahead: its first eight bytes times x^(bits + 63), its last eight times
 * x^(bits - 1), modulo the polynomial, bits reflected and left-aligned. */
struct fold {           /* one width */
    size_t block_bytes; /* what remains */
    /* Folds n_blocks >= 1 blocks into `remains`; `state` is the register before them. */
    void (*fold)(const unsigned char *bytes, size_t n_blocks, uint64_t state, const uint64_t factors[2],
                 unsigned char *remains);
};

enum { STEP_BYTES = 8, POWERS = 64 + 3 /* of two: a length of 64 bits in bytes, times eight */ };

struct family {
    unsigned bits;
    uint64_t polynomial, ones;
    uint64_t tables[STEP_BYTES][256]; /* of a byte with so many zero bytes behind it */
    uint64_t powers[POWERS];          /* x^(2^k) */
    uint64_t factors[FOLD_WIDTHS][2];
};

static struct family families[] = {
    [CHECKSUM_CRC32C] = {.bits = 32, .polynomial = 0x82f63b78, .ones = UINT32_MAX},
    [CHECKSUM_CRC32] = {.bits = 32, .polynomial = 0xedb88320, .ones = UINT32_MAX},
    [CHECKSUM_CRC64NVME] = {.bits = 64, .polynomial = 0x9a6c9329ac4bc9b5, .ones = UINT64_MAX},
};
static const struct fold *folds[FOLD_WIDTHS];
static size_t n_folds;

/* --- folding --------------------------------------------------------------------------------------------------- */

#ifdef __x86_64__

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

#endif

/* --- arithmetic modulo the polynomial ----------------------------------------------------------------------------- */

static uint64_t times_x(const struct family *family, uint64_t residue)
{
    return residue >> 1 ^ (residue & 1 ? family->polynomial : 0);
}

static uint64_t multiply(const struct family *family, uint64_t a, uint64_t b)
{
    uint64_t product = 0;
    for (uint64_t bit = (uint64_t)1 << (family->bits - 1); a; bit >>= 1, b = times_x(family, b)) {
        if (a & bit)
            product ^= b;
        a &= ~bit;
    }
    return product;
}

/* residue * x^(exponent * 2^shift) */
static uint64_t times_power(const struct family *family, uint64_t residue, uint64_t exponent, unsigned shift)
{
    for (unsigned k = shift; exponent; exponent >>= 1, k++)
        if (exponent & 1)
            residue = multiply(family, residue, family->powers[k]);
    return residue;
}

static void make_families(void)
{
#ifdef __x86_64__ /* wide folds first; each block is a multiple of the next one's */
    static const struct fold wide = {256, fold_64}, narrow = {64, fold_16};
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq"))
        folds[n_folds++] = &wide;
    if (__builtin_cpu_supports("pclmul"))
        folds[n_folds++] = &narrow;
#endif
    for (struct family *family = families; family < families + sizeof families / sizeof *families; family++) {
        if (!family->bits)
            continue;
        for (unsigned byte = 0; byte < 256; byte++) {
            uint64_t residue = byte;
            for (int bit = 0; bit < 8; bit++)
                residue = times_x(family, residue);
            family->tables[0][byte] = residue;
        }
        for (unsigned zeros = 1; zeros < STEP_BYTES; zeros++)
            for (unsigned byte = 0; byte < 256; byte++) {
                uint64_t before = family->tables[zeros - 1][byte];
                family->tables[zeros][byte] = before >> 8 ^ family->tables[0][before & 0xff];
            }
        family->powers[0] = (uint64_t)1 << (family->bits - 2);
        for (unsigned k = 1; k < POWERS; k++)
            family->powers[k] = multiply(family, family->powers[k - 1], family->powers[k - 1]);
        uint64_t one = (uint64_t)1 << (family->bits - 1);
        for (size_t i = 0; i < n_folds; i++) {
            uint64_t block_bits = 8 * folds[i]->block_bytes;
            family->factors[i][0] = times_power(family, one, block_bits + 63, 0) << (64 - family->bits);
            family->factors[i][1] = times_power(family, one, block_bits - 1, 0) << (64 - family->bits);
        }
    }
}

static const struct family *family_of(enum checksum_kind kind)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    assert(checksum_kind_is_crc(kind));
    pthread_once(&once, make_families);
    return &families[kind];
}

/* --- sums --------------------------------------------------------------------------------------------------------- */

static uint64_t add_by_tables(const struct family *family, uint64_t state, const unsigned char *bytes, size_t count)
{
    const uint64_t(*tables)[256] = family->tables;
    for (; count >= STEP_BYTES; bytes += STEP_BYTES, count -= STEP_BYTES) {
        uint64_t word;
        memcpy(&word, bytes, sizeof word);
        word = le64toh(word) ^ state;
        state = tables[7][word & 0xff] ^ tables[6][word >> 8 & 0xff] ^ tables[5][word >> 16 & 0xff] ^
                tables[4][word >> 24 & 0xff] ^ tables[3][word >> 32 & 0xff] ^ tables[2][word >> 40 & 0xff] ^
                tables[1][word >> 48 & 0xff] ^ tables[0][word >> 56];
    }
    for (; count > 0; bytes++, count--)
        state = state >> 8 ^ tables[0][(state ^ *bytes) & 0xff];
    return state;
}

/* Folds with one width and goes on with the next, first what remains and then the bytes that were no whole block. */
static uint64_t fold_in(const struct family *family, uint64_t state, const unsigned char *bytes, size_t count, size_t width)
{
    unsigned char remains[MAX_BLOCK_BYTES];
    if (width == n_folds)
        return add_by_tables(family, state, bytes, count);
    size_t block_bytes = folds[width]->block_bytes, n_blocks = count / block_bytes;
    if (n_blocks > 1) {
        folds[width]->fold(bytes, n_blocks, state, family->factors[width], remains);
        state = fold_in(family, 0, remains, block_bytes, width + 1);
        bytes += n_blocks * block_bytes;
        count -= n_blocks * block_bytes;
    }
    return fold_in(family, state, bytes, count, width + 1);
}

uint64_t crc_update(enum checksum_kind kind, uint64_t crc, const void *bytes, size_t count)
{
    const struct family *family = family_of(kind);
    return fold_in(family, crc ^ family->ones, bytes, count, 0) ^ family->ones;
}

uint64_t crc_combine(enum checksum_kind kind, uint64_t a, uint64_t b, uint64_t b_bytes)
{
    return times_power(family_of(kind), a, b_bytes, 3) ^ b;
}
