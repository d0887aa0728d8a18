/* What an entry of prewarm may say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"

#include <cmocka.h> /* last: its macro fail() would hide ours */

static struct config *parse_prewarm(const char *yaml, struct error *error)
{
    char *text;
    size_t length;
    FILE *out = open_memstream(&text, &length);
    fprintf(out, "prewarm:\n%s\n", yaml);
    fclose(out);
    struct config *config = config_parse(text, length, "store.yaml", error);
    free(text);
    return config;
}

static void prewarm_is_a_list_of_artifacts_with_options(void **state)
{
    struct error error;
    (void)state;
    struct config *config =
        parse_prewarm("  - {artifact: /models/a, pin: true}\n"
                      "  - artifact: gs://b/c\n    tp_rank: 1\n    tp_size: 4\n    tensors: [\"x.*\", y]\n",
                      &error);
    assert_non_null(config);
    assert_int_equal(config->prewarm.texts.n_items, 2);
    assert_string_equal(config->prewarm.entries[0].artifact, "disk:/models/a");
    assert_true(config->prewarm.entries[0].pin);
    assert_int_equal(config->prewarm.entries[1].tp_size, 4);
    assert_int_equal(config->prewarm.entries[1].n_tensors, 2);
    char *printed;
    size_t length;
    FILE *out = open_memstream(&printed, &length);
    config_print(config, NULL, out);
    fclose(out);
    assert_non_null(strstr(printed,
                           "prewarm: [{artifact: \"disk:/models/a\", pin: true}, {artifact: \"gs://b/c\", tp_size: 4, "
                           "tp_rank: 1, tensors: [\"x.*\", \"y\"]}]"));
    struct config *again = config_parse(printed, length, "again", &error);
    assert_non_null(again);
    assert_string_equal(again->prewarm.entries[1].text, config->prewarm.entries[1].text);
    free(printed);
    config_destroy(again);
    config_destroy(config);
}

static void a_size_without_a_rank_is_every_rank(void **state)
{
    struct error error;
    (void)state;
    struct config *config = parse_prewarm("  - {artifact: /a, tp_size: 3, tensors: [x], pin: true}\n"
                                          "  - {artifact: /b, tp_size: 61}\n",
                                          &error);
    assert_non_null(config);
    assert_int_equal(config->prewarm.texts.n_items, 64);
    assert_string_equal(config->prewarm.texts.items[0],
                        "{artifact: \"disk:/a\", tp_size: 3, tp_rank: 0, tensors: [\"x\"], pin: true}");
    assert_string_equal(config->prewarm.entries[2].text,
                        "{artifact: \"disk:/a\", tp_size: 3, tp_rank: 2, tensors: [\"x\"], pin: true}");
    assert_int_equal(config->prewarm.entries[63].tp_rank, 60);
    config_destroy(config);
    assert_null(parse_prewarm("  - {artifact: /a, tp_size: 3}\n  - {artifact: /b, tp_size: 62}\n", &error));
    assert_non_null(strstr(error.message, "store.yaml:3:5: prewarm: at most 64 entries are allowed"));
}

static void wrong_entries_of_prewarm_are_refused_with_their_line(void **state)
{
    static const char *const wrong[][2] = {
        {"  - {pin: true}", "store.yaml:2:5: prewarm: an entry needs artifact"},
        {"  - {artifact: models/a}", "store.yaml:2:16: prewarm: artifact: expected a reference"},
        {"  - {artifact: /a, pni: true}", "prewarm: unknown key pni; did you mean pin"},
        {"  - {artifact: /a, pin: 7}", "prewarm: pin: expected true or false, got 7"},
        {"  - {artifact: /a, artifact: /b}", "prewarm: given twice: artifact"},
        {"  - {artifact: /a, tp_rank: 4}", "tp_rank needs tp_size"},
        {"  - {artifact: /a, tp_size: 0}", "tp_size is at least 1"},
        {"  - {artifact: /a, tp_size: 65536}", "store.yaml:2:5: prewarm: at most 64 entries are allowed"},
        {"  - {artifact: /a, tp_size: 4, tp_rank: 4}", "tp_rank is from 0 to tp_size - 1"},
        {"  - {artifact: /a, tp_size: 65537, tp_rank: 0}", "tp_size: expected a whole number of at most 65536, got 65537"},
        {"  - {artifact: /a, tensors: []}", "tensors: expected a list"},
        {"  - {artifact: /a, tensors: x}", "tensors: expected a list"},
        {"  - /a", "an entry: expected a mapping"},
        {"  artifact: /a", "prewarm: expected a list"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct error error;
        assert_null(parse_prewarm(wrong[i][0], &error));
        if (!strstr(error.message, wrong[i][1]))
            fail_msg("%s: %s", wrong[i][0], error.message);
    }
}

static void at_most_64_artifacts_are_prewarmed_of_256_patterns_each(void **state)
{
    (void)state;
    for (int more = 0; more < 2; more++) {
        struct error error;
        char *text;
        size_t length;
        FILE *out = open_memstream(&text, &length);
        for (int i = 0; i < 64 + more; i++)
            fprintf(out, "  - {artifact: /a%d, tp_size: 65536, tp_rank: 65535}\n", i);
        fclose(out);
        struct config *config = parse_prewarm(text, &error);
        assert_int_equal(config != NULL, !more);
        config_destroy(config);
        free(text);
        out = open_memstream(&text, &length);
        fputs("  - {artifact: /a, tensors: [", out);
        for (int i = 0; i < 256 + more; i++)
            fprintf(out, "%st%d", i ? ", " : "", i);
        fputs("]}", out);
        fclose(out);
        config = parse_prewarm(text, &error);
        assert_int_equal(config != NULL, !more);
        config_destroy(config);
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prewarm_is_a_list_of_artifacts_with_options),
        cmocka_unit_test(a_size_without_a_rank_is_every_rank),
        cmocka_unit_test(wrong_entries_of_prewarm_are_refused_with_their_line),
        cmocka_unit_test(at_most_64_artifacts_are_prewarmed_of_256_patterns_each),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
