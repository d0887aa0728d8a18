/* The configuration as YAML: every key with its effective value (--print-config), and the sample with every default.
 *
 * The comment behind a printed value says where it came from without naming a line: what is printed is itself a good
 * configuration and prints the same again, so "default" means equal to the default, wherever it was written. */
#include <stdio.h>
#include <string.h>

#include "config/config.h"
#include "config/config_path.h"
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

static bool is_derived(const struct config_key *key, const struct config *config)
{
    char derived[CONFIG_DERIVED_CHARS];
    config_path_derive_handoff(config->server.socket_path, derived);
    return strcmp(key->path, "server.handoff_socket_path") == 0 && strcmp(derived, config->server.handoff_socket_path) == 0;
}

/* users: what counts without a file; NULL = the defaults. */
static void print_origin(const struct config_key *key, const struct config *config, const struct config *users, FILE *out)
{
    if (is_derived(key, config)) {
        fputs("  # derived from server.socket_path\n", out);
        return;
    }
    if (config_value_is_equal(key, config, config_defaults())) {
        fputs("  # default\n", out);
        return;
    }
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
    "# Configuration of tensorcastd. Every key is here with its default; all may be left out. Reference: "
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
        fprintf(out, "%*s# Takes %s.\n%*s%s: ", indent, "", config_value_expected(key, expected), indent, "",
                schema_last_name(key));
        config_value_print_default(key, out);
        fputc('\n', out);
        before = key->path;
    }
}
