/* The configuration as YAML: every key with its effective value (--print-config), and the sample with every default; the
 * schema as Markdown and as a manual page.
 *
 * The comment behind a printed value says where it came from without naming a line: what is printed is itself a good
 * configuration and prints the same again, so "default" means equal to the default, wherever it was written. */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "config/config.h"
#include "config/config_value.h"
#include "config/schema.h"

enum { SAMPLE_COLUMNS = 110 };

static int depth_of(const char *path)
{
    int depth = 0;
    for (; *path; path++)
        depth += *path == '.';
    return depth;
}

/* Opens the sections of `path` that the key before it was not in. */
static void print_section_heads(const char *path, const char *before, FILE *out)
{
    int depth = 0;
    for (const char *at = path, *dot; (dot = strchr(at, '.')) != NULL; at = dot + 1, depth++) {
        size_t n = (size_t)(dot - path) + 1;
        if (before && strncmp(path, before, n) == 0)
            continue;
        fprintf(out, "%*s%.*s:\n", 2 * depth, "", (int)(dot - at), at);
        before = NULL; /* whatever lies deeper is new as well */
    }
}

/* users: what counts without a file; NULL = the defaults. */
static void print_origin(const struct config_key *key, const struct config *config, const struct config *users, FILE *out)
{
    char derived[CONFIG_DERIVED_CHARS];
    config_path_derive_handoff(config->server.socket_path, derived);
    if (strcmp(key->path, "server.handoff_socket_path") == 0 && strcmp(derived, config->server.handoff_socket_path) == 0) {
        fputs("  # derived from server.socket_path\n", out);
        return;
    }
    if (config_value_is_equal(key, config, config_defaults())) {
        fputs("  # default\n", out);
        return;
    }
    const char *drop_in = config_drop_in_of(config, key);
    if (drop_in)
        fprintf(out, "  # from %s", text_show(drop_in));
    else
        fputs(users && config_value_is_equal(key, config, users) ? "  # of --user" : "  # from the configuration file", out);
    if (!key->may_be_empty) {
        fputs("; default ", out);
        config_value_print(key, config_defaults(), out);
    }
    fputc('\n', out);
}

void config_print(const struct config *config, const struct config *users, FILE *out)
{
    const char *before = NULL;
    for (size_t i = 0; i < schema_n_keys; i++) {
        const struct config_key *key = &schema_keys[i];
        print_section_heads(key->path, before, out);
        fprintf(out, "%*s%s: ", 2 * depth_of(key->path), "", schema_last_name(key));
        config_value_print(key, config, out);
        print_origin(key, config, users, out);
        before = key->path;
    }
}

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

void config_print_sample(FILE *out)
{
    const char *before = NULL;
    char expected[CONFIG_EXPECTED_CHARS];
    fputs(sample_head, out);
    for (size_t i = 0; i < schema_n_keys; i++) {
        const struct config_key *key = &schema_keys[i];
        int indent = 2 * depth_of(key->path);
        fputc('\n', out);
        print_section_heads(key->path, before, out);
        print_comment(key->help, indent, out);
        fprintf(out, "%*s# Takes %s.", indent, "", config_value_expected(key, expected));
        if (key->sample) {
            fputs(" Default: ", out);
            config_value_print_default(key, out);
        }
        fprintf(out, "\n%*s%s: ", indent, "", schema_last_name(key));
        if (key->sample)
            fputs(key->sample, out);
        else
            config_value_print_default(key, out);
        fputc('\n', out);
        before = key->path;
    }
}

/* --- documents: tests/golden/test_config_docs.c fails when one in the tree no longer matches the schema --- */

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

void config_print_markdown(FILE *out)
{
    char expected[CONFIG_EXPECTED_CHARS];
    fputs(markdown_head, out);
    for (size_t i = 0; i < schema_n_keys; i++) {
        const struct config_key *key = &schema_keys[i];
        if (begins_section(i))
            fprintf(out, "\n## `%.*s`\n\n|key|default|takes|reload|effect|\n|---|---|---|---|---|\n", section_chars(key),
                    key->path);
        fprintf(out, "|`%s`|`", schema_last_name(key));
        config_value_print_default(key, out);
        const char *example = strstr(config_value_expected(key, expected), ", such as");
        fprintf(out, "`|%.*s|%s|%s|\n", example ? (int)(example - expected) : (int)strlen(expected), expected,
                key->reloadable ? "yes" : "", key->help);
    }
}

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

void config_print_man(FILE *out)
{
    char expected[CONFIG_EXPECTED_CHARS];
    fputs(man_head, out);
    for (size_t i = 0; i < schema_n_keys; i++) {
        const struct config_key *key = &schema_keys[i];
        if (begins_section(i))
            fprintf(out, ".SS %.*s\n", section_chars(key), key->path);
        fprintf(out, ".TP\n\\fB%s\\fR: ", schema_last_name(key));
        config_value_print_default(key, out);
        fputs(key->reloadable ? " (reload)\n" : "\n", out);
        print_roff(key->help, out);
        fputs("\n.br\nTakes ", out);
        print_roff(config_value_expected(key, expected), out);
        fputs(".\n", out);
    }
    fputs(man_tail, out);
}
