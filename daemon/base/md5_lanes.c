/* RFC 1321. The vector version is compiled for AVX-512 and AVX2, too, and chosen at run time. */
#include "base/md5_lanes.h"

#include <string.h>

enum { BLOCK_BYTES = 64, WORDS = 16, STEPS = 64 };

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
static const uint8_t shifts[4][4] = {{7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}};

/* A block of each lane. The loops are unrolled, so that everything that depends on `i` alone is a constant. */
static inline __attribute__((always_inline)) void add_blocks(struct md5_state *state,
                                                             const unsigned char *const at[MD5_LANES])
{
    vector words[WORDS], a = state->a, b = state->b, c = state->c, d = state->d;
#pragma GCC unroll 16
    for (int i = 0; i < WORDS; i++)
#pragma GCC unroll 8
        for (int lane = 0; lane < MD5_LANES; lane++) {
            uint32_t word; /* little endian, as every host of ours is */
            memcpy(&word, at[lane] + 4 * i, sizeof word);
            words[i][lane] = word;
        }
#pragma GCC unroll 64
    for (int i = 0; i < STEPS; i++) {
        int round = i / 16, shift = shifts[round][i % 4];
        vector mix = round == 0 ? d ^ (b & (c ^ d)) : round == 1 ? c ^ (d & (b ^ c)) : round == 2 ? b ^ c ^ d : c ^ (b | ~d);
        int word = round == 0 ? i : round == 1 ? 5 * i + 1 : round == 2 ? 3 * i + 5 : 7 * i;
        vector sum = a + mix + words[word % WORDS] + constants[i];
        a = d;
        d = c;
        c = b;
        b += sum << shift | sum >> (32 - shift);
    }
    state->a += a;
    state->b += b;
    state->c += c;
    state->d += d;
}

typedef void add_function(struct md5_state *state, const unsigned char *const at[MD5_LANES]);

static void add_portable(struct md5_state *state, const unsigned char *const at[MD5_LANES])
{
    add_blocks(state, at);
}

#ifdef __x86_64__
__attribute__((target("avx2"))) static void add_avx2(struct md5_state *state, const unsigned char *const at[MD5_LANES])
{
    add_blocks(state, at);
}

__attribute__((target("avx2,avx512f,avx512vl"))) static void add_avx512(struct md5_state *state,
                                                                        const unsigned char *const at[MD5_LANES])
{
    add_blocks(state, at);
}
#endif

/* Behind a lane's whole blocks comes its tail: what does not fill a block, a bit, zeros, and the length in bits, in one block or two.
 * A lane that has ended goes on with that, for nothing, until the longest one has ended. */
void md5_lanes(struct md5_lane *lanes, size_t n)
{
    unsigned char tails[MD5_LANES][2 * BLOCK_BYTES] = {{0}};
    size_t n_whole[MD5_LANES] = {0}, n_blocks[MD5_LANES] = {0}, most = 0;
    const vector zero = {0};
    struct md5_state state = {zero + 0x67452301u, zero + 0xefcdab89u, zero + 0x98badcfeu, zero + 0x10325476u};
    add_function *add = add_portable;
#ifdef __x86_64__
    add = __builtin_cpu_supports("avx512vl") ? add_avx512 : __builtin_cpu_supports("avx2") ? add_avx2 : add_portable;
#endif
    for (size_t i = 0; i < n; i++) {
        size_t rest = lanes[i].count % BLOCK_BYTES, n_tail = rest < BLOCK_BYTES - 8 ? 1 : 2;
        uint64_t bits = (uint64_t)lanes[i].count * 8;
        n_whole[i] = lanes[i].count / BLOCK_BYTES;
        n_blocks[i] = n_whole[i] + n_tail;
        most = n_blocks[i] > most ? n_blocks[i] : most;
        if (rest)
            memcpy(tails[i], (const unsigned char *)lanes[i].bytes + lanes[i].count - rest, rest);
        tails[i][rest] = 0x80;
        memcpy(tails[i] + n_tail * BLOCK_BYTES - sizeof bits, &bits, sizeof bits);
    }
    for (size_t block = 0; block < most; block++) {
        const unsigned char *at[MD5_LANES];
        for (size_t i = 0; i < MD5_LANES; i++)
            at[i] = block < n_whole[i] ? (const unsigned char *)lanes[i].bytes + block * BLOCK_BYTES
                                       : tails[i] + (block > n_whole[i]) * BLOCK_BYTES;
        add(&state, at);
        for (size_t i = 0; i < n; i++)
            if (block + 1 == n_blocks[i]) {
                const uint32_t words[] = {state.a[i], state.b[i], state.c[i], state.d[i]};
                memcpy(lanes[i].sum, words, sizeof words);
            }
    }
}
