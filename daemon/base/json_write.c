/* The JSON writer of json.h. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "base/utf8.h"

bool json_write_reserve(struct json_writer *writer, size_t bytes)
{
    if (writer->has_failed || bytes > SIZE_MAX / 4 || writer->length > SIZE_MAX / 4)
        return false;
    size_t needed = writer->length + bytes + 1, capacity = writer->capacity ? writer->capacity : 256;
    if (needed <= writer->capacity)
        return true;
    while (capacity < needed)
        capacity *= 2;
    char *grown = realloc(writer->text, capacity);
    if (!grown)
        return false;
    writer->text = grown;
    writer->capacity = capacity;
    return true;
}

static void append_text(struct json_writer *writer, const char *text, size_t length)
{
    if (!writer->has_failed && !json_write_reserve(writer, length)) {
        if (!writer->can_fail)
            abort();
        free(writer->text);
        *writer = (struct json_writer){.length = writer->length + length + 1, .can_fail = true, .has_failed = true};
    }
    if (writer->has_failed)
        return;
    memcpy(writer->text + writer->length, text, length);
    writer->length += length;
    writer->text[writer->length] = '\0';
}

__attribute__((format(printf, 2, 3))) static void value(struct json_writer *writer, const char *format, ...)
{
    char text[64];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    json_write_json(writer, text, (size_t)length);
}

void json_write_open(struct json_writer *writer, char bracket)
{
    json_write_json(writer, &bracket, 1);
    writer->need_comma = false;
}

void json_write_close(struct json_writer *writer, char bracket)
{
    append_text(writer, &bracket, 1);
    writer->need_comma = true;
}

void json_write_json(struct json_writer *writer, const char *json, size_t length)
{
    append_text(writer, ",", writer->need_comma);
    append_text(writer, json, length);
    writer->need_comma = true;
}

void json_write_string(struct json_writer *writer, const char *text, size_t length)
{
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    json_write_json(writer, "\"", 1);
    for (size_t at = 0, n; at < length; at += n) {
        size_t plain = 0; /* how many bytes from here need no escape */
        while ((n = utf8_sequence(text + at + plain, length - at - plain)) != 0) {
            const char *next = text + at + plain;
            unsigned char c = (unsigned char)*next;
            if (c < 0x20 || c == '"' || c == '\\' ||
                (!writer->escapes_least && (c == 0x7F || (n > 1 && text_is_disruptive(next, n)))))
                break;
            plain += n;
        }
        append_text(writer, text + at, plain);
        at += plain;
        if (at == length)
            break;
        char escape[TEXT_ESCAPE_CHARS] = "\xEF\xBF\xBD"; /* for what is not UTF-8 */
        const char *found = text[at] ? strchr(from, text[at]) : NULL;
        if (n && found)
            snprintf(escape, sizeof escape, "\\%c", to[found - from]);
        else if (n > 1)
            text_escape_char(text + at, n, escape);
        else if (n)
            snprintf(escape, sizeof escape, "\\u%04x", (unsigned char)text[at]);
        append_text(writer, escape, strlen(escape));
        n = n ? n : 1;
    }
    append_text(writer, "\"", 1);
}

void json_write_key_bytes(struct json_writer *writer, const char *key, size_t length)
{
    json_write_string(writer, key, length);
    append_text(writer, ":", 1);
    writer->need_comma = false;
}

void json_write_u64(struct json_writer *writer, uint64_t number)
{
    value(writer, "%llu", (unsigned long long)number);
}

void json_write_i64(struct json_writer *writer, int64_t number)
{
    value(writer, "%lld", (long long)number);
}

void json_write_double(struct json_writer *writer, double number)
{
    value(writer, "%.6g", isfinite(number) ? number : 0.0);
}

void json_write_bool(struct json_writer *writer, bool truth)
{
    value(writer, "%s", truth ? "true" : "false");
}

void json_put_open(struct json_writer *writer, const char *key, char bracket)
{
    json_write_key(writer, key);
    json_write_open(writer, bracket);
}

void json_put_string(struct json_writer *writer, const char *key, const char *text, size_t length)
{
    json_write_key(writer, key);
    json_write_string(writer, text, length);
}

void json_put_text(struct json_writer *writer, const char *key, const char *text)
{
    json_write_key(writer, key);
    json_write_text(writer, text);
}

void json_put_text_or_null(struct json_writer *writer, const char *key, const char *text)
{
    json_write_key(writer, key);
    if (*text)
        json_write_text(writer, text);
    else
        value(writer, "null");
}

void json_put_u64(struct json_writer *writer, const char *key, uint64_t number)
{
    json_write_key(writer, key);
    json_write_u64(writer, number);
}

void json_put_double(struct json_writer *writer, const char *key, double number)
{
    json_write_key(writer, key);
    json_write_double(writer, number);
}

void json_put_bool(struct json_writer *writer, const char *key, bool truth)
{
    json_write_key(writer, key);
    json_write_bool(writer, truth);
}
