/* View files: order kept, NumPy bounds, and everything that is not exactly a view refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/view_file.h" /* before cmocka.h, whose macro fail() would hide base/error.h's function */

#include <cmocka.h>

static struct arena arena;
static struct error error;

static int tear_down(void **state)
{
    (void)state;
    arena_fini(&arena);
    return 0;
}

static struct view_file parse(const char *text)
{
    struct view_file file;
    if (view_file_parse(text, strlen(text), &arena, &file, &error) < 0)
        fail_msg("%s: %s", text, error.message);
    return file;
}

static void assert_refused(const char *text, const char *word)
{
    struct view_file file;
    memset(&error, 0, sizeof error);
    if (view_file_parse(text, strlen(text), &arena, &file, &error) == 0)
        fail_msg("accepted: %s", text);
    assert_int_equal(error.code, ERROR_INVALID_ARGUMENT);
    if (!strstr(error.message, word))
        fail_msg("'%s' does not mention '%s'", error.message, word);
}

static void order_names_and_bounds_are_kept(void **state)
{
    (void)state;
    struct view_file file =
        parse("{\"tensors\": [{\"name\": \"b\", \"slices\": [null, [0, 3584]]}, {\"slices\": [[-4, null], "
              "[null, -1]], \"name\": \"a\"}, {\"name\": \"c\"}]}");
    assert_int_equal(file.view.n_items, 3);
    assert_int_equal(file.view.align_bytes, 0);
    assert_string_equal(file.view.items[0].name, "b");
    assert_int_equal(file.view.items[0].n_slices, 2);
    assert_int_equal(file.view.items[0].slices[0].start, 0);
    assert_true(file.view.items[0].slices[0].stop == TC_OPEN_END);
    assert_int_equal(file.view.items[0].slices[1].stop, 3584);
    assert_string_equal(file.view.items[1].name, "a");
    assert_int_equal(file.view.items[1].slices[0].start, -4);
    assert_true(file.view.items[1].slices[0].stop == TC_OPEN_END);
    assert_int_equal(file.view.items[1].slices[1].stop, -1);
    assert_string_equal(file.view.items[2].name, "c");
    assert_int_equal(file.view.items[2].n_slices, 0);
    assert_null(file.view.items[2].slices);
    assert_false(file.has_empty_slices);
}

static void bounds_beyond_64_bits_clip_like_any_other(void **state)
{
    (void)state;
    struct view_file file = parse("{\"tensors\":[{\"name\":\"w\",\"slices\":[[-9223372036854775808,9223372036854775807],"
                                  "[-99999999999999999999,99999999999999999999]]}]}");
    for (size_t d = 0; d < 2; d++) {
        assert_true(file.view.items[0].slices[d].start == INT64_MIN);
        assert_true(file.view.items[0].slices[d].stop == INT64_MAX);
    }
}

static void an_empty_list_of_slices_is_told_apart_from_none(void **state)
{
    (void)state;
    struct view_file file = parse("{\"tensors\":[{\"name\":\"s\",\"slices\":[]},{\"name\":\"w\"}]}");
    assert_true(file.has_empty_slices);
    assert_int_equal(file.view.items[0].n_slices, 0);
    assert_non_null(file.view.items[0].slices);
    assert_null(file.view.items[1].slices);
}

static void alignment_is_a_power_of_two_up_to_two_mebibytes(void **state)
{
    (void)state;
    assert_int_equal(parse("{\"align\": 1, \"tensors\": [{\"name\": \"w\"}]}").view.align_bytes, 1);
    assert_int_equal(parse("{\"tensors\": [{\"name\": \"w\"}], \"align\": 2097152}").view.align_bytes, 2 << 20);
    assert_refused("{\"align\": 4194304, \"tensors\": [{\"name\": \"w\"}]}", "align");
    assert_refused("{\"align\": 0, \"tensors\": [{\"name\": \"w\"}]}", "align");
    assert_refused("{\"align\": 3, \"tensors\": [{\"name\": \"w\"}]}", "align");
    assert_refused("{\"align\": -64, \"tensors\": [{\"name\": \"w\"}]}", "byte");
    assert_refused("{\"align\": null, \"tensors\": [{\"name\": \"w\"}]}", "byte");
}

static void placement_is_one_of_two_words(void **state)
{
    (void)state;
    assert_false(parse("{\"tensors\": [{\"name\": \"w\"}]}").has_placement);
    struct view_file file = parse("{\"placement\": \"packed\", \"tensors\": [{\"name\": \"w\"}]}");
    assert_true(file.has_placement && file.placement == TC_PLACEMENT_PACKED);
    file = parse("{\"tensors\": [{\"name\": \"w\"}], \"placement\": \"source\"}");
    assert_true(file.has_placement && file.placement == TC_PLACEMENT_SOURCE);
    assert_refused("{\"placement\": \"Packed\", \"tensors\": [{\"name\": \"w\"}]}", "placement");
    assert_refused("{\"placement\": 1, \"tensors\": [{\"name\": \"w\"}]}", "byte");
    assert_refused("{\"placement\": \"packed\", \"placement\": \"packed\", \"tensors\": [{\"name\": \"w\"}]}", "twice");
}

static void a_text_that_is_no_view_is_refused(void **state)
{
    static const char *const texts[] = {"",
                                        " ",
                                        "{",
                                        "[]",
                                        "null",
                                        "{}",
                                        "{\"tensors\": {}}",
                                        "{\"tensors\": null}",
                                        "{\"tensors\": [",
                                        "{\"tensors\": [{\"name\": \"w\"}",
                                        "{\"tensors\": [\"w\"]}",
                                        "{\"tensors\": [{\"name\": \"w\"},]}",
                                        "{\"tensors\": [{\"name\": \"w\"}]} x",
                                        "{\"tensors\": [{\"name\": \"w\"}]}{}",
                                        "\xef\xbb\xbf{}"};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        assert_refused(texts[i], "");
}

static void no_tensors_at_all_are_refused(void **state)
{
    (void)state;
    assert_refused("{\"tensors\": []}", "empty");
    assert_refused("{\"align\": 64}", "without \"tensors\"");
}

static void an_item_that_is_wrong_is_named(void **state)
{
    static const char *const slices[] = {"{}",         "0",        "\"0:1\"",     "[0]",       "[[0]]",
                                         "[[0,1,2]]",  "[[0,1],]", "[[\"0\",1]]", "[[0.5,1]]", "[[1e3,2]]",
                                         "[[true,2]]", "[true]",   "[[]]",        "[[0 1]]"};
    char text[200];
    (void)state;
    for (size_t i = 0; i < sizeof slices / sizeof slices[0]; i++) {
        snprintf(text, sizeof text, "{\"tensors\": [{\"name\": \"first\"}, {\"name\": \"w\", \"slices\": %s}]}", slices[i]);
        assert_refused(text, "'w'");
    }
    assert_refused("{\"tensors\": [{\"name\": \"w\"}, {\"name\": 7}]}", "number 2");
    assert_refused("{\"tensors\": [{}]}", "without \"name\"");
    assert_refused("{\"tensors\": [{\"name\": null}]}", "number 1");
}

static void unknown_and_repeated_keys_are_refused(void **state)
{
    (void)state;
    assert_refused("{\"tensors\": [{\"name\": \"w\"}], \"Align\": 64}", "unknown key");
    assert_refused("{\"tensors\": [{\"name\": \"w\", \"slice\": null}]}", "unknown key");
    assert_refused("{\"tensors\": [{\"name\": \"w\", \"name\": \"v\"}]}", "twice");
    assert_refused("{\"tensors\": [{\"name\": \"w\"}], \"tensors\": [{\"name\": \"v\"}]}", "twice");
    assert_refused("{\"tensors\": [{\"name\": \"w\", \"slices\": [null], \"slices\": [null]}]}", "twice");
    assert_refused("{\"align\": 1, \"align\": 1, \"tensors\": [{\"name\": \"w\"}]}", "twice");
}

static void names_are_any_text_but_without_nul(void **state)
{
    (void)state;
    assert_string_equal(parse("{\"tensors\":[{\"name\":\"\\u00e9\\n*\"}]}").view.items[0].name, "\xc3\xa9\n*");
    assert_string_equal(parse("{\"tensors\":[{\"name\":\"\"}]}").view.items[0].name, "");
    assert_refused("{\"tensors\":[{\"name\":\"a\\u0000b\"}]}", "NUL");
    assert_refused("{\"tensors\":[{\"name\":\"\xff\"}]}", "UTF-8");
}

static void sixty_four_slices_are_taken_and_one_more_is_not(void **state)
{
    char text[600] = "{\"tensors\":[{\"name\":\"w\",\"slices\":[null";
    (void)state;
    for (int i = 1; i < 64; i++)
        strcat(text, ",null");
    char *end = text + strlen(text);
    strcpy(end, "]}]}");
    assert_int_equal(parse(text).view.items[0].n_slices, 64);
    strcpy(end, ",null]}]}");
    assert_refused(text, "64");
}

static void a_hundred_thousand_tensors_are_all_there(void **state)
{
    enum { N = 100000 };
    char *text = malloc(100 * N), *at = text;
    struct view_file file;
    (void)state;
    at += sprintf(at, "{\"tensors\":[");
    for (int i = 0; i < N; i++)
        at +=
            sprintf(at, "%s{\"name\":\"model.experts.%d.w\",\"slices\":[[0,%d],[-2,null],null,[1,2]]}", i ? "," : "", i, i);
    at += sprintf(at, "]}");
    assert_int_equal(view_file_parse(text, (size_t)(at - text), &arena, &file, &error), 0);
    free(text);
    assert_int_equal(file.view.n_items, N);
    assert_string_equal(file.view.items[N - 1].name, "model.experts.99999.w");
    assert_int_equal(file.view.items[N - 1].slices[0].stop, N - 1);
    assert_int_equal(file.view.items[1].n_slices, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(order_names_and_bounds_are_kept, tear_down),
        cmocka_unit_test_teardown(bounds_beyond_64_bits_clip_like_any_other, tear_down),
        cmocka_unit_test_teardown(an_empty_list_of_slices_is_told_apart_from_none, tear_down),
        cmocka_unit_test_teardown(alignment_is_a_power_of_two_up_to_two_mebibytes, tear_down),
        cmocka_unit_test_teardown(placement_is_one_of_two_words, tear_down),
        cmocka_unit_test_teardown(a_text_that_is_no_view_is_refused, tear_down),
        cmocka_unit_test_teardown(no_tensors_at_all_are_refused, tear_down),
        cmocka_unit_test_teardown(an_item_that_is_wrong_is_named, tear_down),
        cmocka_unit_test_teardown(unknown_and_repeated_keys_are_refused, tear_down),
        cmocka_unit_test_teardown(names_are_any_text_but_without_nul, tear_down),
        cmocka_unit_test_teardown(sixty_four_slices_are_taken_and_one_more_is_not, tear_down),
        cmocka_unit_test_teardown(a_hundred_thousand_tensors_are_all_there, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
