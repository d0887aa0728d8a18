/* What is printed on a terminal of so many columns. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/cli/fit_text.h"
#include "client/cli/shape_text.h"

static const char page[] =
    "artifact  disk:/models/llama (2 files, 1.13 GiB)\n"
    "source    local ext4, 0% in the page cache; gaps below 72.3 KiB cost less than a request\n"
    "gate    > time          local 218 ms, generic 1.42 s -> local\n"
    "\n"
    "  candidate                  needs      reads   requests  temporary   estimate  reason\n"
    "  generic_byte_range       384 MiB    384 MiB     65,552   64.0 MiB     1.42 s  exact_generic_fallback\n"
    "> tensor_batched_local     384 MiB          -          -          -          -  eligible\n"
    "\n"
    "  file                                      extents      reads     wanted       span  lands\n"
    "  a model of \xc3\xa4 that-1-of-2.safetensors           12    384 MiB    192 MiB    560 MiB  staged\n"
    "  an_even_longer_name_of_a_file.safetensors       1    384 MiB    192 MiB    560 MiB  direct\n"
    "  ... and 3 more files\n";

/* The caller frees. */
static char *fit(const char *text, size_t columns)
{
    static char *fitted;
    static size_t length;
    FILE *out = open_memstream(&fitted, &length);
    fit_text(text, columns, out);
    fclose(out);
    return fitted;
}

static void no_line_is_longer_than_the_terminal_and_no_word_is_lost(void **state)
{
    (void)state;
    for (size_t columns = 80; columns < 130; columns++) {
        char *text = fit(page, columns), line[256];
        for (const char *at = text; *at; at += strcspn(at, "\n") + 1) {
            snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
            assert_true(text_columns(line) <= columns);
        }
        static const char *const words[] = {"less than",
                                            "request\n",
                                            "exact_generic_fallback",
                                            "eligible",
                                            "65,552",
                                            "560 MiB",
                                            "> tensor_batched_local ",
                                            "direct\n",
                                            "... and 3 more files\n"};
        for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
            assert_non_null(strstr(text, words[i]));
        free(text);
    }
}

static void what_fits_or_goes_elsewhere_stays_as_it_is(void **state)
{
    (void)state;
    const size_t enough[] = {0, 120, 1000};
    for (size_t i = 0; i < 3; i++) {
        char *text = fit(page, enough[i]);
        assert_string_equal(text, page);
        free(text);
    }
}

static void lines_go_on_below_their_text(void **state)
{
    (void)state;
    char *text = fit(page, 80);
    assert_non_null(strstr(text, "source    local ext4, 0% in the page cache; gaps below 72.3 KiB cost less than a\n"
                                 "          request\n"));
    free(text);
}

static void executors_keep_their_names_and_get_a_line_for_the_reason(void **state)
{
    (void)state;
    char *text = fit(page, 80);
    assert_non_null(strstr(text, "  generic_byte_range    384 MiB    384 MiB     65,552   64.0 MiB     1.42 s\n"
                                 "      exact_generic_fallback\n"
                                 "> tensor_batched_local  384 MiB          -          -          -          -\n"
                                 "      eligible\n"));
    free(text);
}

static void names_of_files_are_cut_in_the_middle_and_numbers_stay_in_columns(void **state)
{
    (void)state;
    char *text = fit(page, 80);
    assert_non_null(strstr(text, "  file                          extents      reads     wanted       span  lands\n"
                                 "  a model of \xc3\xa4 ....safetensors       12    384 MiB    192 MiB    560 MiB  staged\n"
                                 "  an_even_longe....safetensors        1    384 MiB    192 MiB    560 MiB  direct\n"));
    free(text);
}

static void a_word_that_is_too_long_for_a_line_has_one_of_its_own(void **state)
{
    (void)state;
    char *text = fit("mapped    because_of_one_word_without_any_blank_in_it and more\nlast\n", 40);
    assert_string_equal(text, "mapped\n          because_of_one_word_without_any_blank_in_it\n          and more\nlast\n");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_line_is_longer_than_the_terminal_and_no_word_is_lost),
        cmocka_unit_test(what_fits_or_goes_elsewhere_stays_as_it_is),
        cmocka_unit_test(lines_go_on_below_their_text),
        cmocka_unit_test(executors_keep_their_names_and_get_a_line_for_the_reason),
        cmocka_unit_test(names_of_files_are_cut_in_the_middle_and_numbers_stay_in_columns),
        cmocka_unit_test(a_word_that_is_too_long_for_a_line_has_one_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
