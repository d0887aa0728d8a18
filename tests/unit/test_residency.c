/* How much of a mapping is cached is asked in few questions, and only about bytes that the mapping needs. */
#include "tests/support/unit.h"

#include "execute/residency.h" /* before cmocka.h, whose macro fail() would hide base/error.h's function */

enum { MiB = 1 << 20 };

/* In file 0 the first `cached_below` bytes are in the cache, of file 1 everything. */
static uint64_t cached_below;
static size_t n_questions, n_calls;
static uint64_t n_asked;

static uint64_t resident(struct source *source, size_t file, const struct source_extent *extents, size_t n_extents)
{
    uint64_t cached = 0;
    (void)source;
    n_calls++;
    n_questions += n_extents;
    for (size_t i = 0; i < n_extents; i++) {
        uint64_t begin = extents[i].offset, end = begin + extents[i].bytes,
                 cached_end = file == 1 || end < cached_below ? end : cached_below;
        n_asked += extents[i].bytes;
        cached += cached_end > begin ? cached_end - begin : 0;
    }
    return cached;
}

static const struct source_ops ops = {.name = "fake", .resident_bytes = resident};
static struct source_file files[] = {{.name = "a", .size_bytes = UINT64_MAX / 4},
                                     {.name = "b", .size_bytes = UINT64_MAX / 4}};
static struct source source = {.ops = &ops, .files = files, .n_files = 2, .caps = {.residency = true}};
static struct artifact artifact = {.source = &source};

static double share(struct transfer *runs, size_t n_first, size_t n_second)
{
    size_t file_first[] = {0, n_first, n_first + n_second};
    const struct mapping mapping = {
        .artifact = &artifact, .transfers = runs, .n_transfers = n_first + n_second, .file_first = file_first};
    for (size_t i = 0; i < n_first + n_second; i++) {
        runs[i].dst_stride = runs[i].row_bytes;
        runs[i].file = i >= n_first;
        runs[i].n_rows = runs[i].n_rows ? runs[i].n_rows : 1;
        runs[i].src_stride = runs[i].src_stride ? runs[i].src_stride : runs[i].row_bytes;
    }
    n_questions = n_calls = 0;
    n_asked = 0;
    return residency_cached_share(&mapping);
}

static int set_up(void **state)
{
    (void)state;
    cached_below = 0;
    source.caps.residency = true;
    return 0;
}

TEST_IN(the_share_counts_the_bytes_of_all_files, set_up, NULL)
{
    struct transfer runs[] = {{.src_offset = 8, .row_bytes = 300}, {.src_offset = 16, .row_bytes = 100}};
    assert_true(share(runs, 1, 1) == 0.25);
    cached_below = 158;
    assert_true(share(runs, 1, 1) == 0.625);
}

TEST_IN(neighbours_are_asked_for_together, set_up, NULL)
{
    enum { N = 10000 };
    struct transfer *runs = calloc(N, sizeof *runs);
    for (size_t i = 0; i < N; i++)
        runs[i] = (struct transfer){.src_offset = 1000 * i, .row_bytes = 900};
    cached_below = 1000 * (N / 2);
    double found = share(runs, N, 0);
    assert_true(found > 0.49 && found < 0.51);
    assert_int_equal(n_questions, 10); /* a MiB each */
    free(runs);
}

TEST_IN(spans_beyond_the_number_of_questions_are_sampled_evenly, set_up, NULL)
{
    enum { N = 5000 };
    struct transfer *runs = calloc(N, sizeof *runs);
    for (size_t i = 0; i < N; i++)
        runs[i] = (struct transfer){.src_offset = 4 * MiB * i, .row_bytes = 4096};
    cached_below = 4ull * MiB * (N / 4);
    double found = share(runs, N, 0);
    assert_true(found > 0.23 && found < 0.27);
    assert_true(n_questions > 100 && n_questions <= 256);
    free(runs);
}

TEST_IN(large_spans_are_sampled_evenly, set_up, NULL)
{
    uint64_t bytes = ((uint64_t)1 << 40) + 12345;
    struct transfer runs[] = {{.src_offset = 8, .row_bytes = bytes}, {.src_offset = 0, .row_bytes = 0}};
    cached_below = bytes / 4;
    double found = share(runs, 1, 0);
    assert_true(found > 0.24 && found < 0.26);
    assert_true(n_questions > 200 && n_questions <= 256);
    assert_int_equal(n_calls, 1);
    assert_true(n_asked > 60 * (uint64_t)MiB && n_asked <= 64 * (uint64_t)MiB);
}

TEST_IN(of_few_pieces_every_byte_is_asked_for, set_up, NULL)
{
    struct transfer runs[] = {{.src_offset = 0, .row_bytes = 59 * (uint64_t)MiB},
                              {.src_offset = 0, .row_bytes = 3 * MiB + 5}};
    cached_below = 59 * (uint64_t)MiB - 1;
    assert_true(share(runs, 1, 1) < 1);
    assert_int_equal(n_asked, 62 * (uint64_t)MiB + 5);
    runs[0] = (struct transfer){.row_bytes = 200 * (uint64_t)MiB};
    share(runs, 1, 0);
    assert_true(n_asked > 60 * (uint64_t)MiB && n_asked <= 64 * (uint64_t)MiB);
}

TEST_IN(what_lies_between_distant_rows_is_not_asked_for, set_up, NULL)
{
    struct transfer runs[] = {{.src_offset = 0, .row_bytes = 4096, .n_rows = 100, .src_stride = 256 * (uint64_t)MiB}};
    cached_below = 4096;
    assert_true(share(runs, 1, 0) > 0);
    assert_true(n_asked <= 4 * 4096);
}

TEST_IN(nothing_counts_as_cached_when_the_source_cannot_tell_or_nothing_is_needed, set_up, NULL)
{
    struct transfer runs[] = {{.src_offset = 0, .row_bytes = 4096}};
    cached_below = 4096;
    assert_true(share(runs, 1, 0) == 1);
    assert_true(share(runs, 0, 0) == 0);
    source.caps.residency = false;
    assert_true(share(runs, 1, 0) == 0);
    assert_int_equal(n_questions, 0);
}
