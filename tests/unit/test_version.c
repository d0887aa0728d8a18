/* Every version that this processor runs gives the bits of the portable one: for all values, lengths and alignments. */
#include "tests/support/unit.h"

#include "base/memory.h"
#include "convert/version.h"

enum { N_VALUES = 1 << 16, MOST_LENGTH = 150, GUARD = 0xa5 };

/* All values of 8 and 16 bits; of wider types every exponent with mantissas that differ in each bit. */
static unsigned char *make_values(size_t bytes)
{
    unsigned char *values = memory_alloc((size_t)N_VALUES * bytes);
    for (uint64_t i = 0; i < N_VALUES; i++) {
        uint64_t mixed = i * 0x9e3779b97f4a7c15, value = bytes <= 2   ? i
                                                         : bytes == 4 ? i << 16 | (mixed >> 48)
                                                                      : i << 48 | mixed >> 16;
        memcpy(values + i * bytes, &value, bytes);
    }
    return values;
}

/* One conversion of one version, with the portable one's beside it. */
struct pair {
    cast_function *cast, *portable_cast;
    dequantize_function *dequantize, *portable_dequantize;
    size_t from_bytes, to_bytes;
};

static void convert(const struct pair *pair, bool portable, void *dst, const void *src, size_t n,
                    const struct dequantize_run *run)
{
    if (run)
        (portable ? pair->portable_dequantize : pair->dequantize)(dst, src, n, run);
    else
        (portable ? pair->portable_cast : pair->cast)(dst, src, n);
}

static void compare(const struct pair *pair, const struct dequantize_run *run)
{
    unsigned char *values = make_values(pair->from_bytes);
    unsigned char *expected = memory_alloc((size_t)N_VALUES * pair->to_bytes),
                  *result = memory_alloc((size_t)N_VALUES * pair->to_bytes + 64);
    convert(pair, true, expected, values, N_VALUES, run);
    convert(pair, false, result, values, N_VALUES, run);
    assert_memory_equal(result, expected, (size_t)N_VALUES * pair->to_bytes);
    for (size_t n = 0; n < MOST_LENGTH; n++) { /* from another place of the values each time, so that NaNs are anywhere */
        size_t at = n * 419 % (N_VALUES - MOST_LENGTH), src_shift = n % 64, dst_shift = (n * 7 + 1) % 64;
        unsigned char *src = memory_alloc(n * pair->from_bytes + src_shift);
        memcpy(src + src_shift, values + at * pair->from_bytes, n * pair->from_bytes);
        memset(result, GUARD, n * pair->to_bytes + dst_shift + 1);
        convert(pair, true, expected, src + src_shift, n, run);
        convert(pair, false, result + dst_shift, src + src_shift, n, run);
        assert_memory_equal(result + dst_shift, expected, n * pair->to_bytes);
        assert_int_equal(result[dst_shift + n * pair->to_bytes], GUARD);
        assert_true(dst_shift == 0 || result[dst_shift - 1] == GUARD);
        free(src);
    }
    free(result);
    free(expected);
    free(values);
}

/* All pairs of types that `version` has; by blocks with scales, or as casts. Returns how many. */
static size_t compare_all(const struct version *version, const struct dequantize_run *run)
{
    size_t n_pairs = 0;
    for (enum dtype from = 0; from < DTYPE_COUNT; from++) {
        for (enum dtype to = 0; to < DTYPE_COUNT; to++) {
            const struct pair pair = {.cast = version->cast(from, to),
                                      .portable_cast = version_portable.cast(from, to),
                                      .dequantize = version->dequantize(from, to),
                                      .portable_dequantize = version_portable.dequantize(from, to),
                                      .from_bytes = dtype_bits(from) / 8,
                                      .to_bytes = dtype_bits(to) / 8};
            if (run ? pair.dequantize == NULL : pair.cast == NULL)
                continue;
            compare(&pair, run);
            n_pairs++;
        }
    }
    return n_pairs;
}

TEST(every_version_casts_as_the_portable_one)
{
    const struct version *list[VERSION_COUNT];
    size_t n_versions = version_list(list);
    assert_in_range(n_versions, 1, VERSION_COUNT);
    assert_ptr_equal(list[n_versions - 1], &version_portable);
    for (size_t i = 0; i < n_versions; i++)
        assert_true(compare_all(list[i], NULL) >= 3);
}

TEST(every_version_scales_as_the_portable_one)
{
    static const uint32_t extreme[] = {0x3f800000, 0xbf99999a, 0,          0x80000000, 1,          0x00800000, 0x087fffff,
                                       0x08800000, 0x88800001, 0x7b000000, 0x7b7fffff, 0x7b800000, 0x7f7fffff, 0x7f800000};
    const struct version *list[VERSION_COUNT];
    size_t n_versions = version_list(list);
    float *scales = memory_alloc_array(N_VALUES, sizeof *scales);
    for (size_t i = 0; i < N_VALUES; i++)
        memcpy(&scales[i], &extreme[i % (sizeof extreme / sizeof *extreme)], sizeof *scales);
    for (size_t i = 0; i < n_versions; i++) {
        for (size_t block = 100; block <= 1000; block += 900) {
            const struct dequantize_run run = {.scales = scales, .column = 33, .block_columns = block};
            assert_true(compare_all(list[i], &run) >= 2);
        }
        for (size_t s = 0; s < sizeof extreme / sizeof *extreme; s++) {
            const struct dequantize_run run = {.scales = &scales[s], .column = 0, .block_columns = SIZE_MAX};
            compare_all(list[i], &run);
        }
    }
    free(scales);
}

TEST(the_portable_version_leads_from_f32_to_every_float_and_back)
{
    for (enum dtype dtype = 0; dtype < DTYPE_COUNT; dtype++) {
        bool other = dtype != DTYPE_F32 && dtype_is_float(dtype);
        assert_int_equal(version_portable.cast(dtype, DTYPE_F32) != NULL, other);
        assert_int_equal(version_portable.cast(DTYPE_F32, dtype) != NULL, other);
        assert_int_equal(version_portable.dequantize(dtype, DTYPE_F32) != NULL, other && dtype_bits(dtype) == 8);
    }
}
