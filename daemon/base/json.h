/* A JSON reader, strict (RFC 8259) unless told otherwise, that never allocates more than the strings it is asked for, and a
 * small writer.
 *
 * The reader is a pull parser over bytes in memory: the caller walks objects and arrays with json_next_key() and
 * json_next_item() and takes or skips each value. Nesting is limited to JSON_MAX_DEPTH. Every function returns false
 * once something is wrong; json_error() then tells what and at which byte. Duplicate keys are the caller's business.
 *     struct json json; json_init(&json, bytes, n, &arena);
 *     if (json_begin_object(&json))
 *         while (json_next_key(&json, &key)) ...
 *     if (!json_end(&json)) return fail(..., json_error(&json, text));
 * Not thread-safe per object. */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/arena.h"

enum { JSON_MAX_DEPTH = 64 };

enum json_type { JSON_INVALID, JSON_OBJECT, JSON_ARRAY, JSON_STRING, JSON_NUMBER, JSON_TRUE, JSON_FALSE, JSON_NULL };

struct json_string { /* unescaped; points into the input when it had no escapes, else into the arena; may hold NULs */
    const char *text;
    size_t length;
};

bool json_string_equals(const struct json_string *string, const char *text);
static inline bool json_string_is(const struct json_string *string, const char *text)
{ /* the first character nearly always tells: keys are compared with a few that are known */
    return string->length && *string->text != *text ? false : json_string_equals(string, text);
}

struct json {
    const char *start, *at, *end;
    struct arena *arena;
    int depth;
    bool
        is_lenient; /* may be set by the caller, of documents that others write: as Python's json module reads them, with NaN,
                      * Infinity and -Infinity as numbers and lone surrogates, which become U+FFFD */
    bool first[JSON_MAX_DEPTH]; /* no element seen yet, per open container */
    const char *error;          /* static text, NULL while all is well */
    const char *error_at;
    bool has_bad_utf8;          /* that was what was wrong */
    struct error *memory_error; /* may be set by the caller: filled when the arena refuses memory for a string */
    bool is_out_of_memory;      /* that was what was wrong */
};

void json_init(struct json *json, const void *bytes, size_t count, struct arena *arena);
enum json_type json_peek(struct json *json); /* type of the next value */
bool json_begin_object(struct json *json);
bool json_next_key(struct json *json, struct json_string *key); /* false at the closing brace, too */
bool json_begin_array(struct json *json);
bool json_next_item(struct json *json); /* false at the closing bracket, too */
bool json_take_string(struct json *json, struct json_string *value);
bool json_take_u64(struct json *json, uint64_t *value); /* integers without sign, fraction or exponent, exactly */
bool json_take_i64(struct json *json, int64_t *value);  /* what does not fit becomes the nearest that does */
bool json_take_null(struct json *json);
bool json_skip(struct json *json); /* one value of any kind */
struct json_field {                /* a member of an object: where it goes, one of the two */
    const char *name;
    char **text; /* malloced, also when something is wrong behind it; NULL before */
    uint64_t *number;
};
/* An object, by the members that are wanted; null is as good as none. A text that occurs twice or holds a NUL is refused. */
bool json_take_fields(struct json *json, const struct json_field *fields, size_t n_fields);
bool json_end(struct json *json); /* nothing but white space is left, and nothing was wrong */
bool json_ok(const struct json *json);
bool json_fail(struct json *json, const char *error); /* the caller's own complaint at this place; returns false */
enum { JSON_ERROR_CHARS = 160 };
const char *json_error(const struct json *json, char out[JSON_ERROR_CHARS]); /* "expected ':' at byte 17" */

/* The writer appends to a growing buffer; commas and quoting are its business. Never fails, unless it is told that it can:
 * for documents whose length an outside sender chose. */
struct json_writer {
    char *text; /* NUL-terminated once anything was written; free() it */
    size_t length, capacity;
    bool need_comma;
    bool can_fail, has_failed; /* failed: there are no `length` bytes of memory, and text is NULL */
    bool escapes_least; /* as other writers of files: only what JSON says, not what would change how a terminal shows text */
};

/* Room for so many bytes more, so that the writing of those cannot fail. False: there is no memory, and nothing has changed. */
bool json_write_reserve(struct json_writer *writer, size_t bytes);
void json_write_open(struct json_writer *writer, char bracket);  /* '{' or '[' */
void json_write_close(struct json_writer *writer, char bracket); /* '}' or ']' */
void json_write_key_bytes(struct json_writer *writer, const char *key, size_t length);
void json_write_string(struct json_writer *writer, const char *text, size_t length); /* invalid UTF-8 becomes U+FFFD */
static inline void json_write_key(struct json_writer *writer, const char *key)
{
    json_write_key_bytes(writer, key, strlen(key));
}
static inline void json_write_text(struct json_writer *writer, const char *text)
{
    json_write_string(writer, text, strlen(text));
}
void json_write_u64(struct json_writer *writer, uint64_t value);
void json_write_i64(struct json_writer *writer, int64_t value);
void json_write_double(struct json_writer *writer, double value); /* shortest of up to 6 digits; never NaN or inf */
void json_write_bool(struct json_writer *writer, bool value);
void json_write_json(struct json_writer *writer, const char *json, size_t length); /* a value that is written already */
/* A member: its key, then its value. */
void json_put_open(struct json_writer *writer, const char *key, char bracket);
void json_put_string(struct json_writer *writer, const char *key, const char *text, size_t length);
void json_put_text(struct json_writer *writer, const char *key, const char *text);
void json_put_text_or_null(struct json_writer *writer, const char *key, const char *text); /* null for "" */
void json_put_u64(struct json_writer *writer, const char *key, uint64_t value);
void json_put_double(struct json_writer *writer, const char *key, double value);
void json_put_bool(struct json_writer *writer, const char *key, bool value);

#endif
