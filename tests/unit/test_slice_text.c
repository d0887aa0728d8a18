/* 'NAME[2:5, :, -3:]' means what NumPy would make of it, and what a view cannot say is refused with a hint. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "client/cli/slice_text.h" /* before cmocka.h, whose macro fail() would hide base/error.h's function */

#include <cmocka.h>

static struct arena arena;
static struct error error;

static int tear_down(void **state)
{
    (void)state;
    arena_fini(&arena);
    return 0;
}

static struct slice_text parse(const char *text)
{
    struct slice_text slice;
    memset(&error, 0, sizeof error);
    if (slice_text_parse(text, &arena, &slice, &error) < 0)
        fail_msg("%s: %s", text, error.message);
    return slice;
}

static void assert_refused(const char *text, const char *word)
{
    struct slice_text slice;
    memset(&error, 0, sizeof error);
    assert_int_equal(slice_text_parse(text, &arena, &slice, &error), -1);
    assert_int_equal(error.code, ERROR_INVALID_ARGUMENT);
    if (!strstr(error.message, word))
        fail_msg("'%s' does not mention '%s'", error.message, word);
}

static void assert_slice(const struct slice_text *slice, size_t dimension, int64_t start, int64_t stop)
{
    assert_true(dimension < slice->n_slices);
    assert_int_equal(slice->slices[dimension].start, start);
    assert_int_equal(slice->slices[dimension].stop, stop);
}

static void bounds_may_be_negative_or_missing(void **state)
{
    (void)state;
    struct slice_text slice = parse("a.b[2:5, :, -3:, :-1]");
    assert_string_equal(slice.name, "a.b");
    assert_int_equal(slice.n_slices, 4);
    assert_slice(&slice, 0, 2, 5);
    assert_slice(&slice, 1, 0, TC_OPEN_END);
    assert_slice(&slice, 2, -3, TC_OPEN_END);
    assert_slice(&slice, 3, 0, -1);
}

static void blanks_are_ignored_inside_the_brackets(void **state)
{
    (void)state;
    struct slice_text slice = parse("w[  2 : 5 ,\t:  ]");
    assert_int_equal(slice.n_slices, 2);
    assert_slice(&slice, 0, 2, 5);
    assert_slice(&slice, 1, 0, TC_OPEN_END);
}

static void the_name_may_hold_anything_even_brackets_and_blanks(void **state)
{
    (void)state;
    assert_string_equal(parse("layers[3].w x[1:2]").name, "layers[3].w x");
    assert_string_equal(parse("\xc3\xa9 \n[:]").name, "\xc3\xa9 \n");
}

static void an_explicit_step_of_one_means_nothing(void **state)
{
    (void)state;
    struct slice_text slice = parse("w[1:5:1, ::1, ::]");
    assert_slice(&slice, 0, 1, 5);
    assert_slice(&slice, 1, 0, TC_OPEN_END);
    assert_slice(&slice, 2, 0, TC_OPEN_END);
}

static void any_other_step_is_refused_and_the_tensor_named(void **state)
{
    (void)state;
    assert_refused("w[::2, :]", "'w'");
    assert_refused("w[::-1]", "step");
    assert_refused("w[0:9:0]", "step");
}

static void bounds_beyond_64_bits_saturate_and_so_clip_as_in_numpy(void **state)
{
    (void)state;
    struct slice_text slice = parse("w[-99999999999999999999:99999999999999999999, 9223372036854775807:]");
    assert_slice(&slice, 0, -INT64_MAX, TC_OPEN_END);
    assert_slice(&slice, 1, INT64_MAX, TC_OPEN_END);
}

static void a_single_index_is_refused_because_it_would_drop_a_dimension(void **state)
{
    (void)state;
    assert_refused("w[3]", "drop a dimension");
    assert_refused("w[:, -1]", "drop a dimension");
}

static void what_is_no_slice_is_refused(void **state)
{
    static const char *const texts[] = {"w",       "w[]",     "w[1:2",  "w]",     "w[1:2]x", "w[1:2],",
                                        "w[,]",    "w[:,]",   "w[a:b]", "w[...]", "w[1 2:]", "w[1:2:]]",
                                        "w[--1:]", "w[1.5:]", "w[-:]",  "w[:;:]", ""};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        assert_refused(texts[i], "slice of '");
    assert_refused("[1:2]", "no tensor is named");
}

static void sixty_four_dimensions_are_taken_and_one_more_is_not(void **state)
{
    char text[300] = "w[:";
    (void)state;
    for (int i = 1; i < 64; i++)
        strcat(text, ",:");
    char *end = text + strlen(text);
    strcpy(end, "]");
    assert_int_equal(parse(text).n_slices, 64);
    strcpy(end, ",:]");
    assert_refused(text, "64");
}

static void control_characters_of_the_name_do_not_reach_the_message(void **state)
{
    (void)state;
    assert_refused("w\x1b[2J[1]", "\\x1b");
    assert_null(strchr(error.message, '\x1b'));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(bounds_may_be_negative_or_missing, tear_down),
        cmocka_unit_test_teardown(blanks_are_ignored_inside_the_brackets, tear_down),
        cmocka_unit_test_teardown(the_name_may_hold_anything_even_brackets_and_blanks, tear_down),
        cmocka_unit_test_teardown(an_explicit_step_of_one_means_nothing, tear_down),
        cmocka_unit_test_teardown(any_other_step_is_refused_and_the_tensor_named, tear_down),
        cmocka_unit_test_teardown(bounds_beyond_64_bits_saturate_and_so_clip_as_in_numpy, tear_down),
        cmocka_unit_test_teardown(a_single_index_is_refused_because_it_would_drop_a_dimension, tear_down),
        cmocka_unit_test_teardown(what_is_no_slice_is_refused, tear_down),
        cmocka_unit_test_teardown(sixty_four_dimensions_are_taken_and_one_more_is_not, tear_down),
        cmocka_unit_test_teardown(control_characters_of_the_name_do_not_reach_the_message, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
