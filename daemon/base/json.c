/* The JSON reader; the writer is json_write.c. A string is scanned once to validate it and to find its end, and only when
 * it has escapes a second time to decode it into the arena. Once an error is set every function returns false. */
#include "base/json.h"

#include <endian.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "base/utf8.h"

bool json_string_equals(const struct json_string *string, const char *text)
{
    return strlen(text) == string->length && memcmp(string->text, text, string->length) == 0;
}

void json_init(struct json *json, const void *bytes, size_t count, struct arena *arena)
{
    memset(json, 0, sizeof *json);
    json->start = json->at = bytes;
    json->end = json->start + count;
    json->arena = arena;
}

bool json_ok(const struct json *json)
{
    return !json->error;
}

bool json_fail(struct json *json, const char *error)
{
    if (!json->error) {
        json->error = error;
        json->error_at = json->at;
    }
    return false;
}

const char *json_error(const struct json *json, char out[JSON_ERROR_CHARS])
{
    if (!json->error)
        return "no error";
    snprintf(out, JSON_ERROR_CHARS, "%s at byte %zu", json->error, (size_t)(json->error_at - json->start));
    return out;
}

/* Skips white space; false at the end of the input or after an error. */
static inline bool skip_space(struct json *json)
{
    if (json->error)
        return false;
    if (json->at < json->end && (unsigned char)*json->at > ' ') /* mostly */
        return true;
    while (json->at < json->end && (*json->at == ' ' || *json->at == '\n' || *json->at == '\r' || *json->at == '\t'))
        json->at++;
    return json->at < json->end;
}

static inline bool expect(struct json *json, char wanted, const char *error)
{
    if (!skip_space(json) || *json->at != wanted)
        return json_fail(json, error);
    json->at++;
    return true;
}

enum json_type json_peek(struct json *json)
{
    if (!skip_space(json))
        return JSON_INVALID;
    switch (*json->at) {
    case '{':
        return JSON_OBJECT;
    case '[':
        return JSON_ARRAY;
    case '"':
        return JSON_STRING;
    case 't':
        return JSON_TRUE;
    case 'f':
        return JSON_FALSE;
    case 'n':
        return JSON_NULL;
    case 'N':
    case 'I':
        return json->is_lenient ? JSON_NUMBER : JSON_INVALID;
    default:
        return *json->at == '-' || (*json->at >= '0' && *json->at <= '9') ? JSON_NUMBER : JSON_INVALID;
    }
}

/* --- containers --- */

static bool enter_container(struct json *json, char bracket, const char *error)
{
    if (!expect(json, bracket, error))
        return false;
    if (json->depth == JSON_MAX_DEPTH) {
        json->at--;
        return json_fail(json, "nested too deeply");
    }
    json->first[json->depth++] = true;
    return true;
}

/* Moves to the next element, or over the closing bracket (false). */
static inline bool next_element(struct json *json, char bracket, const char *error)
{
    if (!skip_space(json))
        return json_fail(json, error);
    bool *first = &json->first[json->depth - 1];
    if (*json->at == bracket) {
        json->at++;
        json->depth--;
        return false;
    }
    if (!*first && !expect(json, ',', error))
        return false;
    *first = false;
    return true;
}

bool json_begin_object(struct json *json)
{
    return enter_container(json, '{', "expected an object");
}

bool json_begin_array(struct json *json)
{
    return enter_container(json, '[', "expected an array");
}

bool json_next_key(struct json *json, struct json_string *key)
{
    if (!next_element(json, '}', "expected ',' or '}'"))
        return false;
    if (!skip_space(json) || *json->at != '"')
        return json_fail(json, "expected a key in double quotes");
    return json_take_string(json, key) && expect(json, ':', "expected ':'");
}

bool json_next_item(struct json *json)
{
    return next_element(json, ']', "expected ',' or ']'");
}

/* --- strings --- */

/* The code unit of the four digits at `at`, or -1. */
static int hex_unit(const char *at, const char *end)
{
    int unit = 0;
    if (end - at < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        int digit = text_hex_digit(at[i]);
        if (digit < 0)
            return -1;
        unit = unit << 4 | digit;
    }
    return unit;
}

/* `at` is behind "\u". Sets the code point and returns the bytes it took (4, or 10 for a surrogate pair), or 0. */
static size_t unicode_escape(const char *at, const char *end, bool is_lenient, uint32_t *code)
{
    int high = hex_unit(at, end);
    if (high < 0)
        return 0;
    bool is_surrogate = high >= 0xD800 && high <= 0xDFFF;
    *code = is_surrogate ? 0xFFFD : (uint32_t)high;
    if (!is_surrogate)
        return 4;
    int low = end - at >= 10 && at[4] == '\\' && at[5] == 'u' ? hex_unit(at + 6, end) : -1;
    if (high > 0xDBFF || low < 0xDC00 || low > 0xDFFF)
        return is_lenient ? 4 : 0;
    *code = 0x10000 + (((uint32_t)high & 0x3FF) << 10 | ((uint32_t)low & 0x3FF));
    return 10;
}

static inline char simple_escape(char c)
{
    static const char to[128] = {
        ['"'] = '"', ['\\'] = '\\', ['/'] = '/', ['b'] = '\b', ['f'] = '\f', ['n'] = '\n', ['r'] = '\r', ['t'] = '\t'};
    return c > 0 ? to[(unsigned char)c] : '\0';
}

/* Moves over characters that need no thought, eight at a time: a header is mostly names. Subtracting may borrow from the
 * byte above, but only behind a byte that stops us anyway: the lowest one that is marked does. */
static inline const char *skip_plain(const char *at, const char *end)
{
    const uint64_t ones = 0x0101010101010101u, high = 0x80 * ones;
    for (uint64_t word; end - at >= (ptrdiff_t)sizeof word; at += sizeof word) {
        memcpy(&word, at, sizeof word);
        word = le64toh(word);
        uint64_t quote = word ^ ones * '"', backslash = word ^ ones * '\\';
        uint64_t stops = (word | (word - ones * 0x20) | (quote - ones) | (backslash - ones)) & high;
        if (stops)
            return at + __builtin_ctzll(stops) / 8;
    }
    while (at < end && (signed char)*at >= 0x20 && *at != '"' && *at != '\\') /* ASCII */
        at++;
    return at;
}

/* Moves over a string with both quotes; `raw` is what stands between them. */
static bool scan_string(struct json *json, struct json_string *raw, bool *has_escapes)
{
    *has_escapes = false;
    if (!expect(json, '"', "expected a string"))
        return false;
    raw->text = json->at;
    for (;;) {
        json->at = skip_plain(json->at, json->end);
        if (json->at == json->end)
            return json_fail(json, "unterminated string");
        if (*json->at == '"')
            break;
        if ((unsigned char)*json->at < 0x20)
            return json_fail(json, "control character in a string");
        if (*json->at == '\\') {
            const char *at = json->at + 1;
            uint32_t code;
            bool is_simple = at < json->end && simple_escape(*at);
            if (!is_simple && (at == json->end || *at != 'u'))
                return json_fail(json, "unknown escape");
            size_t taken = is_simple ? 0 : unicode_escape(at + 1, json->end, json->is_lenient, &code);
            if (!is_simple && !taken)
                return json_fail(json, "broken \\u escape or lone surrogate");
            *has_escapes = true;
            json->at += 2 + taken;
            continue;
        }
        size_t n = utf8_sequence(json->at, (size_t)(json->end - json->at));
        json->has_bad_utf8 = n == 0;
        if (!n)
            return json_fail(json, "invalid UTF-8");
        json->at += n;
    }
    raw->length = (size_t)(json->at++ - raw->text);
    return true;
}

static char *put_code_point(char *out, uint32_t code)
{
    if (code < 0x80) {
        *out++ = (char)code;
    } else if (code < 0x800) {
        *out++ = (char)(0xC0 | code >> 6);
        *out++ = (char)(0x80 | (code & 0x3F));
    } else if (code < 0x10000) {
        *out++ = (char)(0xE0 | code >> 12);
        *out++ = (char)(0x80 | (code >> 6 & 0x3F));
        *out++ = (char)(0x80 | (code & 0x3F));
    } else {
        *out++ = (char)(0xF0 | code >> 18);
        *out++ = (char)(0x80 | (code >> 12 & 0x3F));
        *out++ = (char)(0x80 | (code >> 6 & 0x3F));
        *out++ = (char)(0x80 | (code & 0x3F));
    }
    return out;
}

/* `raw` was scanned: every escape in it is whole. Decoding never makes it longer. */
static bool decode_string(struct json *json, const struct json_string *raw, struct json_string *value)
{
    struct error ignored;
    char *out = arena_try_bytes(json->arena, raw->length + 1, json->memory_error ? json->memory_error : &ignored);
    if (!out) {
        json->is_out_of_memory = true;
        return json_fail(json, "too many escaped strings");
    }
    value->text = out;
    const char *end = raw->text + raw->length;
    for (const char *at = raw->text; at < end;) {
        const char *plain_end = skip_plain(at, end);
        uint32_t code;
        memcpy(out, at, (size_t)(plain_end - at));
        out += plain_end - at;
        at = plain_end;
        if (at == end)
            break;
        if (*at != '\\') { /* of a longer sequence of UTF-8 */
            *out++ = *at++;
        } else if (at[1] != 'u') {
            *out++ = simple_escape(at[1]);
            at += 2;
        } else {
            at += 2 + unicode_escape(at + 2, end, true, &code);
            out = put_code_point(out, code);
        }
    }
    value->length = (size_t)(out - value->text);
    return true;
}

bool json_take_string(struct json *json, struct json_string *value)
{
    bool has_escapes;
    struct json_string raw;
    if (!scan_string(json, &raw, &has_escapes))
        return false;
    if (has_escapes)
        return decode_string(json, &raw, value);
    *value = raw;
    return true;
}

/* --- numbers and words --- */

static size_t scan_digits(struct json *json)
{
    const char *from = json->at;
    while (json->at < json->end && *json->at >= '0' && *json->at <= '9')
        json->at++;
    return (size_t)(json->at - from);
}

static bool take_char(struct json *json, char c)
{
    if (json->at == json->end || *json->at != c)
        return false;
    json->at++;
    return true;
}

/* Moves over an integer part without superfluous zeros. */
static bool scan_integer(struct json *json)
{
    const char *from = json->at;
    size_t n = scan_digits(json);
    if (!n || (n > 1 && *from == '0')) {
        json->at = from;
        return json_fail(json, n ? "leading zero" : "expected a number");
    }
    return true;
}

static bool take_word(struct json *json, const char *word)
{
    size_t length = strlen(word);
    if ((size_t)(json->end - json->at) < length || memcmp(json->at, word, length) != 0)
        return json_fail(json, "expected a value");
    json->at += length;
    return true;
}

static bool skip_number(struct json *json)
{
    bool is_negative = take_char(json, '-');
    if (json->is_lenient && json->at < json->end && (*json->at == 'I' || (*json->at == 'N' && !is_negative)))
        return take_word(json, *json->at == 'I' ? "Infinity" : "NaN");
    if (!scan_integer(json))
        return false;
    if (take_char(json, '.') && !scan_digits(json))
        return json_fail(json, "expected digits behind the point");
    if (take_char(json, 'e') || take_char(json, 'E')) {
        if (!take_char(json, '-'))
            take_char(json, '+');
        if (!scan_digits(json))
            return json_fail(json, "expected an exponent");
    }
    return true;
}

static bool ends_integer(const struct json *json)
{
    return json->at == json->end || (*json->at != '.' && (*json->at | 0x20) != 'e');
}

bool json_take_u64(struct json *json, uint64_t *value)
{
    if (!skip_space(json) || *json->at < '0' || *json->at > '9')
        return json_fail(json, "expected a non-negative integer");
    const char *from = json->at;
    if (!scan_integer(json))
        return false;
    *value = 0;
    for (; from < json->at; from++)
        if (__builtin_mul_overflow(*value, 10, value) || __builtin_add_overflow(*value, (uint64_t)(*from - '0'), value))
            return json_fail(json, "integer too large");
    return ends_integer(json) || json_fail(json, "expected an integer");
}

bool json_take_i64(struct json *json, int64_t *value)
{
    bool is_number = json_peek(json) == JSON_NUMBER, negative = is_number && take_char(json, '-'), fits = true;
    const char *from = json->at;
    if (!is_number || !scan_integer(json) || !ends_integer(json))
        return json_fail(json, "expected an integer");
    *value = 0;
    for (const char *at = from; at < json->at && fits; at++) {
        int digit = negative ? '0' - *at : *at - '0';
        fits = !__builtin_mul_overflow(*value, 10, value) && !__builtin_add_overflow(*value, digit, value);
    }
    if (!fits)
        *value = negative ? INT64_MIN : INT64_MAX;
    return true;
}

bool json_take_null(struct json *json)
{
    if (json_peek(json) != JSON_NULL)
        return json_fail(json, "expected null");
    return take_word(json, "null");
}

/* --- whole values --- */

/* Recursion is bounded by JSON_MAX_DEPTH. */
bool json_skip(struct json *json)
{
    struct json_string raw;
    bool has_escapes;
    switch (json_peek(json)) {
    case JSON_OBJECT:
        if (!json_begin_object(json))
            return false;
        while (next_element(json, '}', "expected ',' or '}'"))
            if (!scan_string(json, &raw, &has_escapes) || !expect(json, ':', "expected ':'") || !json_skip(json))
                return false;
        return json_ok(json);
    case JSON_ARRAY:
        if (!json_begin_array(json))
            return false;
        while (json_next_item(json))
            if (!json_skip(json))
                return false;
        return json_ok(json);
    case JSON_STRING:
        return scan_string(json, &raw, &has_escapes);
    case JSON_NUMBER:
        return skip_number(json);
    case JSON_TRUE:
        return take_word(json, "true");
    case JSON_FALSE:
        return take_word(json, "false");
    case JSON_NULL:
        return take_word(json, "null");
    case JSON_INVALID:
        break;
    }
    return json_fail(json, "expected a value");
}

bool json_take_fields(struct json *json, const struct json_field *fields, size_t n_fields)
{
    struct json_string key, value;
    json_begin_object(json);
    while (json_next_key(json, &key)) {
        const struct json_field *field = fields;
        while (field < fields + n_fields && !json_string_is(&key, field->name))
            field++;
        if (field == fields + n_fields || json_peek(json) == JSON_NULL)
            json_skip(json);
        else if (field->number)
            json_take_u64(json, field->number);
        else if (json_take_string(json, &value) && (*field->text || memchr(value.text, '\0', value.length)))
            json_fail(json, "a text occurs twice or holds a NUL");
        else if (json_ok(json))
            *field->text = memory_print("%.*s", (int)value.length, value.text);
    }
    return json_ok(json);
}

bool json_end(struct json *json)
{
    if (skip_space(json))
        return json_fail(json, "unexpected text behind the JSON value");
    if (json_ok(json) && json->depth)
        return json_fail(json, "unexpected end");
    return json_ok(json);
}
