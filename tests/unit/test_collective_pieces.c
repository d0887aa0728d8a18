/* From the ranks' byte runs to pieces: whatever the ranks want, every byte that is not residual lies in exactly one piece. */
#include "tests/support/unit.h"

#include <time.h>

#include "base/memory.h"
#include "base/metadata.h"
#include "plan/collective_pieces.h"
#include "tests/support/mapping_fake.h"
#include "tests/support/random_cases.h"

enum { RANKS = 4, FILES = 2, FILE_BYTES = 1 << 16, CASES = RANDOM_CASES(2000) };

struct group {
    struct mapping_fake *fakes[RANKS];
    struct collective_rank ranks[RANKS];
    size_t n_ranks, file_first[FILES + 1];
    struct collective_plan plan;
};

static int set_up(void **state)
{
    struct group *group = memory_alloc(sizeof *group);
    group->n_ranks = 2;
    for (uint32_t i = 0; i < RANKS; i++)
        group->fakes[i] = mapping_fake_create("disk:/m", FILES, 8);
    *state = group;
    return 0;
}

static int tear_down(void **state)
{
    struct group *group = *state;
    for (int i = 0; i < RANKS; i++)
        mapping_fake_destroy(group->fakes[i]);
    metadata_free(group->plan.pieces);
    metadata_free(group->plan.columns);
    free(group);
    return 0;
}

static const struct collective_plan *build(struct group *group, uint64_t contiguous_bytes, uint64_t inner_bytes)
{
    for (uint32_t i = 0; i < group->n_ranks; i++)
        group->ranks[i] = (struct collective_rank){mapping_fake_finish(group->fakes[i]), i, 1};
    group->plan = (struct collective_plan){.n_files = FILES, .file_first = group->file_first};
    struct error error;
    struct collective_cut cut = {contiguous_bytes, inner_bytes};
    assert_int_equal(collective_pieces_build(group->ranks, group->n_ranks, cut, &group->plan, &error), 0);
    return &group->plan;
}

TEST_IN(what_both_ranks_want_is_one_piece, set_up, tear_down)
{
    struct group *group = *state;
    for (int i = 0; i < 2; i++)
        mapping_fake_add_bytes(group->fakes[i], 1, 1000);
    const struct collective_plan *plan = build(group, 1 << 20, 1 << 20);
    assert_int_equal(plan->n_pieces, 1);
    assert_int_equal(plan->pieces[0].bytes, 1000);
    assert_int_equal(plan->pieces[0].file, 1);
    assert_int_equal(plan->pieces[0].job, JOB_REPLICATED);
    assert_int_equal(plan->numbers.unique_source_bytes, 1000);
    assert_int_equal(plan->numbers.residual_bytes, 0);
    assert_int_equal(group->file_first[1], 0);
    assert_int_equal(group->file_first[2], 1);
}

TEST_IN(columns_that_complete_the_rows_are_read_as_one_stretch, set_up, tear_down)
{
    struct group *group = *state;
    mapping_fake_add_columns(group->fakes[0], 0, 10, 100, 0, 60);
    mapping_fake_add_columns(group->fakes[1], 0, 10, 100, 60, 100);
    const struct collective_plan *plan = build(group, 1 << 20, 1 << 20);
    assert_int_equal(plan->n_pieces, 1);
    assert_int_equal(plan->pieces[0].count, 1);
    assert_int_equal(plan->pieces[0].bytes, 1000);
    assert_int_equal(plan->pieces[0].job, JOB_DIM1);
}

TEST_IN(columns_with_a_gap_keep_their_rows_and_leave_the_gap_out, set_up, tear_down)
{
    struct group *group = *state;
    mapping_fake_add_columns(group->fakes[0], 0, 10, 100, 0, 30);
    mapping_fake_add_columns(group->fakes[1], 0, 10, 100, 60, 100);
    const struct collective_plan *plan = build(group, 1 << 20, 1 << 20);
    assert_int_equal(plan->n_pieces, 1);
    assert_int_equal(plan->pieces[0].count, 10);
    assert_int_equal(plan->pieces[0].stride, 100);
    assert_int_equal(plan->pieces[0].bytes, 700);
    assert_int_equal(plan->pieces[0].n_columns, 2);
    assert_int_equal(plan->columns[1].offset - plan->columns[0].offset, 60);
}

TEST_IN(rows_that_do_not_line_up_are_residual, set_up, tear_down)
{
    struct group *group = *state;
    mapping_fake_add_columns(group->fakes[0], 0, 10, 100, 0, 30);
    mapping_fake_add_columns(group->fakes[1], 0, 20, 50, 10, 40); /* the same bytes in other rows */
    const struct collective_plan *plan = build(group, 1 << 20, 1 << 20);
    assert_int_equal(plan->n_pieces, 0);
    assert_int_equal(plan->numbers.residual_bytes, 10 * 30 + 20 * 30);
}

TEST_IN(rows_within_what_another_rank_reads_whole_are_taken_from_it, set_up, tear_down)
{
    struct group *group = *state;
    mapping_fake_add_bytes(group->fakes[0], 0, 1000);
    mapping_fake_add_columns(group->fakes[1], 0, 10, 100, 20, 40);
    const struct collective_plan *plan = build(group, 1 << 20, 1 << 20);
    assert_int_equal(plan->n_pieces, 1);
    assert_int_equal(plan->pieces[0].bytes, 1000);
    assert_int_equal(plan->numbers.residual_bytes, 0);
}

TEST_IN(rows_are_cut_between_two_rows, set_up, tear_down)
{
    struct group *group = *state;
    for (int i = 0; i < 2; i++)
        mapping_fake_add_columns(group->fakes[i], 0, 10, 100, 0, 30);
    const struct collective_plan *plan = build(group, 1 << 20, 4 * 30);
    assert_int_equal(plan->n_pieces, 3);
    assert_int_equal(plan->pieces[0].count, 4);
    assert_int_equal(plan->pieces[2].count, 2);
}

TEST_IN(small_tensors_that_touch_share_a_piece, set_up, tear_down)
{
    struct group *group = *state;
    for (int i = 0; i < 2; i++)
        for (int tensor = 0; tensor < 100; tensor++)
            mapping_fake_add_bytes(group->fakes[i], 0, 100);
    assert_int_equal(build(group, 1 << 20, 1 << 20)->n_pieces, 1);
}

/* --- whatever the ranks want ---------------------------------------------------------------------------------------- */

static uint64_t random_below(uint64_t *seed, uint64_t bound)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (*seed >> 33) % bound;
}

/* The same tensor for all ranks, of which each wants a box of its own or nothing. */
static void add_random_tensor(struct group *group, uint64_t *seed)
{
    uint64_t shape[3], starts[3], stops[3];
    uint32_t rank = (uint32_t)random_below(seed, 4), file = (uint32_t)random_below(seed, FILES);
    uint64_t element_bytes = (uint64_t)1 << random_below(seed, 3);
    bool same_rows = random_below(seed, 2);
    for (uint32_t i = 0; i < rank; i++)
        shape[i] = random_below(seed, 9);
    for (size_t r = 0; r < group->n_ranks; r++) {
        for (uint32_t i = 0; i < rank; i++) {
            bool whole = random_below(seed, 3) || (i == 0 && same_rows);
            starts[i] = whole ? 0 : random_below(seed, shape[i] + 1);
            stops[i] = whole ? shape[i] : starts[i] + random_below(seed, shape[i] - starts[i] + 1);
        }
        mapping_fake_add(group->fakes[r], file, element_bytes, rank, shape, starts, stops);
    }
}

static void count_wanted(const struct group *group, size_t file, unsigned char *wanted)
{
    memset(wanted, 0, FILE_BYTES);
    for (size_t r = 0; r < group->n_ranks; r++) {
        const struct mapping *mapping = group->ranks[r].mapping;
        for (size_t i = mapping->file_first[file]; i < mapping->file_first[file + 1]; i++)
            for (uint64_t k = 0; k < mapping->transfers[i].n_rows * mapping->transfers[i].row_bytes; k++)
                wanted[mapping->transfers[i].src_offset +
                       k / mapping->transfers[i].row_bytes * mapping->transfers[i].src_stride +
                       k % mapping->transfers[i].row_bytes]++;
    }
}

/* Marks what the pieces of a file read and checks that they are sorted, disjoint and within the limits. */
static void mark_pieces(const struct group *group, size_t file, struct collective_cut cut, unsigned char *read)
{
    const struct collective_plan *plan = &group->plan;
    uint64_t end = 0;
    memset(read, 0, FILE_BYTES);
    for (size_t i = group->file_first[file]; i < group->file_first[file + 1]; i++) {
        const struct collective_piece *piece = &plan->pieces[i];
        uint64_t bytes = 0;
        bool is_inner = piece->job == JOB_DIM1 || piece->job == JOB_RECT2D;
        assert_int_equal(piece->file, file);
        assert_true(piece->lo >= end && piece->hi > piece->lo);
        end = piece->hi;
        for (uint64_t row = 0; row < piece->count; row++)
            for (size_t c = piece->first_columns; c < piece->first_columns + piece->n_columns; c++) {
                uint64_t at = plan->columns[c].offset + row * piece->stride;
                assert_true(at >= piece->lo && at + plan->columns[c].bytes <= piece->hi);
                memset(read + at, 1, plan->columns[c].bytes);
                bytes += plan->columns[c].bytes;
            }
        assert_int_equal(bytes, piece->bytes);
        assert_true(bytes <= (is_inner && piece->count > 1 ? cut.inner_bytes : cut.contiguous_bytes));
    }
}

static void check_group(struct group *group, uint64_t *seed, unsigned char *wanted, unsigned char *read)
{
    struct collective_cut cut = {FILE_BYTES, 64 + random_below(seed, 4096)};
    const struct collective_plan *plan = build(group, cut.contiguous_bytes, cut.inner_bytes);
    uint64_t residual = 0, unique = 0;
    for (size_t file = 0; file < FILES; file++) {
        count_wanted(group, file, wanted);
        mark_pieces(group, file, cut, read);
        for (size_t i = 0; i < FILE_BYTES; i++) {
            assert_true(!read[i] || wanted[i]); /* nothing is read that no rank wants */
            residual += read[i] ? 0 : wanted[i];
            unique += read[i];
        }
    }
    assert_int_equal(plan->numbers.residual_bytes, residual);
    assert_int_equal(plan->numbers.unique_source_bytes, unique);
}

TEST(every_wanted_byte_lies_in_one_piece_or_is_residual)
{
    const char *given = getenv("TENSORCAST_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
    print_message("TENSORCAST_SEED=%llu\n", (unsigned long long)seed);
    unsigned char *wanted = memory_alloc(FILE_BYTES), *read = memory_alloc(FILE_BYTES);
    for (int i = 0; i < CASES; i++) {
        struct group *group;
        set_up((void **)&group);
        group->n_ranks = 1 + random_below(&seed, RANKS);
        for (uint64_t n = 1 + random_below(&seed, 8); n > 0; n--)
            add_random_tensor(group, &seed);
        check_group(group, &seed, wanted, read);
        tear_down((void **)&group);
    }
    free(wanted);
    free(read);
}
