/* The documents in the tree say what the schema says. UPDATE=1 build/tests/golden/test_config_docs writes them anew. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"

#include <cmocka.h> /* last: its macro fail() would hide ours */

static char *generated(void (*print)(FILE *out))
{
    char *text;
    size_t length;
    FILE *out = open_memstream(&text, &length);
    print(out);
    fclose(out);
    return text;
}

static void matches(const char *path, void (*print)(FILE *out))
{
    char *expected = generated(print), *found = calloc(1, strlen(expected) + 2);
    FILE *file = fopen(path, getenv("UPDATE") ? "w+" : "r");
    if (!file)
        fail_msg("%s cannot be opened; run from the project's root", path);
    if (getenv("UPDATE"))
        fputs(expected, file);
    rewind(file);
    size_t length = fread(found, 1, strlen(expected) + 1, file);
    fclose(file);
    if (length != strlen(expected) || strcmp(found, expected) != 0)
        fail_msg("%s does not match config/schema.c; run UPDATE=1 build/tests/golden/test_config_docs and read the change",
                 path);
    free(expected);
    free(found);
}

static void the_reference_matches_the_schema(void **state)
{
    (void)state;
    matches("docs/config.md", config_print_markdown);
}

static void the_manual_page_matches_the_schema(void **state)
{
    (void)state;
    matches("docs/man/store_daemon_config.yaml.5", config_print_man);
}

static void the_sample_matches_the_schema(void **state)
{
    (void)state;
    matches("config/store_daemon_config.yaml", config_print_sample);
}

static void note_key(void *data, const char *key, bool reloadable)
{
    (void)reloadable;
    *(const char **)data = key;
}

static void the_sample_is_a_good_configuration_of_defaults(void **state)
{
    struct error error;
    const char *differing = NULL;
    (void)state;
    const struct config *config = config_load("config/store_daemon_config.yaml", &error);
    if (!config)
        fail_msg("%s", error.message);
    config_compare(config_defaults(), config, note_key, &differing);
    assert_null(differing);
    config_destroy(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_reference_matches_the_schema),
        cmocka_unit_test(the_manual_page_matches_the_schema),
        cmocka_unit_test(the_sample_matches_the_schema),
        cmocka_unit_test(the_sample_is_a_good_configuration_of_defaults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
