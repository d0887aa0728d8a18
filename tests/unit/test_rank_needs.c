/* Which pieces of an artifact's files ranks need, and the text that tells others. */
#include "tests/support/unit.h"

#include "hosts/shared_block.h"
#include "load/rank_needs.h"
#include "tests/support/mapping_fake.h"
#include "tests/support/random_cases.h"

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
enum { PIECES = 16, MOST_BLOCKS = 64 };

static struct rank_needs needs_of(const struct mapping *mapping)
{
    struct rank_needs needs;
    assert_true(rank_needs_init(&needs, mapping->artifact->source));
    rank_needs_add(&needs, mapping);
    return needs;
}

/* The text; and who reads it knows the same pieces. */
static void assert_told(const struct mapping *mapping, const char *expected)
{
    struct rank_needs needs = needs_of(mapping), again;
    char *text = rank_needs_write(&needs);
    if (expected)
        assert_string_equal(text, expected);
    assert_true(!text || rank_needs_is_good(text));
    assert_true(rank_needs_init(&again, mapping->artifact->source));
    rank_needs_add_text(&again, text ? text : "0,1");
    if (text)
        assert_memory_equal(again.pieces, needs.pieces, needs.n_blocks * sizeof *needs.pieces);
    free(text);
    rank_needs_fini(&needs);
    rank_needs_fini(&again);
}

TEST(pieces_are_counted_through_all_files_and_a_file_s_last_ones_go_to_the_end_of_its_block)
{
    struct mapping_fake *fake = mapping_fake_create("disk:/m", 2, 0);
    mapping_fake_skip(fake, 0, MIB);
    mapping_fake_add_bytes(fake, 0, 2 * MIB + 1);
    mapping_fake_skip(fake, 0, 6 * MIB);
    mapping_fake_add_bytes(fake, 1, 300 * KIB);
    assert_told(mapping_fake_finish(fake), "4,9,35,16");
    mapping_fake_destroy(fake);
}

TEST(of_columns_each_piece_with_a_row_is_needed)
{
    struct mapping_fake *fake = mapping_fake_create("disk:/m", 1, 0);
    mapping_fake_add_columns(fake, 0, 4, MIB, 10, 20);
    mapping_fake_add_columns(fake, 0, 4096, 2 * KIB, 0, 10);
    assert_told(mapping_fake_finish(fake), "0,1,3,1,3,1,3,1,3,32");
    mapping_fake_destroy(fake);
}

TEST(a_rank_that_needs_everything_says_it_in_two_numbers_and_one_that_needs_nothing_says_nothing)
{
    struct mapping_fake *whole = mapping_fake_create("disk:/m", 3, 0), *none = mapping_fake_create("disk:/m", 1, 0);
    for (uint32_t file = 0; file < 3; file++)
        mapping_fake_add_bytes(whole, file, 5 * MIB);
    assert_told(mapping_fake_finish(whole), "0,96");
    mapping_fake_skip(none, 0, 5 * MIB);
    struct rank_needs needs = needs_of(mapping_fake_finish(none));
    assert_null(rank_needs_write(&needs));
    rank_needs_fini(&needs);
    mapping_fake_destroy(whole);
    mapping_fake_destroy(none);
}

static uint32_t draw(uint32_t *random, uint32_t below)
{
    *random = *random * 1664525 + 1013904223;
    return (uint32_t)((uint64_t)(*random >> 4) * below >> 28);
}

TEST(any_view_is_told_as_a_plain_look_at_each_piece_says)
{
    uint32_t random = 7;
    for (int i = 0; i < RANDOM_CASES(100); i++) {
        uint32_t n_files = 1 + draw(&random, 3);
        struct mapping_fake *fake = mapping_fake_create("disk:/m", n_files, 8 + draw(&random, 1000));
        for (uint32_t t = draw(&random, 12), file = 0; t > 0; t--, file = draw(&random, n_files)) {
            uint32_t kind = draw(&random, 3), size = 1 + draw(&random, 3 << 20);
            if (kind == 0)
                mapping_fake_skip(fake, file, size);
            else if (kind == 1)
                mapping_fake_add_bytes(fake, file, size);
            else
                mapping_fake_add_columns(fake, file, 1 + draw(&random, 8), 20 + size / 4, size / 16,
                                         size / 16 + 1 + size / 9);
        }
        const struct mapping *mapping = mapping_fake_finish(fake);
        if (mapping->n_transfers > 0) {
            struct rank_needs needs = needs_of(mapping);
            uint16_t expected[MOST_BLOCKS] = {0};
            for (size_t r = 0; r < mapping->n_transfers; r++) {
                const struct transfer *run = &mapping->transfers[r];
                uint64_t size = mapping->artifact->source->files[run->file].size_bytes;
                uint64_t n = needs.first[run->file + 1] - needs.first[run->file];
                for (uint64_t piece = 0; piece < n * PIECES; piece++)
                    for (uint64_t row = 0; row < run->n_rows; row++) {
                        uint64_t lo = run->src_offset + row * run->src_stride, at = piece * SHARED_PIECE_BYTES;
                        uint64_t hi = lo + run->row_bytes, end = (size - 1) / SHARED_PIECE_BYTES * SHARED_PIECE_BYTES;
                        at = at < end ? at : end;
                        if (at < hi && at + SHARED_PIECE_BYTES > lo)
                            expected[needs.first[run->file] + piece / PIECES] |= (uint16_t)(1u << piece % PIECES);
                    }
            }
            assert_memory_equal(needs.pieces, expected, needs.n_blocks * sizeof *expected);
            rank_needs_fini(&needs);
            assert_told(mapping, NULL);
        }
        mapping_fake_destroy(fake);
    }
}

TEST(a_text_that_rank_needs_write_would_not_make_is_refused)
{
    static const char *const good[] = {"0,1", "1,1", "0,16,3,1", "999999999,1"};
    static const char *const bad[] = {"",     "0",    "0,0",  "1,0",  "0,1,0,1",      "0,1,1",
                                      ",1",   "0,1,", "0,,1", "00,1", "0,1000000000", "a,1",
                                      "0,1 ", "+1,1", "-1,1", "0,01", "0;1"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        assert_true(rank_needs_is_good(good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (rank_needs_is_good(bad[i]))
            fail_msg("'%s' was taken", bad[i]);
}

TEST(pieces_beyond_the_files_are_left_out_and_files_of_another_size_are_passed_over)
{
    struct mapping_fake *small = mapping_fake_create("disk:/m", 1, 0), *large = mapping_fake_create("disk:/m", 2, 0);
    mapping_fake_add_bytes(small, 0, MIB);
    for (uint32_t file = 0; file < 2; file++)
        mapping_fake_add_bytes(large, file, 9 * MIB);
    struct rank_needs needs;
    assert_true(rank_needs_init(&needs, mapping_fake_finish(small)->artifact->source));
    rank_needs_add(&needs, mapping_fake_finish(large));
    assert_int_equal(needs.pieces[0], 0);
    rank_needs_add_text(&needs, "15,999999999,999999999,999999999");
    assert_int_equal(needs.n_blocks, 1);
    assert_int_equal(needs.pieces[0], 0x8000);
    rank_needs_fini(&needs);
    mapping_fake_destroy(small);
    mapping_fake_destroy(large);
}

TEST(a_text_has_30_kib_and_no_more)
{
    enum { FULL = RANK_NEEDS_MAX_CHARS / 32 }; /* eight times "1,1," for each block */
    struct source_file file = {.size_bytes = (FULL + 1) * (uint64_t)SHARED_BLOCK_BYTES};
    const struct source source = {.files = &file, .n_files = 1};
    struct rank_needs needs;
    assert_true(rank_needs_init(&needs, &source));
    for (size_t i = 0; i < FULL; i++)
        needs.pieces[i] = 0x5555;
    char *text = rank_needs_write(&needs);
    assert_int_equal(strlen(text), RANK_NEEDS_MAX_CHARS - 1);
    assert_true(rank_needs_is_good(text));
    free(text);
    needs.pieces[FULL] = 1;
    assert_null(rank_needs_write(&needs));
    rank_needs_fini(&needs);
}

TEST(files_of_16_tib_are_told_of_and_larger_ones_are_not)
{
    struct source_file file = {.size_bytes = RANK_NEEDS_MAX_BLOCKS * (uint64_t)SHARED_BLOCK_BYTES};
    const struct source source = {.files = &file, .n_files = 1};
    struct rank_needs needs;
    assert_true(rank_needs_init(&needs, &source));
    rank_needs_fini(&needs);
    file.size_bytes++;
    assert_false(rank_needs_init(&needs, &source));
    rank_needs_fini(&needs);
}
