/* The configuration as YAML, for --print-config: every key with its effective value.
 *
 * The comment behind a printed value says where it came from without naming a line: what is printed is itself a good
 * configuration and prints the same again, so "default" means equal to the default, wherever it was written. */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "config/config.h"
#include "config/config_value.h"
#include "config/schema.h"

int config_print_heads(const char *path, const char *before, FILE *out)
{
    int depth = 0;
    for (const char *at = path, *dot; (dot = strchr(at, '.')) != NULL; at = dot + 1, depth++) {
        size_t n = (size_t)(dot - path) + 1;
        if (before && strncmp(path, before, n) == 0)
            continue;
        fprintf(out, "%*s%.*s:\n", 2 * depth, "", (int)(dot - at), at);
        before = NULL; /* whatever lies deeper is new as well */
    }
    return depth;
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
        int depth = config_print_heads(key->path, before, out);
        fprintf(out, "%*s%s: ", 2 * depth, "", schema_last_name(key));
        config_value_print(key, config, out);
        print_origin(key, config, users, out);
        before = key->path;
    }
}
