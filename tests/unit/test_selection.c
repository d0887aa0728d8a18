/* --tensor, --slice and --tp-* against what an artifact holds. */
#include "tests/support/unit.h"

#include "client/cli/selection.h" /* before cmocka.h, whose macro fail() would hide base/error.h's function */

static const uint64_t shape[] = {4, 6};
static struct catalog_tensor tensors[] = {
    {.name = "l.0.w", .name_length = 5, .shape = shape, .rank = 2},
    {.name = "l.1.w", .name_length = 5, .shape = shape, .rank = 2},
    {.name = "l.0.b", .name_length = 5, .shape = shape, .rank = 1},
    {.name = "norm", .name_length = 4, .shape = shape, .rank = 1},
    {.name = "l.10.w", .name_length = 6, .shape = shape, .rank = 2},
    {.name = "a[0]", .name_length = 4, .shape = shape, .rank = 1},
};
enum { N_NAMED = 6 };
static const Tensorcast__Daemon__V1__ResolveResponse told = {.artifact = "disk:/m"};
static struct catalog catalog = {.told = &told, .tensors = tensors, .n_tensors = N_NAMED};

static struct args args;
static struct selection selection;
static struct error error;

static int set_up(void **state)
{
    memset(&args, 0, sizeof args);
    memset(&selection, 0, sizeof selection);
    memset(&error, 0, sizeof error);
    catalog.n_tensors = N_NAMED;
    return 0;
}

static int tear_down(void **state)
{
    selection_fini(&selection);
    args_fini(&args);
    return 0;
}

/* Options, each with its value, end with NULL. */
static int choose(const char *first, ...)
{
    char *words[32] = {"tensorcast", "load", "disk:/m"};
    int n = 3;
    va_list list;
    va_start(list, first);
    for (const char *word = first; word; word = va_arg(list, const char *))
        words[n++] = (char *)word;
    va_end(list);
    assert_int_equal(args_parse(n, words, &args, &error), 0);
    static const struct tp_model model = {.heads[TP_TEXT] = {2, 2, false}};
    return selection_from_catalog(&args.view, &catalog, &model, &selection, &error);
}

static void assert_names(size_t n, ...)
{
    va_list list;
    va_start(list, n);
    assert_int_equal(selection.view.n_items, n);
    for (size_t i = 0; i < n; i++)
        assert_string_equal(selection.view.items[i].name, va_arg(list, const char *));
    va_end(list);
}

TEST_IN(options_keep_their_order_and_matches_that_of_the_artifact, set_up, tear_down)
{
    assert_int_equal(choose("--tensor", "norm", "--tensor", "l.*.b", "--tensor", "l.?.w", NULL), 0);
    assert_names(4, "norm", "l.0.b", "l.0.w", "l.1.w");
    assert_int_equal(selection.view.items[0].n_slices, 0);
    assert_false(selection.whole);
}

TEST_IN(nothing_is_selected_twice, set_up, tear_down)
{
    assert_int_equal(choose("--tensor", "l.1.w", "--tensor", "l.*.w", "--tensor", "*.1.*", NULL), 0);
    assert_names(3, "l.1.w", "l.0.w", "l.10.w");
}

TEST_IN(a_glob_without_a_match_is_not_found_and_named, set_up, tear_down)
{
    assert_int_equal(choose("--tensor", "norm", "--tensor", "h.*.q", NULL), -1);
    assert_int_equal(error.code, ERROR_NOT_FOUND);
    assert_non_null(strstr(error.message, "'h.*.q'"));
    assert_non_null(strstr(error.message, "disk:/m"));
}

TEST_IN(a_name_that_looks_like_a_glob_still_means_itself, set_up, tear_down)
{
    assert_int_equal(choose("--tensor", "a[0]", NULL), 0);
    assert_names(1, "a[0]");
}

TEST_IN(a_slice_takes_the_place_of_its_tensor, set_up, tear_down)
{
    assert_int_equal(choose("--tensor", "l.?.w", "--slice", "norm[1:2]", "--slice", "l.0.w[:, 2:]", "--tensor", "n*", NULL),
                     0);
    assert_names(3, "l.0.w", "l.1.w", "norm");
    assert_int_equal(selection.view.items[0].n_slices, 2);
    assert_int_equal(selection.view.items[0].slices[1].start, 2);
    assert_int_equal(selection.view.items[1].n_slices, 0);
    assert_int_equal(selection.view.items[2].slices[0].stop, 2);
}

TEST_IN(a_mesh_splits_what_has_no_slice, set_up, tear_down)
{
    assert_int_equal(choose("--mesh", "d=2,m=2", "--mesh-rank", "1", "--spec", "l.*.w=-,m", "--slice", "l.1.w[0:1, :]",
                            "--tensor", "l.0.w", "--tensor", "norm", NULL),
                     0);
    assert_names(3, "l.1.w", "l.0.w", "norm");
    assert_int_equal(selection.view.items[0].slices[0].stop, 1);
    assert_int_equal(selection.view.items[0].slices[1].stop, TC_OPEN_END);
    assert_int_equal(selection.view.items[1].n_slices, 2);
    assert_int_equal(selection.view.items[1].slices[1].start, shape[1] / 2);
    assert_int_equal(selection.view.items[2].n_slices, 0);
    selection_fini(&selection);
    args_fini(&args);
    memset(&selection, 0, sizeof selection);
    assert_int_equal(choose("--mesh", "m=3", "--mesh-rank", "1", "--spec", "norm=m", NULL), -1);
    assert_int_equal(error.code, ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "tensor 'norm'"));
}

TEST_IN(a_slice_of_an_unknown_tensor_is_not_found, set_up, tear_down)
{
    assert_int_equal(choose("--slice", "l.*.w[0:1, :]", NULL), -1);
    assert_int_equal(error.code, ERROR_NOT_FOUND);
}

TEST_IN(tensor_parallelism_takes_everything_when_nothing_is_selected, set_up, tear_down)
{
    assert_int_equal(choose("--tp-size", "2", "--tp-rank", "1", "--tp-rule", "l.*=0", NULL), 0);
    assert_names(N_NAMED, "l.0.w", "l.1.w", "l.0.b", "norm", "l.10.w", "a[0]");
    assert_int_equal(selection.view.items[0].n_slices, 2);
    assert_int_equal(selection.view.items[0].slices[0].start, 2);
    assert_int_equal(selection.view.items[3].n_slices, 0);
}

TEST_IN(an_explicit_slice_wins_over_tensor_parallelism, set_up, tear_down)
{
    assert_int_equal(choose("--slice", "l.0.w[0:3, :]", "--tensor", "l.1.w", "--tp-size", "2", "--tp-rank", "0", "--tp-rule",
                            "*=0", NULL),
                     0);
    assert_names(2, "l.0.w", "l.1.w");
    assert_int_equal(selection.view.items[0].slices[0].stop, 3);
    assert_int_equal(selection.view.items[1].slices[0].stop, 2);
}

TEST_IN(an_artifact_without_tensors_is_taken_whole, set_up, tear_down)
{
    catalog.n_tensors = 0;
    assert_int_equal(choose("--tp-size", "2", "--tp-rank", "0", NULL), 0);
    assert_null(selection_view(&selection));
}

TEST_IN(an_empty_list_of_slices_fits_only_a_tensor_without_dimensions, set_up, tear_down)
{
    static struct catalog_tensor held[] = {{.name = "scalar", .name_length = 6},
                                           {.name = "w", .name_length = 1, .shape = shape, .rank = 2}};
    const struct catalog two = {.told = &told, .tensors = held, .n_tensors = 2};
    const struct tc_slice none[1] = {{0, 0}};
    const struct tc_view_item good[] = {{"scalar", 0, none}, {"w", 0, NULL}, {"nobody", 0, none}};
    const struct tc_view_item bad[] = {{"scalar", 0, none}, {"w", 0, none}};
    assert_int_equal(selection_check_empty_slices(&(struct tc_view){good, 3, 0}, &two, &error), 0);
    assert_int_equal(selection_check_empty_slices(&(struct tc_view){bad, 2, 0}, &two, &error), -1);
    assert_int_equal(error.code, ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "'w'"));
}
