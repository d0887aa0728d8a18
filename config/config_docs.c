/* The schema as documents: docs/config.md and the manual page. Both are in the tree; tests/golden/test_config_docs.c fails
 * when one of them no longer matches the schema. */
#include <stdio.h>
#include <string.h>

#include "config/config.h"
#include "config/config_value.h"
#include "config/schema.h"

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
    "This page lists every key of the daemon's configuration: default, range, whether a reload changes it, and what it "
    "does.\n"
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
        fprintf(out, "`|%s|%s|%s|\n", config_value_expected(key, expected), key->reloadable ? "yes" : "", key->help);
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

static void print_man_key(const struct config_key *key, FILE *out)
{
    char expected[CONFIG_EXPECTED_CHARS];
    fprintf(out, ".TP\n\\fB%s\\fR: ", schema_last_name(key));
    config_value_print_default(key, out);
    fputs(key->reloadable ? " (reload)\n" : "\n", out);
    print_roff(key->help, out);
    fputs("\n.br\nTakes ", out);
    print_roff(config_value_expected(key, expected), out);
    fputs(".\n", out);
}

void config_print_man(FILE *out)
{
    fputs(man_head, out);
    for (size_t i = 0; i < schema_n_keys; i++) {
        if (begins_section(i))
            fprintf(out, ".SS %.*s\n", section_chars(&schema_keys[i]), schema_keys[i].path);
        print_man_key(&schema_keys[i], out);
    }
    fputs(man_tail, out);
}
