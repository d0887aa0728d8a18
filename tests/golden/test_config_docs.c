/* The documents in the tree say what the schema says. UPDATE=1 build/tests/golden/test_config_docs writes them anew. */
#include "tests/support/unit.h"

#include "config/config.h"
#include "config/schema.h"
#include "source/store.h"

static char *generated(void (*print)(FILE *out))
{
    static char *text; /* the compiler takes the stream's for a pointer that outlives it */
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

TEST(the_reference_matches_the_schema)
{
    matches("docs/config.md", config_print_markdown);
}

/* What a reader writes under the heading is what the parser takes. */
TEST(every_key_stands_under_the_section_that_it_is_in)
{
    char *markdown = generated(config_print_markdown), heading[256], row[256];
    for (size_t i = 0; i < schema_n_keys; i++) {
        const char *name = schema_last_name(&schema_keys[i]);
        snprintf(heading, sizeof heading, "\n## `%.*s`\n", (int)(name - schema_keys[i].path - 1), schema_keys[i].path);
        snprintf(row, sizeof row, "\n|`%s`|", name);
        const char *section = strstr(markdown, heading), *end = section ? strstr(section + 1, "\n## ") : NULL;
        const char *found = section ? strstr(section, row) : NULL;
        if (!found || (end && found > end))
            fail_msg("%s is not listed under its section", schema_keys[i].path);
    }
    free(markdown);
}

TEST(the_manual_page_matches_the_schema)
{
    matches("docs/man/store_daemon_config.yaml.5", config_print_man);
}

TEST(the_sample_matches_the_schema)
{
    matches("config/store_daemon_config.yaml", config_print_sample);
}

static void note_key(void *data, const struct config_change *change)
{
    if (strcmp(change->key, "server.metrics_address") != 0)
        *(const char **)data = change->key;
}

TEST(the_sample_is_a_good_configuration_of_defaults_and_serves_metrics_on_loopback)
{
    struct error error;
    const char *differing = NULL;
    const struct config *config = config_load(&(struct config_source){.path = "config/store_daemon_config.yaml"}, &error);
    if (!config)
        fail_msg("%s", error.message);
    config_compare(config_defaults(), config, note_key, &differing);
    assert_null(differing);
    assert_string_equal(config->server.metrics_address, "127.0.0.1:9464");
    config_destroy(config);
}

static int set_up_all_tests(void **state)
{
    store_find(""); /* links the stores, whose sections are a part of the configuration */
    (void)state;
    return 0;
}

TESTS_IN(set_up_all_tests, NULL)
