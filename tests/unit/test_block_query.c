/* What one host asks another for: written and read again as the same, and refused in any other form. */
#include "tests/support/unit.h"

#include "hosts/block_query.h"

#define ID "0123456789abcdef0123456789abcdef"
#define REST "&id=" ID "&from=" ID

static bool is_good(const char *query, const char *range)
{
    struct block_query parsed;
    const char *reason;
    bool good = block_query_parse(query, range, &parsed, &reason);
    assert_true(good == !reason);
    block_query_fini(&parsed);
    return good;
}

TEST(what_is_written_is_read_as_the_same)
{
    struct block_query query = {.reference = "s3://bucket/a b?c&d=e%20\xc3\xa9",
                                .file = "sub/model-00001-of-00002.safetensors",
                                .id = ID,
                                .from = "fedcba98765432100123456789abcdef",
                                .only_held = true,
                                .lo = 3ull * SHARED_BLOCK_BYTES,
                                .hi = 4ull * SHARED_BLOCK_BYTES},
                       parsed;
    const char *reason;
    for (int held = 0; held < 2; held++) {
        query.only_held = held;
        char *path = block_query_path(&query), *range = block_query_range(&query);
        assert_memory_equal(path, BLOCK_PATH "?", strlen(BLOCK_PATH "?"));
        assert_true(block_query_parse(path + strlen(BLOCK_PATH "?"), range, &parsed, &reason));
        assert_string_equal(parsed.reference, query.reference);
        assert_string_equal(parsed.file, query.file);
        assert_string_equal(parsed.id, query.id);
        assert_string_equal(parsed.from, query.from);
        assert_true(parsed.only_held == held && parsed.lo == query.lo && parsed.hi == query.hi);
        block_query_fini(&parsed);
        free(path);
        free(range);
    }
}

TEST(a_query_has_each_key_once_and_no_other)
{
    static const char *const bad[] = {
        "",
        "reference=a&file=b&id=" ID,
        "reference=a&file=b&from=" ID,
        "reference=a" REST,
        "file=b" REST,
        "reference=&file=b" REST,
        "reference=a&file=" REST,
        "reference=a&file=b&file=b" REST,
        "reference=a&file=b&other=c" REST,
        "reference=a&file=b" REST "&",
        "&reference=a&file=b" REST,
        "reference=a&file=b" REST "&held",
        "reference=a&file=b" REST "&held=0",
        "reference=a&file=b" REST "&held=11",
        "refer%65nce=a&file=b" REST,
        "reference=a&file=b" REST "#",
    };
    assert_true(is_good("reference=a&file=b" REST, "bytes=0-9"));
    assert_true(is_good("file=b&reference=a" REST "&held=1", "bytes=0-9"));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(is_good(bad[i], "bytes=0-9"));
}

TEST(values_are_encoded_ids_have_32_digits_and_files_lie_below_their_reference)
{
    static const char *const bad[] = {
        "reference=a b&file=b" REST,
        "reference=a+b&file=b" REST,
        "reference=a%&file=b" REST,
        "reference=a%2&file=b" REST,
        "reference=a%2g&file=b" REST,
        "reference=a%00b&file=b" REST,
        "reference=\xc3\xa9&file=b" REST,
        "reference=a=b&file=b" REST,
        "reference=a&file=../b" REST,
        "reference=a&file=b/%2e%2e/c" REST,
        "reference=a&file=/b" REST,
        "reference=a&file=b//c" REST,
        "reference=a&file=." REST,
        "reference=a&file=b&id=" ID "0&from=" ID,
        "reference=a&file=b&id=0123456789ABCDEF0123456789abcdef&from=" ID,
        "reference=a&file=b&id=" ID "&from=0123456789abcde",
        "reference=a&file=b&id=" ID "&from=0123456789abcdef0123456789abcde%20",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(is_good(bad[i], "bytes=0-9"));
}

TEST(a_range_is_of_one_block)
{
    static const char *const bad[] = {
        "",
        "bytes",
        "bytes=",
        "bytes=0-",
        "bytes=-1",
        "bytes=1-0",
        "bytes=0-9,11-12",
        "bytes=0-9 ",
        "Bytes=0-9",
        "bytes= 0-9",
        "bytes=+0-9",
        "bytes=0x0-9",
        "bytes=0-4194304",
        "bytes=4194303-4194304",
        "bytes=18446744073709551615-18446744073709551615",
        "bytes=0-18446744073709551616",
        "bytes=99999999999999999999-99999999999999999999",
    };
    static const char *const good[] = {"bytes=0-0", "bytes=0-4194303", "bytes=4194304-4194304",
                                       "bytes=18446744073709551614-18446744073709551614"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(is_good("reference=a&file=b" REST, bad[i]));
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        assert_true(is_good("reference=a&file=b" REST, good[i]));
}

/* Which bytes of [lo, hi) are in rows, one by one. */
static uint64_t count_bytes(const struct block_rows *rows, uint64_t lo, uint64_t hi)
{
    uint64_t bytes = 0;
    for (uint64_t at = lo; at < hi; at++)
        bytes += (at - lo + rows->phase) % rows->stride < rows->take;
    return bytes;
}

TEST(rows_are_written_and_read_as_the_same)
{
    static const struct block_query queries[] = {
        {.lo = 0, .hi = 12, .rows = {0, 4, 8}},
        {.lo = 5, .hi = 30, .rows = {3, 4, 8}},
        {.lo = 5, .hi = 14, .rows = {0, 1, 2}},
        {.lo = 3ull * SHARED_BLOCK_BYTES + 7, .hi = 4ull * SHARED_BLOCK_BYTES, .rows = {57, 4096, 8192}},
        {.lo = 0, .hi = SHARED_BLOCK_BYTES, .rows = {1, 2, SHARED_BLOCK_BYTES}},
        {.lo = 0, .hi = 1021, .rows = {999, 1000, 1001}},
    };
    const char *reason;
    for (size_t i = 0; i < sizeof queries / sizeof queries[0]; i++) {
        struct block_query query = queries[i], parsed;
        query.reference = query.file = (char *)"a";
        memcpy(query.id, ID, sizeof query.id);
        memcpy(query.from, ID, sizeof query.from);
        char *path = block_query_path(&query), *range = block_query_range(&query), expected[64];
        uint64_t bytes = count_bytes(&query.rows, query.lo, query.hi);
        assert_int_equal(block_rows_bytes(&query.rows, query.lo, query.hi), bytes);
        snprintf(expected, sizeof expected, "bytes=0-%llu", (unsigned long long)bytes - 1);
        assert_string_equal(range, expected);
        assert_true(block_query_parse(path + strlen(BLOCK_PATH "?"), range, &parsed, &reason));
        assert_true(parsed.lo == query.lo && parsed.hi == query.hi);
        assert_memory_equal(&parsed.rows, &query.rows, sizeof query.rows);
        block_query_fini(&parsed);
        free(path);
        free(range);
    }
}

TEST(rows_are_several_of_one_block_and_the_range_is_all_of_them)
{
    static const char *const bad[][2] = {
        {"0-11-0-4-8", "bytes=0-6"}, /* 8 bytes */
        {"0-11-0-4-8", "bytes=0-8"},
        {"0-11-0-4-8", "bytes=1-7"},
        {"0-11-0-4-8", "bytes=0-11"},
        {"0-11-0-4-8", ""},
        {"0-11-0-4", "bytes=0-7"},
        {"0-11-0-4-8-", "bytes=0-7"},
        {"0-11-0-4-8-0", "bytes=0-7"},
        {"-0-11-0-4-8", "bytes=0-7"},
        {"0--11-0-4-8", "bytes=0-7"},
        {"0-11-0-4-+8", "bytes=0-7"},
        {"0-11-0-4-8%20", "bytes=0-7"},
        {"", "bytes=0-7"},
        {"0-3-0-4-8", "bytes=0-3"},   /* one row */
        {"0-12-0-4-8", "bytes=0-7"},  /* ends between rows */
        {"0-11-4-4-8", "bytes=0-7"},  /* begins there */
        {"0-11-0-8-8", "bytes=0-11"}, /* nothing is between them */
        {"0-11-0-9-8", "bytes=0-11"},
        {"0-11-0-0-8", "bytes=0-0"},
        {"0-11-0-4-0", "bytes=0-7"},
        {"0-11-0-0-0", "bytes=0-11"},
        {"11-0-0-4-8", "bytes=0-7"},
        {"4194296-4194307-0-4-8", "bytes=0-7"}, /* of two blocks */
        {"0-11-0-4-4194305", "bytes=0-7"},
        {"0-11-0-4-18446744073709551616", "bytes=0-7"},
        {"0-11-18446744073709551615-4-8", "bytes=0-7"},
        {"0-11-0-18446744073709551615-8", "bytes=0-7"},
        {"0-11-18446744073709551614-18446744073709551615-18446744073709551615", "bytes=0-7"},
        {"18446744073709551604-18446744073709551615-0-4-8", "bytes=0-7"},
        {"0-18446744073709551615-0-4-8", "bytes=0-7"},
    };
    char query[300];
    snprintf(query, sizeof query, "reference=a&file=b" REST "&rows=0-11-0-4-8");
    assert_true(is_good(query, "bytes=0-7"));
    snprintf(query, sizeof query, "rows=18446744073709551603-18446744073709551614-0-4-8&reference=a&file=b" REST "&held=1");
    assert_true(is_good(query, "bytes=0-7"));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        snprintf(query, sizeof query, "reference=a&file=b" REST "&rows=%s", bad[i][0]);
        if (is_good(query, bad[i][1]))
            fail_msg("%s with %s was taken", bad[i][0], bad[i][1]);
    }
}

TEST(an_answer_has_no_more_rows_than_its_limit)
{
    char query[300], range[64];
    for (uint64_t n = BLOCK_ROWS_MAX; n <= BLOCK_ROWS_MAX + 1; n++) {
        snprintf(query, sizeof query, "reference=a&file=b" REST "&rows=0-%llu-0-1-2", 2 * (unsigned long long)n - 2);
        snprintf(range, sizeof range, "bytes=0-%llu", (unsigned long long)n - 1);
        assert_int_equal(is_good(query, range), n == BLOCK_ROWS_MAX);
    }
}
