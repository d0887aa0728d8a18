/* Boxes and loops lower to as few runs as their geometry allows. */
#include "tests/support/unit.h"

#include "resolve/box.h"

struct geometry {
    uint32_t rank;
    uint64_t shape[5], start[5], size[5];
    unsigned bits;
    uint64_t n_runs, src_offset, row_bytes, n_rows, src_stride;
};

static const uint64_t zeros[5];

/* Of one array, packed where it goes to. */
static struct box take(uint32_t rank, const uint64_t *shape, const uint64_t *start, const uint64_t *size)
{
    return (struct box){
        .rank = rank, .size = size, .src_shape = shape, .src_start = start, .dst_shape = size, .dst_start = zeros};
}

static const struct geometry table[] = {
    /* all of it, in any rank */
    {0, {0}, {0}, {0}, 32, 1, 0, 4, 1, 4},
    {1, {8}, {0}, {8}, 32, 1, 0, 32, 1, 32},
    {3, {2, 3, 4}, {0, 0, 0}, {2, 3, 4}, 16, 1, 0, 48, 1, 48},
    /* the outermost dimension: one contiguous run */
    {1, {8}, {2}, {4}, 32, 1, 8, 16, 1, 16},
    {3, {5, 3, 4}, {1, 0, 0}, {2, 3, 4}, 8, 1, 12, 24, 1, 24},
    /* behind dimensions of one index it is contiguous, too */
    {3, {1, 3, 4}, {0, 1, 0}, {1, 2, 4}, 8, 1, 4, 8, 1, 8},
    {3, {5, 3, 4}, {2, 1, 0}, {1, 2, 4}, 8, 1, 28, 8, 1, 8},
    {2, {5, 4}, {2, 1}, {1, 2}, 8, 1, 9, 2, 1, 2},
    /* one inner dimension: one strided run */
    {2, {4, 16}, {0, 4}, {4, 4}, 8, 1, 4, 4, 4, 16},
    {2, {2, 4}, {0, 1}, {2, 2}, 32, 1, 4, 8, 2, 16},
    {3, {2, 4, 3}, {0, 1, 0}, {2, 2, 3}, 8, 1, 3, 6, 2, 12},
    {3, {2, 4, 3}, {0, 0, 1}, {2, 4, 1}, 8, 1, 1, 1, 8, 3},
    /* rows and columns */
    {2, {6, 8}, {1, 2}, {4, 4}, 8, 1, 10, 4, 4, 8},
    /* the hundred thousand experts: one run of four rows */
    {4, {2, 3, 2, 2}, {0, 1, 0, 1}, {1, 2, 2, 1}, 8, 1, 5, 1, 4, 2},
    /* several levels */
    {3, {4, 6, 5}, {1, 2, 1}, {2, 2, 3}, 8, 2, 41, 3, 2, 5},
    {5, {2, 3, 2, 3, 2}, {0, 1, 0, 1, 0}, {2, 2, 2, 2, 1}, 16, 8, 28, 2, 2, 4},
    /* sub-byte elements on byte boundaries */
    {1, {8}, {2}, {4}, 4, 1, 1, 2, 1, 2},
    {2, {3, 8}, {0, 4}, {3, 4}, 6, 1, 3, 3, 3, 6},
};

TEST(boxes_lower_to_the_expected_runs)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const struct geometry *g = &table[i];
        struct box box = take(g->rank, g->shape, g->start, g->size);
        struct box_runs runs;
        assert_true(box_lower(&box, g->bits, &runs));
        if (runs.n_runs != g->n_runs || runs.src_offset != g->src_offset || runs.row_bytes != g->row_bytes ||
            runs.n_rows != g->n_rows || runs.src_stride != g->src_stride || runs.dst_offset != 0 ||
            runs.dst_stride != runs.row_bytes)
            fail_msg("case %zu: %llu runs at %llu: %llu rows of %llu, stride %llu", i, (unsigned long long)runs.n_runs,
                     (unsigned long long)runs.src_offset, (unsigned long long)runs.n_rows,
                     (unsigned long long)runs.row_bytes, (unsigned long long)runs.src_stride);
    }
}

TEST(run_offsets_ascend_in_c_order)
{
    static const uint64_t shape[] = {3, 4, 5, 6}, start[] = {0, 1, 1, 2}, size[] = {3, 2, 3, 2};
    struct box box = take(4, shape, start, size);
    struct box_runs runs;
    assert_true(box_lower(&box, 8, &runs));
    assert_int_equal(runs.n_runs, 6);
    uint64_t index = 0, src, dst;
    for (uint64_t a = 0; a < 3; a++) {
        for (uint64_t b = 1; b < 3; b++) {
            box_run_offsets(&runs, index, &src, &dst);
            assert_int_equal(src, ((a * 4 + b) * 5 + 1) * 6 + 2);
            assert_int_equal(dst, index++ * 6);
        }
    }
}

TEST(an_empty_box_has_no_runs_however_large_the_array_is)
{
    static const uint64_t shape[] = {(uint64_t)1 << 63, 0, (uint64_t)1 << 40}, start[] = {0, 0, 0};
    static const uint64_t size[] = {(uint64_t)1 << 63, 0, (uint64_t)1 << 40};
    struct box box = take(3, shape, start, size);
    struct box_runs runs;
    assert_true(box_lower(&box, 4, &runs));
    assert_int_equal(runs.n_runs, 0);
}

TEST(sub_byte_rows_off_a_byte_boundary_are_refused)
{
    static const struct {
        uint64_t shape[2], start[2], size[2];
        unsigned bits;
        bool fits;
    } cases[] = {
        {{4, 8}, {0, 1}, {4, 2}, 4, false}, {{4, 8}, {0, 2}, {4, 3}, 4, false}, {{4, 8}, {0, 2}, {4, 2}, 4, true},
        {{4, 7}, {0, 2}, {4, 2}, 4, false}, {{4, 7}, {2, 0}, {2, 7}, 4, true},  {{4, 7}, {1, 0}, {2, 7}, 4, false},
        {{4, 8}, {0, 2}, {4, 4}, 6, false}, {{4, 8}, {0, 4}, {4, 4}, 6, true},  {{4, 7}, {2, 2}, {1, 2}, 4, true},
        {{4, 7}, {1, 2}, {1, 2}, 4, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct box box = take(2, cases[i].shape, cases[i].start, cases[i].size);
        struct box_runs runs;
        if (box_lower(&box, cases[i].bits, &runs) != cases[i].fits)
            fail_msg("case %zu", i);
    }
}

/* [1:3, 2:5] of one array at [2:4, 0:3] of the other. */
TEST(a_box_has_a_stride_in_each_array)
{
    static const uint64_t size[] = {2, 3}, from[] = {4, 6}, first[] = {1, 2}, to[] = {4, 5}, at[] = {2, 0};
    const struct box box = {2, size, from, first, to, at};
    struct box_runs runs;
    assert_true(box_lower(&box, 16, &runs));
    assert_int_equal(runs.n_runs, 1);
    assert_true(runs.row_bytes == 6 && runs.n_rows == 2 && runs.src_stride == 12 && runs.dst_stride == 10);
    assert_true(runs.src_offset == 16 && runs.dst_offset == 20);
}

/* Columns of a packed piece go to where they are wider apart: contiguous on one side only, so not one row. */
TEST(what_is_contiguous_on_one_side_only_is_not_merged)
{
    static const uint64_t size[] = {4, 3}, whole[] = {4, 6}, origin[] = {0, 0}, at[] = {0, 3};
    const struct box spread = {2, size, size, origin, whole, at}, gathered = {2, size, whole, at, size, origin};
    struct box_runs runs;
    assert_true(box_lower(&spread, 8, &runs));
    assert_true(runs.n_runs == 1 && runs.n_rows == 4 && runs.src_stride == 3 && runs.dst_stride == 6);
    assert_true(box_lower(&gathered, 8, &runs));
    assert_true(runs.n_runs == 1 && runs.n_rows == 4 && runs.src_stride == 6 && runs.dst_stride == 3);
    assert_false(box_lower(&spread, 4, &runs)); /* rows of 12 bits */
}

/* --- loop nests; tests/property/test_mapping.c checks the bytes --- */

static struct box_runs found;

/* Loops in bytes. */
static bool lower(unsigned element_bytes, uint32_t n, const struct nest_loop *loops)
{
    struct loop_nest nest = {.src = 80, .dst = 160, .n_loops = n};
    for (uint32_t i = 0; i < n; i++)
        nest.loops[i] = (struct nest_loop){loops[i].size, loops[i].src * 8, loops[i].dst * 8};
    return box_lower_nest(&nest, element_bytes * 8, element_bytes * 8, &found);
}
#define LOOPS(...) ((const struct nest_loop[]){__VA_ARGS__})

static void is(uint64_t n_runs, uint64_t row_bytes, uint64_t n_rows, uint64_t src_stride, int64_t dst_stride)
{
    assert_int_equal(found.src_offset, 10);
    assert_int_equal(found.dst_offset, 20);
    assert_int_equal(found.n_runs, n_runs);
    assert_int_equal(found.row_bytes, row_bytes);
    assert_int_equal(found.n_rows, n_rows);
    assert_int_equal(found.src_stride, src_stride);
    assert_int_equal((int64_t)found.dst_stride, dst_stride);
}

TEST(what_follows_on_both_sides_is_one_row)
{
    assert_true(lower(2, 0, NULL));
    is(1, 2, 1, 2, 2);
    assert_true(lower(2, 2, LOOPS({3, 8, 8}, {4, 2, 2})));
    is(1, 24, 1, 24, 24);
    assert_true(lower(2, 2, LOOPS({4, 2, 2}, {3, 8, 10})));
    is(1, 8, 3, 8, 10);
    assert_true(lower(2, 3, LOOPS({3, 8, 10}, {5, 24, 30}, {4, 2, 2})));
    is(1, 8, 15, 8, 10);
}

TEST(rows_may_go_backwards)
{
    assert_true(lower(2, 2, LOOPS({3, 8, -8}, {4, 2, 2})));
    is(1, 8, 3, 8, -8);
    assert_true(lower(2, 2, LOOPS({3, 8, -8}, {4, 2, -2})));
    is(1, 2, 12, 2, -2);
    assert_true(lower(2, 2, LOOPS({3, 8, 8}, {4, 2, -2})));
    is(3, 2, 4, 2, -2);
    uint64_t src, dst;
    box_run_offsets(&found, 2, &src, &dst);
    assert_int_equal(src, 26);
    assert_int_equal(dst, 36);
}

TEST(rows_lie_close_together_in_the_file_unless_that_takes_many_more)
{
    assert_true(lower(1, 2, LOOPS({50, 40, 1}, {40, 1, 50}))); /* transposed */
    is(50, 1, 40, 1, 50);
    assert_true(lower(1, 2, LOOPS({50, 4, 1}, {4, 1, 50})));
    is(4, 1, 50, 4, 1);
    assert_true(lower(1, 2, LOOPS({3, 0, 10}, {10, 1, 1}))); /* the same elements again are no rows */
    is(3, 10, 1, 10, 10);
}

TEST(loops_of_no_whole_bytes_are_refused)
{
    struct loop_nest nest = {.n_loops = 1, .loops = {{8, 4, 4}}};
    assert_true(box_lower_nest(&nest, 4, 4, &found));
    assert_int_equal(found.row_bytes, 4);
    nest = (struct loop_nest){.n_loops = 1, .loops = {{7, 4, 4}}};
    assert_false(box_lower_nest(&nest, 4, 4, &found));
    nest = (struct loop_nest){.n_loops = 2, .loops = {{8, 4, 4}, {3, 32, -36}}};
    assert_false(box_lower_nest(&nest, 4, 4, &found));
}
