/* What names say of files: sets, variants, ranks. */
#include "tests/support/unit.h"

#include "resolve/part_names.h"

enum { MOST = 8 };
#define S ".safetensors"

static size_t count(const char *const *names)
{
    size_t n = 0;
    while (n < MOST && names[n])
        n++;
    return n;
}

TEST(the_first_number_that_is_missing_is_named)
{
    static const struct {
        const char *names[MOST], *gap;
    } cases[] = {
        {{"a-00001-of-00003" S, "a-00003-of-00003" S}, "a-00002-of-00003" S},
        {{"a-00002-of-00002" S}, "a-00001-of-00002" S},
        {{"a-00000-of-00002" S}, "a-00001-of-00002" S},
        {{"a-00000-of-00002" S, "a-00001-of-00002" S}, NULL},
        {{"a-1-of-2" S, "a-2-of-2" S, "b" S, "c.d-x-of-y" S}, NULL},
        {{"a-1-of-2" S, "a-2-of-2" S, "b-1-of-2" S}, "b-2-of-2" S},
        {{"a-09-of-10" S, "a-10-of-10" S}, "a-01-of-10" S},
        {{"model" S "-00001-of-00002" S}, "model" S "-00002-of-00002" S},
        {{"m.fp16-00002-of-00002" S}, "m.fp16-00001-of-00002" S},
        {{"m-00002-of-00002.fp16" S, "m-00001-of-00002" S}, "m-00001-of-00002.fp16" S},
        {{"a-3-of-2" S, "a-0-of-0" S, "-of-2" S, "1-of-1" S, "x-1-of-99999999999" S, "" S}, NULL},
        {{"m-rank-0-part-0" S, "m-rank-0-part-2" S}, "m-rank-0-part-1" S},
        {{"m-rank-3-part-1" S}, "m-rank-3-part-0" S},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *gap = part_names_find_gap(cases[i].names, count(cases[i].names));
        if (cases[i].gap)
            assert_string_equal(gap, cases[i].gap);
        else
            assert_null(gap);
        free(gap);
    }
}

TEST(one_complete_set_is_kept)
{
    const char *names[] = {"a-1-of-2" S, "b" S, "b-1-of-2" S, "b-2-of-2" S}, *both[] = {"a-1-of-1" S, "b-1-of-1" S};
    assert_true(part_names_have_set(names, 4));
    assert_int_equal(part_names_keep_set(names, 4), 2);
    assert_string_equal(names[0], "b-1-of-2" S);
    assert_string_equal(names[1], "b-2-of-2" S);
    assert_int_equal(part_names_keep_set(both, 2), 0);
    assert_true(part_names_have_set(both, 2));
    assert_false(part_names_have_set(both, 0));
}

TEST(a_variant_goes_where_the_same_without_one_is_whole)
{
    static const struct {
        const char *names[MOST];
        size_t n_kept;
    } cases[] = {
        {{"u.fp16" S, "u" S}, 1},
        {{"diffusion_pytorch_model.anything" S, "diffusion_pytorch_model" S}, 1},
        {{"u.part" S, "u" S}, 2},       /* may be another part */
        {{"u.1" S, "u.2" S, "u" S}, 3}, /* are some of many */
        {{"u.fp16" S, "u.bf16" S}, 2},
        {{"u.fp16" S, "v" S}, 2},
        {{"u.fp16-1-of-2" S, "u.fp16-2-of-2" S, "u" S}, 1},
        {{"u-1-of-2.fp16" S, "u-2-of-2.fp16" S, "u" S}, 1},
        {{"u.int8" S, "u-1-of-2" S, "u-2-of-2" S}, 2},
        {{"u.int8" S, "u-1-of-2" S}, 2}, /* which is not whole */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *names[MOST];
        memcpy(names, cases[i].names, sizeof names);
        size_t n = count(names), kept = part_names_drop_variants(names, n);
        assert_int_equal(kept, cases[i].n_kept);
        for (size_t k = kept; k < n; k++)
            assert_non_null(strpbrk(names[k], "."));
    }
}

TEST(ranks_are_counted_with_their_parts)
{
    static const char *const names[] = {"a" S, "m-rank-0-part-0" S, "m-rank-0-part-1" S, "m-rank-11-part-0" S};
    const char *first;
    bool have_parts;
    assert_int_equal(part_names_count_ranks(names, 4, &first, &have_parts), 2);
    assert_true(have_parts);
    assert_string_equal(first, "m-rank-0-part-0" S);
    assert_int_equal(part_names_count_ranks(names, 2, &first, &have_parts), 1);
    assert_false(have_parts);
    assert_int_equal(part_names_count_ranks(names, 1, &first, &have_parts), 0);
    assert_null(first);
}
