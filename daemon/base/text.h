/* Sizes, durations and names as text. Pure; any thread. */
#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* "8GB", "64MiB", "1.5 GiB", "4096", "1_000KB": powers of 1024 in both spellings, case ignored, never negative. Fractions of
 * a byte are dropped. Returns 0, or -1 when the text is no size, does not fit into 64 bits, or would only round to zero. */
int text_parse_bytes(const char *text, uint64_t *bytes);

/* "15s", "250ms", "2m", "1.5h": a unit is required, except for a plain 0. Returns 0 or -1, as above. */
int text_parse_duration_ms(const char *text, uint64_t *duration_ms);

enum { TEXT_SIZE_CHARS = 32 };
/* Exact and short, parses back to the same number: "64MiB", "1536KiB", "4097". Returns `out`. */
const char *text_format_bytes(uint64_t bytes, char out[TEXT_SIZE_CHARS]);
const char *text_format_duration_ms(uint64_t duration_ms, char out[TEXT_SIZE_CHARS]); /* "10s", "250ms" */
/* Rounded, for people: "3.74 GiB", "812 B". */
const char *text_people_bytes(uint64_t bytes, char out[TEXT_SIZE_CHARS]);
const char *text_people_rate(double bytes_per_s, char out[TEXT_SIZE_CHARS]); /* "2.15 GiB/s" */

enum { TEXT_NAME_CHARS = 200 };
/* A name from outside for a message or a log: control characters and invalid UTF-8 as \n, \x1b, ...; names longer than
 * about 120 bytes are cut in the middle with "...". `name` may hold NULs. Returns `out`. */
const char *text_escape(const char *name, size_t length, char out[TEXT_NAME_CHARS]);
/* The same for one message, in memory of this thread that the eighth next call uses again; and "[4096, 64]" of a shape, or
 * "[4096, ...]". */
const char *text_show(const char *name);
const char *text_show_bytes(const char *name, size_t length);
const char *text_show_shape(const uint64_t *shape, size_t rank);
const char *text_show_amount(uint64_t bytes);   /* as text_people_bytes() */
const char *text_show_rate(double bytes_per_s); /* as text_people_rate() */
/* The same in at most so many columns of a terminal, cut in the middle; up to 4 = as long as it is. text_cut(): of a text that
 * was escaped before. */
const char *text_fit(const char *name, size_t columns, char out[TEXT_NAME_CHARS]);
const char *text_cut(const char *text, size_t columns, char out[TEXT_NAME_CHARS]);

enum { TEXT_ESCAPE_CHARS = 12 };
/* One character of it, for callers that do not cut: writes how the character at `text` (length >= 1) is shown and returns
 * how many bytes it takes. A backslash is doubled. For valid UTF-8 this is also what YAML wants between double quotes, where
 * '"' itself is the caller's business. */
size_t text_escape_char(const char *text, size_t length, char out[TEXT_ESCAPE_CHARS]);

/* Whether the character of that well-formed sequence of n bytes would change how a terminal or an editor shows what is around
 * it: controls beyond ASCII, changes of direction, separators of lines. */
bool text_is_disruptive(const char *sequence, size_t n);

/* The candidate with the smallest edit distance (case ignored, the first of equals), or NULL when nothing is near. */
const char *text_nearest(const char *word, const char *const *candidates, size_t n_candidates);

static inline const char *text_plural(uint64_t count) /* what a noun ends in */
{
    return count == 1 ? "" : "s";
}
bool text_ends_with(const char *text, size_t length, const char *ending);
bool text_is_one_of(const char *text, const char *const *words, size_t n_words);
bool text_is_plain_path(const char *path); /* "a/b": no part of it is empty, "." or "..", so it leads nowhere else */
/* Of a file that hides nothing: UTF-8 without controls and slashes of either kind, not empty. */
bool text_is_plain_name(const char *name, size_t length);

bool text_is_utf8(const char *text, size_t length); /* as RFC 3629: no surrogates, no overlong forms */

/* The value of a hexadecimal digit in either case, or -1. */
int text_hex_digit(char c);
/* "a%2Fb" -> "a/b", in place; '+' stays. False: a % without two digits, or a NUL. */
bool text_percent_decode(char *text);

/* Shell globs with * ? [a-z] [!a-z] and \x for x itself, over bytes, no special meaning for '/' or a leading '.'. */
bool text_glob(const char *pattern, const char *name, size_t name_length);

#endif
