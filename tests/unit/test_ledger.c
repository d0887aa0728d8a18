/* What the books on read ranges say, in whatever order the ranges came. */
#include "base/crc.h"
#include "execute/ledger.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

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

static void ranges_in_any_order_sum_to_the_whole(void **state)
{
    struct ledger ledger = {.kind = KIND};
    (void)state;
    add(&ledger, 700, FILE_BYTES);
    add(&ledger, 100, 400);
    add(&ledger, 400, 700);
    struct ledger_sum all = sum(&ledger);
    assert_int_equal(all.missing_bytes, 0);
    assert_false(all.overlaps);
    assert_int_equal(all.crc, crc_of(0, FILE_BYTES));
    ledger_fini(&ledger);
}

static void what_was_not_read_is_counted(void **state)
{
    struct ledger ledger = {.kind = KIND};
    (void)state;
    assert_int_equal(sum(&ledger).missing_bytes, FILE_BYTES - PREFIX_BYTES);
    add(&ledger, 200, 300);
    add(&ledger, 500, 999);
    assert_int_equal(sum(&ledger).missing_bytes, 100 + 200 + 1);
    add(&ledger, 100, 200); /* after a question, too */
    assert_int_equal(sum(&ledger).missing_bytes, 200 + 1);
    ledger_fini(&ledger);
}

static void the_prefix_may_have_been_read_with_the_rest(void **state)
{
    struct ledger ledger = {.kind = KIND};
    (void)state;
    add(&ledger, 0, 600);
    add(&ledger, 600, FILE_BYTES);
    struct ledger_sum all = ledger_sum(&ledger, PREFIX_BYTES, 12345, FILE_BYTES);
    assert_int_equal(all.missing_bytes, 0);
    assert_false(all.overlaps);
    assert_int_equal(all.crc, crc_of(0, FILE_BYTES));
    ledger_fini(&ledger);
}

static void half_a_prefix_is_an_overlap(void **state)
{
    struct ledger ledger = {.kind = KIND};
    (void)state;
    add(&ledger, 50, FILE_BYTES);
    assert_true(sum(&ledger).overlaps);
    ledger_fini(&ledger);
}

static void equal_ranges_with_equal_sums_count_once(void **state)
{
    struct ledger ledger = {.kind = KIND};
    (void)state;
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

static void equal_ranges_with_other_sums_are_in_dispute(void **state)
{
    struct ledger ledger = {.kind = KIND};
    (void)state;
    add(&ledger, 100, 500);
    add(&ledger, 500, FILE_BYTES);
    ledger_add(&ledger, 100, 400, 77);
    sum(&ledger);
    assert_true(ledger.ranges[0].disputed);
    assert_false(ledger.ranges[1].disputed);
    ledger_fini(&ledger);
}

static void ranges_with_other_edges_overlap(void **state)
{
    struct ledger ledger = {.kind = KIND};
    (void)state;
    add(&ledger, 100, FILE_BYTES);
    add(&ledger, 200, 300);
    assert_true(sum(&ledger).overlaps);
    assert_int_equal(sum(&ledger).missing_bytes, 0);
    ledger_fini(&ledger);
}

static void a_correction_replaces_the_sum_and_leaves_a_dispute(void **state)
{
    struct ledger ledger = {.kind = KIND};
    (void)state;
    ledger_add(&ledger, 100, 400, 77);
    add(&ledger, 500, FILE_BYTES);
    assert_int_not_equal(sum(&ledger).crc, crc_of(0, FILE_BYTES));
    ledger_correct(&ledger, 100, 400, crc_of(100, 500));
    ledger_correct(&ledger, 500, FILE_BYTES - 500, crc_of(500, FILE_BYTES));
    ledger_correct(&ledger, 1, 2, 3); /* nobody read that */
    assert_int_equal(sum(&ledger).crc, crc_of(0, FILE_BYTES));
    assert_true(ledger.ranges[0].disputed);
    assert_false(ledger.ranges[1].disputed);
    ledger_fini(&ledger);
}

static void a_ledger_of_no_kind_stays_empty(void **state)
{
    struct ledger ledger = {0};
    (void)state;
    add(&ledger, 100, 200);
    assert_int_equal(ledger.n_ranges, 0);
    ledger_fini(&ledger);
}

/* So many that the next ones fit in no memory. */
static void a_range_without_memory_is_missing_and_a_copy_without_memory_is_empty(void **state)
{
    struct ledger full = {.kind = KIND, .n_ranges = SIZE_MAX / 128 + 1, .room = SIZE_MAX / 128 + 1};
    (void)state;
    add(&full, PREFIX_BYTES, FILE_BYTES);
    assert_int_equal(full.n_ranges, SIZE_MAX / 128 + 1);
    full.n_ranges = SIZE_MAX / 64 + 1;
    struct ledger copy = ledger_copy(&full);
    assert_int_equal(copy.n_ranges, 0);
    assert_int_equal(sum(&copy).missing_bytes, FILE_BYTES - PREFIX_BYTES);
    ledger_fini(&copy);
}

static void a_part_is_summed_where_ranges_tile_it(void **state)
{
    struct ledger ledger = {.kind = KIND};
    uint64_t crc;
    (void)state;
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

static void gaps_are_found_one_after_the_other(void **state)
{
    struct ledger ledger = {.kind = KIND};
    uint64_t lo, hi;
    (void)state;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_in_any_order_sum_to_the_whole),
        cmocka_unit_test(what_was_not_read_is_counted),
        cmocka_unit_test(the_prefix_may_have_been_read_with_the_rest),
        cmocka_unit_test(half_a_prefix_is_an_overlap),
        cmocka_unit_test(equal_ranges_with_equal_sums_count_once),
        cmocka_unit_test(equal_ranges_with_other_sums_are_in_dispute),
        cmocka_unit_test(ranges_with_other_edges_overlap),
        cmocka_unit_test(a_correction_replaces_the_sum_and_leaves_a_dispute),
        cmocka_unit_test(a_part_is_summed_where_ranges_tile_it),
        cmocka_unit_test(gaps_are_found_one_after_the_other),
        cmocka_unit_test(a_ledger_of_no_kind_stays_empty),
        cmocka_unit_test(a_range_without_memory_is_missing_and_a_copy_without_memory_is_empty),
    };
    return cmocka_run_group_tests(tests, make_file, NULL);
}
