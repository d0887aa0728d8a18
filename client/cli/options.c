#include "options.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"

#define MAX_NUMBER 1000000000000000ull
#define MAX_TIME_MS 1000000000000ull /* 32 years: whatever is added to it still is a time */

const char *option_shown(const char *value)
{
    static _Thread_local char text[TEXT_NAME_CHARS];
    return text_escape(value, strlen(value), text);
}

/* --- values --- */

bool option_parse_time(const char *value, uint64_t *duration_ms)
{
    char *end;
    if (text_parse_duration_ms(value, duration_ms) == 0)
        return *duration_ms <= MAX_TIME_MS;
    if (*value < '0' || *value > '9')
        return false;
    double seconds = strtod(value, &end);
    if (*end || strspn(value, "0123456789.") != strlen(value) || seconds > MAX_TIME_MS / 1000.0)
        return false;
    *duration_ms = (uint64_t)ceil(seconds * 1000);
    return true;
}

static bool parse_number(const char *value, size_t max_digits, uint64_t *number)
{
    size_t length = strlen(value);
    if (!length || length > max_digits || strspn(value, "0123456789") != length)
        return false;
    *number = strtoull(value, NULL, 10);
    return *number <= MAX_NUMBER;
}

static bool parse_real(const char *value, double *number)
{
    if (!*value || strlen(value) > 30 || strspn(value, "0123456789.") != strlen(value))
        return false;
    char *end;
    *number = strtod(value, &end);
    return !*end;
}

int option_take_choice(const struct option_row *row, const char *value, int *choice, struct error *error)
{
    char list[256] = "";
    for (*choice = 0; row->choices[*choice]; ++*choice) {
        if (strcmp(row->choices[*choice], value) == 0)
            return 0;
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "", row->choices[*choice]);
    }
    return usage_error(error, "--%s is one of %s, not '%s'", row->name, list, option_shown(value));
}

static int take_value(const struct option_row *row, const char *value, void *args, void *data, struct error *error)
{
    void *place = (char *)args + row->offset;
    const char *is_what = "a whole number from 0";
    uint64_t number;
    switch (row->kind) {
    case OPTION_FLAG:
        *(bool *)place = true;
        return 0;
    case OPTION_TEXT:
        *(const char **)place = value;
        return *value
                   ? 0
                   : usage_error(error, "--%s needs a value that is not empty: --%s %s", row->name, row->name, row->value);
    case OPTION_DURATION:
        if (option_parse_time(value, place))
            return 0;
        is_what = "a time such as 1.5, 30s or 250ms";
        break;
    case OPTION_COUNT:
        if (parse_number(value, 9, &number)) {
            *(int64_t *)place = (int64_t)number;
            return 0;
        }
        break;
    case OPTION_NUMBER:
        if (parse_number(value, 16, place))
            return 0;
        break;
    case OPTION_REAL:
        if (parse_real(value, place))
            return 0;
        is_what = "a number";
        break;
    case OPTION_CHOICE:
        return option_take_choice(row, value, place, error);
    case OPTION_CALL:
        return row->take(data, value, error);
    }
    return usage_error(error, "--%s is %s, not '%s'", row->name, is_what, option_shown(value));
}

/* --- words --- */

static int fail_unknown(const struct option_table *table, const char *name, size_t length, struct error *error)
{
    char escaped[TEXT_NAME_CHARS], *asked = memory_print("%.*s", (int)length, name);
    const char **names = memory_alloc_array(table->n_rows, sizeof *names);
    for (size_t i = 0; i < table->n_rows; i++)
        names[i] = table->rows[i].name;
    const char *nearest = text_nearest(asked, names, table->n_rows);
    free(asked);
    free(names);
    return usage_error(error, "there is no option --%s%s%s%s", text_escape(name, length, escaped),
                       nearest ? "; did you mean --" : "", nearest ? nearest : "", nearest ? "?" : "");
}

const struct option_row *options_take(const struct option_table *table, int n_words, char *const *words, int *at, void *args,
                                      void *data, struct error *error)
{
    const char *name = words[*at] + 2, *equals = strchr(name, '='), *value = equals ? equals + 1 : NULL;
    size_t length = equals ? (size_t)(equals - name) : strlen(name);
    const struct option_row *row = NULL;
    for (size_t i = 0; i < table->n_rows; i++)
        if (strlen(table->rows[i].name) == length && memcmp(table->rows[i].name, name, length) == 0)
            row = &table->rows[i];
    int failed = 0;
    if (!row)
        failed = fail_unknown(table, name, length, error);
    else if (row->kind == OPTION_FLAG && value)
        failed = usage_error(error, "--%s takes no value", row->name);
    else if (row->kind != OPTION_FLAG && !value && *at + 1 == n_words)
        failed = usage_error(error, "--%s needs a value: --%s %s", row->name, row->name, row->value);
    if (failed)
        return NULL;
    if (row->kind != OPTION_FLAG && !value)
        value = words[++*at];
    return take_value(row, value, args, data, error) < 0 ? NULL : row;
}

void options_print_text(const char *text, int used, int column, FILE *out)
{
    while (*text) {
        int length = (int)strcspn(text, " ");
        bool is_first = used <= column;
        if (!is_first && used + 1 + length > OPTIONS_LINE_COLUMNS) {
            fputc('\n', out);
            used = 0;
            is_first = true;
        }
        used += is_first ? fprintf(out, "%*s%.*s", column - used, "", length, text) : fprintf(out, " %.*s", length, text);
        text += length + (text[length] == ' ');
    }
    fputc('\n', out);
}

void options_print(const struct option_table *table, int group, const char *heading, FILE *out)
{
    bool has_heading = false;
    for (size_t i = 0; i < table->n_rows; i++) {
        const struct option_row *row = &table->rows[i];
        if (!(row->groups & group))
            continue;
        if (!has_heading)
            fprintf(out, "\n%s:\n", heading);
        has_heading = true;
        int used = fprintf(out, "  --%s%s%s", row->name, row->value ? " " : "", row->value ? row->value : "");
        if (used + 2 > OPTIONS_HELP_COLUMN)
            fputc('\n', out);
        options_print_text(row->help, used + 2 > OPTIONS_HELP_COLUMN ? 0 : used, OPTIONS_HELP_COLUMN, out);
    }
}
