/* The documents in the tree say what the schema says. UPDATE=1 build/tests/golden/test_config_docs writes them anew. */
#include "tests/support/unit.h"

#include "config/config.h"
#include "config/config_value.h"
#include "config/schema.h"
#include "source/store.h"

enum { SAMPLE_COLUMNS = 110 };

static void print_default(const struct config_key *key, FILE *out)
{
    if (*key->fallback || schema_is_list(key))
        config_value_print(key, config_defaults(), out);
    else
        fputs("\"\"", out);
}

/* --- config/store_daemon_config.yaml --- */

/* The text as comment lines of limited width. */
static void print_comment(const char *text, int indent, FILE *out)
{
    int column = 0;
    while (*text) {
        int n = (int)strcspn(text, " ");
        if (column == 0 || column + 1 + n > SAMPLE_COLUMNS) {
            fprintf(out, "%s%*s#", column ? "\n" : "", indent, "");
            column = indent + 1;
        }
        column += fprintf(out, " %.*s", n, text);
        text += n + (int)strspn(text + n, " ");
    }
    fputc('\n', out);
}

static const char sample_head[] =
    "# Configuration of tensorcastd. Every key is here with its default, or names it; all may be left out. Reference: "
    "store_daemon_config.yaml(5).\n"
    "# Sizes: 64MiB, 8GB, 1.5GiB (powers of 1024). Durations: 250ms, 15s, 10m, 1h. Zero is zero. Written by `make docs`.\n";

static void print_sample(FILE *out)
{
    const char *before = NULL;
    char expected[CONFIG_EXPECTED_CHARS];
    fputs(sample_head, out);
    for (size_t i = 0; i < schema_n_keys; i++) {
        const struct config_key *key = &schema_keys[i];
        fputc('\n', out);
        int indent = 2 * config_print_heads(key->path, before, out);
        print_comment(key->help, indent, out);
        fprintf(out, "%*s# Takes %s.", indent, "", config_value_expected(key, expected));
        if (key->sample) {
            fputs(" Default: ", out);
            print_default(key, out);
        }
        fprintf(out, "\n%*s%s: ", indent, "", schema_last_name(key));
        if (key->sample)
            fputs(key->sample, out);
        else
            print_default(key, out);
        fputc('\n', out);
        before = key->path;
    }
}

/* --- docs/config.md --- */

static int section_chars(const struct config_key *key)
{
    return schema_last_name(key) == key->path ? (int)strlen(key->path) : (int)(schema_last_name(key) - key->path - 1);
}

/* Not that of the key before: "sources" is another one than "sources.disk", although one begins with the other. */
static bool begins_section(size_t i)
{
    int n = section_chars(&schema_keys[i]);
    return i == 0 || n != section_chars(&schema_keys[i - 1]) ||
           strncmp(schema_keys[i].path, schema_keys[i - 1].path, (size_t)n) != 0;
}

static const char markdown_head[] =
    "# Configuration\n"
    "\n"
    "<!-- Written by `make docs` from config/schema.c; edit that. -->\n"
    "\n"
    "This page lists every key of the configuration: default, range, reload, meaning.\n"
    "\n"
    "```yaml\n"
    "sources: {disk: {trusted_roots: [/models]}}\n"
    "memory: {host_budget: 64GiB}\n"
    "```\n"
    "\n"
    "```\n"
    "tensorcastd -c FILE --check-config     # the first mistake with file, line, column and key; starts nothing\n"
    "tensorcastd -c FILE --print-config     # every key with its effective value, as YAML that prints the same again\n"
    "```\n"
    "\n"
    "- `-c` names one YAML mapping, else `/etc/tensorcast/store_daemon_config.yaml` if it exists. Every key may be left "
    "out. "
    "`--user` has other defaults ([operations.md](operations.md#without-root)).\n"
    "- **Sizes** are a number and a unit: `4096`, `64MiB`, `8GB`, `1.5GiB`. All units are powers of 1024 in both spellings, "
    "upper or lower case. `_` may separate digits.\n"
    "- **Durations** carry a unit, `ms`, `s`, `m` or `h`: `250ms`, `1.5s`, `10m`. Only `0` may stand alone.\n"
    "- **Zero is zero**, never \"the default\". `auto` means \"choose for me\"; other such values say so below.\n"
    "- These are refused: unknown keys, keys given twice, values of the wrong kind or out of range, anchors, aliases, tags, "
    "tabs "
    "as indentation, a second document.\n"
    "- `SIGHUP` reads the file again. Keys marked **reload** take effect. The log names changes of others, which wait for a "
    "restart. A file with a mistake changes nothing.\n";

static void print_markdown(FILE *out)
{
    char expected[CONFIG_EXPECTED_CHARS];
    fputs(markdown_head, out);
    for (size_t i = 0; i < schema_n_keys; i++) {
        const struct config_key *key = &schema_keys[i];
        if (begins_section(i))
            fprintf(out, "\n## `%.*s`\n\n|key|default|takes|reload|effect|\n|---|---|---|---|---|\n", section_chars(key),
                    key->path);
        fprintf(out, "|`%s`|`", schema_last_name(key));
        print_default(key, out);
        const char *example = strstr(config_value_expected(key, expected), ", such as");
        fprintf(out, "`|%.*s|%s|%s|\n", example ? (int)(example - expected) : (int)strlen(expected), expected,
                key->reloadable ? "yes" : "", key->help);
    }
}

/* --- docs/man/store_daemon_config.yaml.5 --- */

static const char man_head[] =
    ".\\\" Written by `make docs` from config/schema.c; edit that.\n"
    ".TH STORE_DAEMON_CONFIG.YAML 5 \"\" \"tensorcast\" \"File formats\"\n"
    ".SH NAME\n"
    "store_daemon_config.yaml \\- configuration of tensorcastd\n"
    ".SH DESCRIPTION\n"
    ".BR tensorcastd (8)\n"
    "reads one YAML mapping, named with\n"
    ".BR \\-c ,\n"
    "else the file below when it is there.\n"
    "Every key may be left out; an empty file is a good configuration.\n"
    ".B \\-\\-check\\-config\n"
    "reports the first mistake with file, line, column and key, and starts nothing;\n"
    ".B \\-\\-print\\-config\n"
    "prints every key with its effective value.\n"
    ".PP\n"
    "Sizes are a number and a unit: 4096, 64MiB, 8GB, 1.5GiB. All units are powers of 1024 in both spellings.\n"
    "Durations carry a unit, ms, s, m or h. Zero is zero, never \\(lqthe default\\(rq.\n"
    "Unknown keys, keys given twice, values of the wrong kind or out of range, anchors, aliases, tags, tabs as indentation\n"
    "and a second document are refused.\n"
    ".PP\n"
    "SIGHUP reads the file again. Keys marked (reload) take effect; changes of others are named in the log and wait for a\n"
    "restart. A file with a mistake changes nothing.\n"
    ".SH KEYS\n";

static const char man_tail[] = ".SH EXAMPLE\n"
                               ".nf\n"
                               ".RS\n"
                               "sources:\n"
                               "  disk:\n"
                               "    trusted_roots: [/models]\n"
                               "memory:\n"
                               "  host_budget: 64GiB\n"
                               ".RE\n"
                               ".fi\n"
                               ".SH FILES\n"
                               ".I /etc/tensorcast/store_daemon_config.yaml\n"
                               ".SH SEE ALSO\n"
                               ".BR tensorcastd (8),\n"
                               ".BR tensorcast (1)\n";

/* Text for roff: hyphens that must stay ASCII, backslashes, and no control line by accident. */
static void print_roff(const char *text, FILE *out)
{
    if (*text == '.' || *text == '\'')
        fputs("\\&", out);
    for (; *text; text++) {
        if (*text == '-' || *text == '\\')
            fputc('\\', out);
        fputs(*text == '\\' ? "e" : (const char[]){*text, '\0'}, out);
    }
}

static void print_man(FILE *out)
{
    char expected[CONFIG_EXPECTED_CHARS];
    fputs(man_head, out);
    for (size_t i = 0; i < schema_n_keys; i++) {
        const struct config_key *key = &schema_keys[i];
        if (begins_section(i))
            fprintf(out, ".SS %.*s\n", section_chars(key), key->path);
        fprintf(out, ".TP\n\\fB%s\\fR: ", schema_last_name(key));
        print_default(key, out);
        fputs(key->reloadable ? " (reload)\n" : "\n", out);
        print_roff(key->help, out);
        fputs("\n.br\nTakes ", out);
        print_roff(config_value_expected(key, expected), out);
        fputs(".\n", out);
    }
    fputs(man_tail, out);
}

/* --- the files in the tree --- */

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
    matches("docs/config.md", print_markdown);
}

/* What a reader writes under the heading is what the parser takes. */
TEST(every_key_stands_under_the_section_that_it_is_in)
{
    char *markdown = generated(print_markdown), heading[256], row[256];
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
    matches("docs/man/store_daemon_config.yaml.5", print_man);
}

TEST(the_sample_matches_the_schema)
{
    matches("config/store_daemon_config.yaml", print_sample);
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
