/* Which bytes one request asks for: rows at one distance without what is between them, small gaps along with the rest. */
#include "tests/support/unit.h"

#include "hosts/block_runs.h"

enum { BLOCK = SHARED_BLOCK_BYTES, GAP = 64 << 10 };

static unsigned char memory[2 * BLOCK], trash[BLOCK];
static struct iovec iov[20000];
static struct block_runs runs;
static struct source_read read_;

static void begin(uint64_t offset)
{
    block_runs_fini(&runs);
    read_ = (struct source_read){.offset = offset, .iov = iov};
}

static void add(void *base, size_t bytes)
{
    iov[read_.n_iov++] = (struct iovec){base, bytes};
}

/* n rows, and the gaps between them. */
static void add_rows(size_t n, size_t take, size_t gap)
{
    for (size_t i = 0; i < n; i++) {
        if (i > 0)
            add(NULL, gap);
        add(memory, take);
    }
}

/* The next request: how many runs, with its rows. */
static size_t choose(size_t first, uint64_t phase, uint64_t take, uint64_t stride)
{
    struct block_rows rows;
    if (runs.n == 0)
        block_runs_collect(&runs, &read_, false);
    size_t n = block_runs_choose(&runs, first, &rows);
    assert_int_equal(rows.phase, phase);
    assert_int_equal(rows.take, take);
    assert_int_equal(rows.stride, stride);
    return n;
}

TEST(rows_of_an_inner_slice_are_one_request_a_block)
{
    begin(BLOCK - 10000); /* the second block begins in the middle of a row, the third in a gap */
    add_rows(150, 28 << 10, 28 << 10);
    assert_int_equal(choose(0, 0, 0, 0), 1);
    size_t n = choose(1, 10000, 28 << 10, 56 << 10);
    assert_int_equal(runs.list[1].lo, BLOCK);
    assert_true(n >= 74 && runs.list[n].hi <= 2 * BLOCK && runs.list[n + 1].lo >= 2 * BLOCK);
    choose(n + 1, (28 << 10) - (runs.list[n + 1].hi - runs.list[n + 1].lo), 28 << 10, 56 << 10);
    assert_int_equal(runs.bytes, 150 * (56 << 10) - (28 << 10));
    assert_int_equal(runs.gap_bytes, 149 * (28 << 10));
}

TEST(rows_whose_gaps_are_larger_than_a_request_is_worth_are_one_request_too)
{
    begin(0);
    add_rows(10, 1000, 2 * GAP);
    assert_int_equal(choose(0, 0, 1000, 1000 + 2 * GAP), 10);
}

TEST(rows_that_save_less_than_a_request_are_asked_for_whole)
{
    begin(0);
    add_rows(5, 20000, GAP / 4 - 1);
    assert_int_equal(choose(0, 0, 0, 0), 5);
    begin(0);
    add_rows(5, 20000, GAP / 4);
    assert_int_equal(choose(0, 0, 20000, 20000 + GAP / 4), 5);
}

TEST(short_rows_are_asked_for_whole)
{
    begin(0);
    add_rows(1000, 511, 1000);
    assert_int_equal(choose(0, 0, 0, 0), 1000);
    begin(0);
    add_rows(1000, 512, 1000);
    assert_int_equal(choose(0, 0, 512, 1512), 1000);
}

TEST(rows_end_where_the_distance_or_the_length_changes)
{
    begin(0);
    add_rows(20, 10000, 10000);
    add(NULL, 10001);
    add_rows(20, 10000, 10000);
    add(NULL, 10000);
    add_rows(20, 12000, 8000);
    assert_int_equal(choose(0, 0, 10000, 20000), 20);
    assert_int_equal(choose(20, 0, 10000, 20000), 20);
    assert_int_equal(choose(40, 0, 12000, 20000), 20);
}

TEST(what_is_no_row_is_asked_for_by_itself_with_small_gaps)
{
    begin(0);
    add(memory, 100);
    add(NULL, 300);
    add(memory, 100);
    add(NULL, 400);
    add_rows(20, 10000, 10000);
    add(NULL, GAP - 1);
    add(memory, 30000);
    assert_int_equal(choose(0, 0, 0, 0), 2);
    assert_int_equal(choose(2, 0, 10000, 20000), 20);
    assert_int_equal(choose(22, 0, 0, 0), 1);
    begin(0);
    add(memory, 300);
    add(NULL, GAP - 1);
    add(memory, 400);
    add(NULL, GAP);
    add(memory, 500);
    assert_int_equal(choose(0, 0, 0, 0), 2);
    assert_int_equal(choose(2, 0, 0, 0), 1);
}

TEST(two_tensors_that_are_far_apart_are_one_request)
{
    begin(0);
    add(memory, 40000);
    add(NULL, GAP);
    add(memory, 50000);
    assert_int_equal(choose(0, 10000, 50000, 50000 + GAP), 2);
}

TEST(buffers_that_lie_together_in_the_file_are_one_run_and_empty_ones_none)
{
    begin(1000);
    read_.trash = trash;
    add(memory, 0);
    add(memory, 10);
    add(memory + 100, 10);
    add(trash, 5);
    add(NULL, 0);
    add(memory, 0);
    add(memory, 7);
    block_runs_collect(&runs, &read_, false);
    assert_int_equal(runs.n, 2);
    assert_true(runs.list[0].lo == 1000 && runs.list[0].hi == 1020 && runs.list[0].i == 1);
    assert_true(runs.list[1].lo == 1025 && runs.list[1].hi == 1032 && runs.list[1].i == 6);
    assert_true(runs.bytes == 32 && runs.gap_bytes == 5);
    block_runs_fini(&runs);
    block_runs_collect(&runs, &read_, true);
    assert_int_equal(runs.n, 1);
    assert_int_equal(runs.list[0].hi, 1032);
}

TEST(a_run_ends_with_its_block)
{
    begin(BLOCK - 5);
    add(memory, BLOCK + 10);
    block_runs_collect(&runs, &read_, false);
    assert_int_equal(runs.n, 3);
    assert_true(runs.list[1].lo == BLOCK && runs.list[1].hi == 2 * BLOCK && runs.list[1].i == 0 && runs.list[1].done == 5);
    assert_true(runs.list[2].hi == 2 * BLOCK + 5 && runs.list[2].done == BLOCK + 5);
}
