/* One log line as text; see log_line.h. */
#include "observe/log_line.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/json.h"
#include "base/memory.h"
#include "base/text.h"

enum { LOG_VALUE_MAX_BYTES = 8192, TIME_CHARS = 32, N_HEAD = 3 }; /* one value cannot fill the disk */

static const char *const level_names[] = {"trace", "debug", "info", "warn", "error"};

static const char *format_time(char out[TIME_CHARS])
{
    struct timespec now;
    struct tm utc;
    char seconds[24];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    strftime(seconds, sizeof seconds, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(out, TIME_CHARS, "%s.%03dZ", seconds, (int)(now.tv_nsec / 1000000));
    return out;
}

/* Up to three decimals and no trailing zeros: "12.3"; very small and very large numbers with an exponent. */
static void format_real(double value, char *out, size_t room)
{
    double size = fabs(value);
    if (size != 0 && (!(size < 1e15) || size < 0.001)) {
        snprintf(out, room, "%.6g", value);
        return;
    }
    size_t length = (size_t)snprintf(out, room, "%.3f", value);
    while (out[length - 1] == '0')
        out[--length] = '\0';
    if (out[length - 1] == '.')
        out[length - 1] = '\0';
}

static bool needs_quotes(const char *value, size_t length)
{
    for (size_t at = 0; at < length;) {
        char shown[TEXT_ESCAPE_CHARS];
        size_t n = text_escape_char(value + at, length - at, shown);
        if (strlen(shown) != n || strchr(" \"=", value[at]))
            return true;
        at += n;
    }
    return length == 0;
}

/* A value from outside is cut so that one line cannot fill the disk. */
static size_t shown_bytes(const struct log_field *field)
{
    return field->text ? strnlen(field->text, LOG_VALUE_MAX_BYTES) : 0;
}

static void print_text(FILE *out, const char *value, size_t length)
{
    if (!needs_quotes(value, length)) {
        fwrite(value, 1, length, out);
        return;
    }
    fputc('"', out);
    for (size_t at = 0; at < length;) {
        char shown[TEXT_ESCAPE_CHARS];
        bool is_quote = value[at] == '"';
        at += text_escape_char(value + at, length - at, shown);
        fputs(is_quote ? "\\\"" : shown, out);
    }
    fputc('"', out);
}

static void print_field(FILE *out, const struct log_field *field)
{
    char real[64];
    fprintf(out, "%s=", field->key);
    switch (field->kind) {
    case LOG_FIELD_TEXT:
        print_text(out, field->text, shown_bytes(field));
        break;
    case LOG_FIELD_U64:
        fprintf(out, "%llu", (unsigned long long)field->number);
        break;
    case LOG_FIELD_DOUBLE:
        format_real(field->real, real, sizeof real);
        fputs(real, out);
        break;
    case LOG_FIELD_BOOL:
        fputs(field->number ? "true" : "false", out);
        break;
    }
}

static void print_json_field(struct json_writer *json, const struct log_field *field)
{
    json_write_key(json, field->key);
    switch (field->kind) {
    case LOG_FIELD_TEXT:
        json_write_string(json, field->text, shown_bytes(field));
        break;
    case LOG_FIELD_U64:
        json_write_u64(json, field->number);
        break;
    case LOG_FIELD_DOUBLE:
        json_write_double(json, field->real);
        break;
    case LOG_FIELD_BOOL:
        json_write_bool(json, field->number != 0);
        break;
    }
}

static void print_json(FILE *out, const struct log_field *fields, size_t n_fields)
{
    struct json_writer json = {0};
    json_write_open(&json, '{');
    for (size_t i = 0; i < n_fields; i++)
        print_json_field(&json, &fields[i]);
    json_write_close(&json, '}');
    fputs(json.text, out);
    free(json.text);
}

static void print_logfmt(FILE *out, const struct log_field *fields, size_t n_fields)
{
    for (size_t i = 0; i < n_fields; i++) {
        fputs(i ? " " : "", out);
        print_field(out, &fields[i]);
    }
}

char *log_line_format(struct log_form form, enum log_level level, const char *event, const struct log_field *fields,
                      size_t n_fields, size_t *length)
{
    static const int priorities[] = {7, 7, 6, 4, 3}; /* as in syslog(3), by level */
    size_t n_skipped = form.is_for_journal && form.format == LOG_LOGFMT;
    char time[TIME_CHARS], *line = NULL;
    struct log_field *all = memory_alloc_array(N_HEAD + n_fields, sizeof *all);
    all[0] = LOG_TEXT("time", format_time(time));
    all[1] = LOG_TEXT("level", level_names[level]);
    all[2] = LOG_TEXT("event", event);
    for (size_t i = 0; i < n_fields; i++)
        all[N_HEAD + i] = fields[i];
    FILE *out = open_memstream(&line, length);
    if (!out)
        abort();
    if (form.is_for_journal)
        fprintf(out, "<%d>", priorities[level]);
    (form.format == LOG_JSON ? print_json : print_logfmt)(out, all + n_skipped, N_HEAD + n_fields - n_skipped);
    fputc('\n', out);
    fclose(out);
    free(all);
    return line;
}
