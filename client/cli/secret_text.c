#include "secret_text.h"

#include <ctype.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/file_io.h"
#include "base/memory.h"
#include "base/redact.h"

enum { LEAST_SECRET_CHARS = 8, MAX_SECRETS = 1000, MAX_FILE_BYTES = 256 << 10 };

static const char hidden[] = "(hidden)";
static const char url_breaks[] = " \t\r\n\"'<>\\", breaks[] = " \t\r\n\"'<>\\,;"; /* also in JSON and logfmt */

void secrets_fini(struct secrets *secrets)
{
    for (size_t i = 0; i < secrets->n; i++) {
        explicit_bzero(secrets->values[i], strlen(secrets->values[i]));
        free(secrets->values[i]);
    }
    free(secrets->values);
    *secrets = (struct secrets){0};
}

bool secret_is_named(const char *name, size_t length)
{
    static const char *const ends[] = {"key",     "token",  "secret",     "password",
                                       "headers", "passwd", "passphrase", "credentials"};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        size_t n = strlen(ends[i]);
        if (length >= n && strncasecmp(name + length - n, ends[i], n) == 0)
            return true;
    }
    return false;
}

/* A word of a language or a format, such as "authorized_user", and no key. */
static bool is_plain_word(const char *word, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (!islower((unsigned char)word[i]) && !strchr("_-.:/[]{}", word[i]))
            return false;
    return true;
}

void secrets_add(struct secrets *secrets, const char *text, size_t length)
{
    for (size_t at = 0; at < length && secrets->n < MAX_SECRETS;) {
        size_t end = at;
        while (end < length && text[end] && !strchr(breaks, text[end]))
            end++;
        if (end - at >= LEAST_SECRET_CHARS && !is_plain_word(text + at, end - at)) {
            if (secrets->n == secrets->room) {
                secrets->room = 2 * secrets->room + 16;
                secrets->values = memory_grow(secrets->values, secrets->room, sizeof *secrets->values);
            }
            secrets->values[secrets->n++] = memory_print("%.*s", (int)(end - at), text + at);
        }
        at = end + 1;
    }
}

void secrets_read_file(struct secrets *secrets, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    char *text = fd >= 0 ? memory_alloc(MAX_FILE_BYTES) : NULL;
    ssize_t length = text ? file_io_read(fd, text, MAX_FILE_BYTES) : 0;
    if (length > 0)
        secrets_add(secrets, text, (size_t)length);
    if (text)
        explicit_bzero(text, MAX_FILE_BYTES);
    free(text);
    if (fd >= 0)
        close(fd);
}

/* --- cleaning ------------------------------------------------------------------------------------------------------------ */

struct cleaning {
    const struct secrets *secrets;
    const char *begin, *end; /* of the text */
    FILE *out;
    bool begins_secret[UCHAR_MAX + 1];
};

/* How long a known secret is that begins here; the longest counts. */
static size_t known_at(const struct cleaning *cleaning, const char *at)
{
    size_t longest = 0;
    for (size_t i = 0; cleaning->begins_secret[(unsigned char)*at] && i < cleaning->secrets->n; i++) {
        const char *value = cleaning->secrets->values[i];
        size_t length = *value == *at ? strlen(value) : 0;
        if (length > longest && length <= (size_t)(cleaning->end - at) && memcmp(value, at, length) == 0)
            longest = length;
    }
    return longest;
}

static bool reads_as(const struct cleaning *cleaning, const char *at, const char *what)
{
    size_t length = strlen(what);
    return length <= (size_t)(cleaning->end - at) && strncasecmp(at, what, length) == 0;
}

static size_t word_length(const struct cleaning *cleaning, const char *at, const char *ends)
{
    size_t length = 0;
    while (at + length < cleaning->end && at[length] && !strchr(ends, at[length]))
        length++;
    return length;
}

/* At a word: "scheme://..." without what may not be shown. 0 = it is none. */
static size_t clean_url(const struct cleaning *cleaning, const char *at)
{
    size_t scheme = 0, length;
    while (at + scheme < cleaning->end && (isalnum((unsigned char)at[scheme]) || (scheme && strchr("+-.", at[scheme]))))
        scheme++;
    if (!scheme || !reads_as(cleaning, at + scheme, "://"))
        return 0;
    length = word_length(cleaning, at, url_breaks);
    char *url = memory_print("%.*s", (int)length, at), *shown = redact_copy(url);
    struct cleaning rest = *cleaning;
    rest.end = shown + strlen(shown);
    for (const char *c = shown; *c;) { /* a secret may be a part of its path */
        size_t known = known_at(&rest, c);
        fputs(known ? hidden : "", cleaning->out);
        if (!known)
            fputc(*c, cleaning->out);
        c += known ? known : 1;
    }
    free(shown);
    free(url);
    return length;
}

/* "Bearer abc", "Basic abc": the word behind it. */
static size_t clean_authorization(const struct cleaning *cleaning, const char *at)
{
    static const char *const kinds[] = {"bearer ", "basic ", "bearer%20"};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        size_t length = strlen(kinds[i]);
        if (!reads_as(cleaning, at, kinds[i]))
            continue;
        fprintf(cleaning->out, "%.*s%s", (int)length, at, hidden);
        return length + word_length(cleaning, at + length, breaks);
    }
    return 0;
}

/* "joe:password@proxy:3128", as a proxy may be given without a scheme. */
static size_t clean_user(const struct cleaning *cleaning, const char *at)
{
    size_t length = word_length(cleaning, at, " \t\r\n\"'<>\\/");
    const char *colon = memchr(at, ':', length), *user_end = memrchr(at, '@', length);
    if (!colon || colon == at || memchr(at, '=', (size_t)(colon - at)) || !user_end || user_end < colon + 2)
        return 0;
    fprintf(cleaning->out, "%s@", hidden);
    return (size_t)(user_end + 1 - at);
}

/* In YAML, the lines that are indented more than a name belong to its value, and so do the items of a list below it. Also where
 * all of it is commented out. Returns the newline before the first line that does not. */
static const char *end_of_value(const struct cleaning *cleaning, const char *name, const char *value)
{
    const char *line = name, *line_end, *next;
    while (line > cleaning->begin && line[-1] != '\n')
        line--;
    size_t column = 0;
    while (line + column < name && strchr(" \t#-", line[column]))
        column++;
    for (line_end = memchr(value, '\n', (size_t)(cleaning->end - value)); line_end; line_end = next) {
        size_t n = 0, room = (size_t)(cleaning->end - line_end - 1);
        line = line_end + 1;
        while (n < room && line[n] && strchr(" \t#", line[n]))
            n++;
        bool is_item = n == column && n + 1 < room && line[n] == '-' && line[n + 1] == ' ';
        bool is_blank = n < room && (line[n] == '\n' || line[n] == '\r');
        if (n <= column && !is_item && !is_blank)
            return line_end;
        next = memchr(line, '\n', room);
    }
    return cleaning->end;
}

/* At a word: NAME=VALUE or NAME: VALUE of a secret name, which hides the rest of the line and what follows of the value. */
static size_t clean_setting(const struct cleaning *cleaning, const char *at)
{
    const char *name_end = at, *end;
    while (name_end < cleaning->end && (isalnum((unsigned char)*name_end) || (*name_end && strchr("_.-", *name_end))))
        name_end++;
    for (end = name_end; end < cleaning->end && *end && strchr("\"' ", *end);)
        end++;
    if (end == cleaning->end || (*end != '=' && *end != ':') || !secret_is_named(at, (size_t)(name_end - at)))
        return 0;
    fprintf(cleaning->out, "%.*s %s", (int)(end + 1 - at), at, hidden);
    return (size_t)(end_of_value(cleaning, at, end) - at);
}

/* Returns how much of the text was dealt with. */
static size_t clean_word(const struct cleaning *cleaning, const char *at)
{
    size_t length = clean_url(cleaning, at);
    length = length ? length : clean_authorization(cleaning, at);
    return length ? length : clean_user(cleaning, at);
}

char *secret_text_clean(const struct secrets *secrets, enum secret_form form, const char *text, size_t length,
                        size_t *out_length)
{
    char *cleaned = NULL;
    struct cleaning cleaning = {
        .secrets = secrets, .begin = text, .end = text + length, .out = memory_stream(&cleaned, out_length)};
    for (size_t i = 0; i < secrets->n; i++)
        cleaning.begins_secret[(unsigned char)*secrets->values[i]] = true;
    for (const char *at = text; at < cleaning.end;) {
        bool is_word = at == text || !isalnum((unsigned char)at[-1]);
        size_t done = known_at(&cleaning, at);
        if (done)
            fputs(hidden, cleaning.out);
        if (!done && is_word && form == SECRET_FORM_SETTINGS)
            done = clean_setting(&cleaning, at);
        if (!done && is_word)
            done = clean_word(&cleaning, at);
        if (!done)
            fputc(*at, cleaning.out);
        at += done ? done : 1;
    }
    fclose(cleaning.out);
    return cleaned;
}
