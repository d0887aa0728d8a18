/* What the books on read ranges say, in whatever order the ranges came. */
#include "tests/support/unit.h"

#include "base/crc.h"
#include "execute/ledger.h"

enum { FILE_BYTES = 1000, PREFIX_BYTES = 100 };
#define KIND CHECKSUM_CRC32C

static unsigned char file[FILE_BYTES];

static int make_file(void **state)
{
    (void)state;
    for (size_t i = 0; i < FILE_BYTES; i++)
        file[i] = (unsigned char)(i * 37 + i / 256);
    return 0;
}

static uint64_t crc_of(uint64_t lo, uint64_t hi)
{
    return crc_update(KIND, 0, file + lo, hi - lo);
}

static void add(struct ledger *ledger, uint64_t lo, uint64_t hi)
{
    ledger_add(ledger, lo, hi - lo, crc_of(lo, hi));
}

static struct ledger_sum sum(struct ledger *ledger)
{
    return ledger_sum(ledger, PREFIX_BYTES, crc_of(0, PREFIX_BYTES), FILE_BYTES);
}

TEST(ranges_sum_to_the_whole_unless_they_overlap)
{
    static const struct {
        const char *name;
        bool overlaps;
        uint64_t prefix_crc, missing_bytes; /* crc 0 = the right one */
        uint64_t ranges[3][2];
    } rows[] = {{"any order", false, 0, 0, {{700, FILE_BYTES}, {100, 400}, {400, 700}}},
                {"the prefix was read with the rest", false, 12345, 0, {{0, 600}, {600, FILE_BYTES}}},
                {"half of the prefix was", true, 0, 50, {{50, FILE_BYTES}}},
                {"other edges", true, 0, 0, {{100, FILE_BYTES}, {200, 300}}}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct ledger ledger = {.kind = KIND};
        for (size_t k = 0; k < 3 && rows[i].ranges[k][1]; k++)
            add(&ledger, rows[i].ranges[k][0], rows[i].ranges[k][1]);
        uint64_t prefix_crc = rows[i].prefix_crc ? rows[i].prefix_crc : crc_of(0, PREFIX_BYTES);
        struct ledger_sum all = ledger_sum(&ledger, PREFIX_BYTES, prefix_crc, FILE_BYTES);
        if (all.missing_bytes != rows[i].missing_bytes || all.overlaps != rows[i].overlaps ||
            (!all.overlaps && all.crc != crc_of(0, FILE_BYTES)))
            fail_msg("%s", rows[i].name);
        ledger_fini(&ledger);
    }
}

TEST(what_was_not_read_is_counted)
{
    struct ledger ledger = {.kind = KIND};
    assert_int_equal(sum(&ledger).missing_bytes, FILE_BYTES - PREFIX_BYTES);
    add(&ledger, 200, 300);
    add(&ledger, 500, 999);
    assert_int_equal(sum(&ledger).missing_bytes, 100 + 200 + 1);
    add(&ledger, 100, 200); /* after a question, too */
    assert_int_equal(sum(&ledger).missing_bytes, 200 + 1);
    ledger_fini(&ledger);
}

TEST(equal_ranges_with_equal_sums_count_once)
{
    struct ledger ledger = {.kind = KIND};
    add(&ledger, 100, 500);
    add(&ledger, 500, FILE_BYTES);
    add(&ledger, 100, 500);
    struct ledger_sum all = sum(&ledger);
    assert_false(all.overlaps);
    assert_int_equal(all.crc, crc_of(0, FILE_BYTES));
    assert_int_equal(ledger.n_ranges, 2);
    assert_false(ledger.ranges[0].disputed);
    ledger_fini(&ledger);
}

TEST(equal_ranges_with_other_sums_are_in_dispute)
{
    struct ledger ledger = {.kind = KIND};
    add(&ledger, 100, 500);
    add(&ledger, 500, FILE_BYTES);
    ledger_add(&ledger, 100, 400, 77);
    sum(&ledger);
    assert_true(ledger.ranges[0].disputed);
    assert_false(ledger.ranges[1].disputed);
    ledger_fini(&ledger);
}

TEST(a_correction_replaces_the_sum_and_leaves_a_dispute)
{
    struct ledger ledger = {.kind = KIND};
    ledger_add(&ledger, 100, 400, 77);
    add(&ledger, 500, FILE_BYTES);
    assert_int_not_equal(sum(&ledger).crc, crc_of(0, FILE_BYTES));
    ledger_correct(&ledger, 100, 400, crc_of(100, 500));
    ledger_correct(&ledger, 500, FILE_BYTES - 500, crc_of(500, FILE_BYTES));
    ledger_correct(&ledger, 1, 2, 3); /* that was not read */
    assert_int_equal(sum(&ledger).crc, crc_of(0, FILE_BYTES));
    assert_true(ledger.ranges[0].disputed);
    assert_false(ledger.ranges[1].disputed);
    ledger_fini(&ledger);
}

TEST(a_ledger_of_no_kind_stays_empty)
{
    struct ledger ledger = {0};
    add(&ledger, 100, 200);
    assert_int_equal(ledger.n_ranges, 0);
    ledger_fini(&ledger);
}

/* So many that the next ones fit in no memory. */
TEST(a_range_without_memory_is_missing_and_a_copy_without_memory_is_empty)
{
    struct ledger full = {.kind = KIND, .n_ranges = SIZE_MAX / 128 + 1, .room = SIZE_MAX / 128 + 1};
    add(&full, PREFIX_BYTES, FILE_BYTES);
    assert_int_equal(full.n_ranges, SIZE_MAX / 128 + 1);
    full.n_ranges = SIZE_MAX / 64 + 1;
    struct ledger copy = ledger_copy(&full);
    assert_int_equal(copy.n_ranges, 0);
    assert_int_equal(sum(&copy).missing_bytes, FILE_BYTES - PREFIX_BYTES);
    ledger_fini(&copy);
}

TEST(a_part_is_summed_where_ranges_tile_it)
{
    struct ledger ledger = {.kind = KIND};
    uint64_t crc;
    add(&ledger, 300, 500);
    add(&ledger, 200, 300);
    add(&ledger, 600, FILE_BYTES);
    assert_true(ledger_sum_part(&ledger, 200, 500, &crc));
    assert_int_equal(crc, crc_of(200, 500));
    assert_true(ledger_sum_part(&ledger, 300, 300, &crc));
    assert_int_equal(crc, 0);
    assert_false(ledger_sum_part(&ledger, 200, 499, &crc));
    assert_false(ledger_sum_part(&ledger, 201, 500, &crc));
    assert_false(ledger_sum_part(&ledger, 200, 600, &crc));
    assert_false(ledger_sum_part(&ledger, 600, FILE_BYTES + 1, &crc));
    ledger_add(&ledger, 300, 200, 77);
    assert_false(ledger_sum_part(&ledger, 200, 500, &crc)); /* in dispute */
    ledger_fini(&ledger);
}

TEST(gaps_are_found_one_after_the_other)
{
    struct ledger ledger = {.kind = KIND};
    uint64_t lo, hi;
    assert_true(ledger_find_gap(&ledger, 100, FILE_BYTES, &lo, &hi) && lo == 100 && hi == FILE_BYTES);
    add(&ledger, 0, 250);
    add(&ledger, 100, 200);
    add(&ledger, 300, 400);
    add(&ledger, 400, 500);
    assert_true(ledger_find_gap(&ledger, 100, FILE_BYTES, &lo, &hi) && lo == 250 && hi == 300);
    assert_true(ledger_find_gap(&ledger, hi, FILE_BYTES, &lo, &hi) && lo == 500 && hi == FILE_BYTES);
    assert_false(ledger_find_gap(&ledger, hi, FILE_BYTES, &lo, &hi));
    assert_false(ledger_find_gap(&ledger, 300, 450, &lo, &hi));
    ledger_fini(&ledger);
}

TESTS_IN(make_file, NULL)
