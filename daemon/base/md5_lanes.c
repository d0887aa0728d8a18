/* RFC 1321. The vector version is compiled for AVX-512 and AVX2, too, and chosen at run time. */
#include "base/md5_lanes.h"

#include <string.h>

enum { BLOCK_BYTES = 64, WORDS = 16, ROUNDS = 4, STEPS = 64 };

typedef uint32_t vector __attribute__((vector_size(4 * MD5_LANES)));

struct md5_state {
    vector a, b, c, d;
};

/* floor(2^32 * abs(sin(i + 1))) */
static const uint32_t constants[STEPS] = {
    0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a, 0xa8304613, 0xfd469501, 0x698098d8, 0x8b44f7af,
    0xffff5bb1, 0x895cd7be, 0x6b901122, 0xfd987193, 0xa679438e, 0x49b40821, 0xf61e2562, 0xc040b340, 0x265e5a51, 0xe9b6c7aa,
    0xd62f105d, 0x02441453, 0xd8a1e681, 0xe7d3fbc8, 0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed, 0xa9e3e905, 0xfcefa3f8,
    0x676f02d9, 0x8d2a4c8a, 0xfffa3942, 0x8771f681, 0x6d9d6122, 0xfde5380c, 0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70,
    0x289b7ec6, 0xeaa127fa, 0xd4ef3085, 0x04881d05, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665, 0xf4292244, 0x432aff97,
    0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92, 0xffeff47d, 0x85845dd1, 0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1,
    0xf7537e82, 0xbd3af235, 0x2ad7d2bb, 0xeb86d391};

#define STEP(mix, word, shift, i)                                                                                           \
    do {                                                                                                                    \
        vector sum = a + (mix) + words[word] + constants[i];                                                                \
        a = d;                                                                                                              \
        d = c;                                                                                                              \
        c = b;                                                                                                              \
        b += sum << (shift) | sum >> (32 - (shift));                                                                        \
    } while (0)
#define FOUR_STEPS(mix, from, by, i, s0, s1, s2, s3)                                                                        \
    do {                                                                                                                    \
        STEP(mix, ((from) + (by) * (i)) % WORDS, s0, ROUND + (i));                                                          \
        STEP(mix, ((from) + (by) * ((i) + 1)) % WORDS, s1, ROUND + (i) + 1);                                                \
        STEP(mix, ((from) + (by) * ((i) + 2)) % WORDS, s2, ROUND + (i) + 2);                                                \
        STEP(mix, ((from) + (by) * ((i) + 3)) % WORDS, s3, ROUND + (i) + 3);                                                \
    } while (0)
#define SIXTEEN_STEPS(mix, from, by, s0, s1, s2, s3)                                                                        \
    do {                                                                                                                    \
        FOUR_STEPS(mix, from, by, 0, s0, s1, s2, s3);                                                                       \
        FOUR_STEPS(mix, from, by, 4, s0, s1, s2, s3);                                                                       \
        FOUR_STEPS(mix, from, by, 8, s0, s1, s2, s3);                                                                       \
        FOUR_STEPS(mix, from, by, 12, s0, s1, s2, s3);                                                                      \
    } while (0)

#define UPPER_1 0, 8, 2, 10, 4, 12, 6, 14
#define LOWER_1 1, 9, 3, 11, 5, 13, 7, 15
#define UPPER_2 0, 1, 8, 9, 4, 5, 12, 13
#define LOWER_2 2, 3, 10, 11, 6, 7, 14, 15
#define UPPER_4 0, 1, 2, 3, 8, 9, 10, 11
#define LOWER_4 4, 5, 6, 7, 12, 13, 14, 15
#define SWAP_TWO(row, apart)                                                                                                \
    do {                                                                                                                    \
        vector upper = rows[row], lower = rows[(row) + (apart)];                                                            \
        rows[row] = __builtin_shufflevector(upper, lower, UPPER_##apart);                                                   \
        rows[(row) + (apart)] = __builtin_shufflevector(upper, lower, LOWER_##apart);                                       \
    } while (0)
#define SWAP_BLOCKS(apart, b, c, d)                                                                                         \
    do {                                                                                                                    \
        SWAP_TWO(0, apart);                                                                                                 \
        SWAP_TWO(b, apart);                                                                                                 \
        SWAP_TWO(c, apart);                                                                                                 \
        SWAP_TWO(d, apart);                                                                                                 \
    } while (0)

/* Rows become columns: blocks of one word beside the diagonal change places, then blocks of two, then of four. */
static inline __attribute__((always_inline)) void transpose_words(vector rows[MD5_LANES])
{
    SWAP_BLOCKS(1, 2, 4, 6);
    SWAP_BLOCKS(2, 1, 4, 5);
    SWAP_BLOCKS(4, 1, 2, 3);
}

/* A block of each lane, `offset` bytes behind its beginning: eight words of all lanes, and the other eight. Putting each word into
 * its vector by itself takes a sixth of the whole. */
static inline __attribute__((always_inline)) void load_words(const unsigned char *const at[MD5_LANES], size_t offset,
                                                             vector words[WORDS])
{
    for (int lane = 0; lane < MD5_LANES; lane++) { /* little endian, as every host of ours is */
        memcpy(&words[lane], at[lane] + offset, sizeof words[lane]);
        memcpy(&words[MD5_LANES + lane], at[lane] + offset + sizeof words[lane], sizeof words[lane]);
    }
    transpose_words(words);
    transpose_words(words + MD5_LANES);
}

static inline __attribute__((always_inline)) void add_blocks(struct md5_state *state,
                                                             const unsigned char *const at[MD5_LANES], size_t n_blocks)
{
    vector words[WORDS];
    for (size_t block = 0; block < n_blocks; block++) {
        vector a = state->a, b = state->b, c = state->c, d = state->d;
        load_words(at, block * BLOCK_BYTES, words);
#define ROUND 0
        SIXTEEN_STEPS((d ^ (b & (c ^ d))), 0, 1, 7, 12, 17, 22);
#undef ROUND
#define ROUND 16
        SIXTEEN_STEPS((c ^ (d & (b ^ c))), 1, 5, 5, 9, 14, 20);
#undef ROUND
#define ROUND 32
        SIXTEEN_STEPS((b ^ c ^ d), 5, 3, 4, 11, 16, 23);
#undef ROUND
#define ROUND 48
        SIXTEEN_STEPS((c ^ (b | ~d)), 0, 7, 6, 10, 15, 21);
#undef ROUND
        state->a += a;
        state->b += b;
        state->c += c;
        state->d += d;
    }
}

typedef void add_function(struct md5_state *state, const unsigned char *const at[MD5_LANES], size_t n_blocks);

static void add_portable(struct md5_state *state, const unsigned char *const at[MD5_LANES], size_t n_blocks)
{
    add_blocks(state, at, n_blocks);
}

#ifdef __x86_64__
__attribute__((target("avx2"))) static void add_avx2(struct md5_state *state, const unsigned char *const at[MD5_LANES],
                                                     size_t n_blocks)
{
    add_blocks(state, at, n_blocks);
}

__attribute__((target("avx2,avx512f,avx512vl"))) static void
add_avx512(struct md5_state *state, const unsigned char *const at[MD5_LANES], size_t n_blocks)
{
    add_blocks(state, at, n_blocks);
}
#endif

static add_function *choose_version(void)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512vl"))
        return add_avx512;
    if (__builtin_cpu_supports("avx2"))
        return add_avx2;
#endif
    return add_portable;
}

static void keep_sum(const struct md5_state *state, size_t lane, unsigned char sum[MD5_LANES_BYTES])
{
    const uint32_t words[] = {state->a[lane], state->b[lane], state->c[lane], state->d[lane]};
    memcpy(sum, words, MD5_LANES_BYTES);
}

/* What does not fill a block, a bit, zeros, and the length in bits: one block or two. */
static size_t write_tail(const struct md5_lane *lane, unsigned char tail[2 * BLOCK_BYTES])
{
    size_t rest = lane->count % BLOCK_BYTES, n_blocks = rest < BLOCK_BYTES - 8 ? 1 : 2;
    uint64_t bits = (uint64_t)lane->count * 8;
    memset(tail, 0, 2 * BLOCK_BYTES);
    if (rest)
        memcpy(tail, (const unsigned char *)lane->bytes + lane->count - rest, rest);
    tail[rest] = 0x80;
    memcpy(tail + n_blocks * BLOCK_BYTES - sizeof bits, &bits, sizeof bits);
    return n_blocks;
}

static void end_lanes(add_function *add, const struct md5_state *state, struct md5_lane *lanes, size_t n)
{
    unsigned char tails[MD5_LANES][2 * BLOCK_BYTES] = {0};
    const unsigned char *at[MD5_LANES];
    size_t n_blocks[MD5_LANES] = {0};
    struct md5_state one = *state, two;
    for (size_t i = 0; i < MD5_LANES; i++) {
        n_blocks[i] = i < n ? write_tail(&lanes[i], tails[i]) : 0;
        at[i] = tails[i];
    }
    add(&one, at, 1);
    two = one;
    for (size_t i = 0; i < MD5_LANES; i++)
        at[i] += BLOCK_BYTES;
    add(&two, at, 1);
    for (size_t i = 0; i < n; i++)
        keep_sum(n_blocks[i] == 1 ? &one : &two, i, lanes[i].sum);
}

/* A lane that has no whole block left stands still: what the others' stretch made of it is put back. */
static void add_stretch(add_function *add, struct md5_state *state, const struct md5_lane *lanes, size_t n, size_t done,
                        size_t n_blocks)
{
    const unsigned char *at[MD5_LANES] = {0}, *some = NULL;
    struct md5_state before = *state;
    for (size_t i = 0; i < n; i++) {
        if (lanes[i].count / BLOCK_BYTES > done)
            some = at[i] = (const unsigned char *)lanes[i].bytes + done * BLOCK_BYTES;
    }
    for (size_t i = 0; i < MD5_LANES; i++)
        at[i] = at[i] ? at[i] : some;
    add(state, at, n_blocks);
    for (size_t i = 0; i < n; i++) {
        if (lanes[i].count / BLOCK_BYTES > done)
            continue;
        state->a[i] = before.a[i];
        state->b[i] = before.b[i];
        state->c[i] = before.c[i];
        state->d[i] = before.d[i];
    }
}

void md5_lanes(struct md5_lane *lanes, size_t n)
{
    add_function *add = choose_version();
    const vector zero = {0};
    struct md5_state state = {zero + 0x67452301u, zero + 0xefcdab89u, zero + 0x98badcfeu, zero + 0x10325476u};
    for (size_t done = 0;;) {
        size_t next = SIZE_MAX; /* where the shortest of those that go on ends */
        for (size_t i = 0; i < n; i++) {
            size_t n_blocks = lanes[i].count / BLOCK_BYTES;
            next = n_blocks > done && n_blocks < next ? n_blocks : next;
        }
        if (next == SIZE_MAX)
            break;
        add_stretch(add, &state, lanes, n, done, next - done);
        done = next;
    }
    end_lanes(add, &state, lanes, n);
}
