/* Sizes, durations and names as text.
 *
 * Numbers are read without floating point: "0.1GB" is the same bytes everywhere, and an overflow is seen where it happens.
 * What comes out of a formatter parses back to the same number. Names from outside are shown one character at a time by
 * text_escape_char(), so that messages, logs and printed configurations escape alike. */
#include "base/text.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/checked.h"
#include "base/utf8.h"

struct unit {
    const char *name;
    uint64_t factor;
};

static const struct unit duration_units[] = {{"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}};

struct decimal {
    uint64_t whole;
    const char *fraction; /* its digits; n_fraction 0 = none */
    size_t n_fraction;
    const char *rest; /* after the number and its spaces */
};

/* Digits with '_' between digits, then perhaps a point and more digits. */
static int parse_decimal(const char *text, struct decimal *out)
{
    *out = (struct decimal){0};
    const char *at = text;
    for (; isdigit((unsigned char)*at) || (*at == '_' && at > text && isdigit((unsigned char)at[1])); at++) {
        if (*at == '_' && at[-1] == '_')
            return -1;
        if (*at != '_' && (!checked_mul(out->whole, 10, &out->whole) || !checked_add(out->whole, *at - '0', &out->whole)))
            return -1;
    }
    if (at == text)
        return -1;
    if (*at == '.') {
        out->fraction = ++at;
        while (isdigit((unsigned char)*at))
            at++;
        out->n_fraction = (size_t)(at - out->fraction);
        if (out->n_fraction == 0)
            return -1;
    }
    size_t n_spaces = strspn(at, " ");
    out->rest = at + n_spaces;
    return n_spaces && !*out->rest ? -1 : 0;
}

static int scale(const struct decimal *number, uint64_t factor, uint64_t *value)
{
    bool is_zero = number->whole == 0;
    uint64_t fraction = 0; /* exactly: dividing from the last digit on never needs more than 10 * factor */
    for (size_t i = number->n_fraction; i-- > 0;) {
        uint64_t digit = (uint64_t)(number->fraction[i] - '0');
        is_zero = is_zero && digit == 0;
        fraction = (digit * factor + fraction) / 10;
    }
    if (!checked_mul(number->whole, factor, value) || !checked_add(*value, fraction, value))
        return -1;
    return *value == 0 && !is_zero ? -1 : 0; /* zero often means "off": no value becomes it by rounding */
}

int text_parse_bytes(const char *text, uint64_t *bytes)
{
    struct decimal number;
    if (parse_decimal(text, &number) < 0)
        return -1;
    static const char letters[] = "KMGTP"; /* alone, or before B or iB */
    const char *rest = number.rest, *letter = *rest ? strchr(letters, toupper((unsigned char)*rest)) : NULL;
    uint64_t factor = letter ? 1ull << 10 * (letter + 1 - letters) : 1;
    rest += letter != NULL;
    if ((*rest && strcasecmp(rest, "B") != 0 && (!letter || strcasecmp(rest, "iB") != 0)) ||
        (factor == 1 && number.n_fraction))
        return -1;
    return scale(&number, factor, bytes);
}

int text_parse_duration_ms(const char *text, uint64_t *duration_ms)
{
    struct decimal number;
    if (parse_decimal(text, &number) < 0)
        return -1;
    for (size_t i = 0; i < sizeof duration_units / sizeof duration_units[0]; i++)
        if (strcasecmp(number.rest, duration_units[i].name) == 0 || strcmp(text, "0") == 0) /* the same in every unit */
            return scale(&number, duration_units[i].factor, duration_ms);
    return -1;
}

const char *text_format_bytes(uint64_t bytes, char out[TEXT_SIZE_CHARS])
{
    static const struct unit units[] = {{"TiB", 1ull << 40}, {"GiB", 1ull << 30}, {"MiB", 1ull << 20}, {"KiB", 1ull << 10}};
    for (size_t i = 0; bytes && i < sizeof units / sizeof units[0]; i++) {
        if (bytes % units[i].factor == 0) {
            snprintf(out, TEXT_SIZE_CHARS, "%llu%s", (unsigned long long)(bytes / units[i].factor), units[i].name);
            return out;
        }
    }
    snprintf(out, TEXT_SIZE_CHARS, "%llu", (unsigned long long)bytes);
    return out;
}

const char *text_format_duration_ms(uint64_t duration_ms, char out[TEXT_SIZE_CHARS])
{
    size_t i = sizeof duration_units / sizeof duration_units[0] - 1;
    if (duration_ms == 0)
        return strcpy(out, "0s");
    while (duration_ms % duration_units[i].factor)
        i--;
    snprintf(out, TEXT_SIZE_CHARS, "%llu%s", (unsigned long long)(duration_ms / duration_units[i].factor),
             duration_units[i].name);
    return out;
}

const char *text_people_bytes(uint64_t bytes, char out[TEXT_SIZE_CHARS])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    if (bytes < 1024) {
        snprintf(out, TEXT_SIZE_CHARS, "%u B", (unsigned)bytes);
        return out;
    }
    double value = (double)bytes;
    size_t unit = 0;
    for (; value >= 1023.5 && unit + 1 < sizeof units / sizeof units[0]; unit++) /* 1023.5 would print as 1024 */
        value /= 1024;
    int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
    snprintf(out, TEXT_SIZE_CHARS, "%.*f %s", decimals, value, units[unit]);
    return out;
}

/* A byte that continues a character has no column. */
static bool begins_character(char byte)
{
    return ((unsigned char)byte & 0xc0) != 0x80;
}

const char *text_cut(const char *text, size_t columns, char out[TEXT_NAME_CHARS])
{
    size_t n = 0, at = 0, used = 0, head = columns / 2 - 1, tail = columns > 4 ? columns - head - 3 : 0;
    for (const char *c = text; *c; c++)
        n += begins_character(*c);
    bool is_cut = columns > 4 && n > columns;
    for (const char *c = text; *c && used + sizeof "..." < TEXT_NAME_CHARS; c++) {
        at += begins_character(*c); /* of this character, from 1 */
        if (is_cut && at == head + 1 && begins_character(*c))
            for (int dot = 0; dot < 3; dot++)
                out[used++] = '.';
        if (!is_cut || at <= head || at > n - tail)
            out[used++] = *c;
    }
    out[used] = '\0';
    return out;
}

const char *text_fit(const char *name, size_t columns, char out[TEXT_NAME_CHARS])
{
    char shown[TEXT_NAME_CHARS];
    return text_cut(text_escape(name, strlen(name), shown), columns, out);
}

const char *text_people_rate(double bytes_per_s, char out[TEXT_SIZE_CHARS])
{
    const double most = 0x1p63;
    text_people_bytes(bytes_per_s > 0 ? (uint64_t)(bytes_per_s < most ? bytes_per_s : most) : 0, out);
    return strcat(out, "/s");
}

int text_hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool text_percent_decode(char *text)
{
    char *out = text;
    for (; *text; text++) {
        bool is_escaped = *text == '%';
        int high = is_escaped ? text_hex_digit(text[1]) : 0, low = is_escaped && high >= 0 ? text_hex_digit(text[2]) : 0;
        if (high < 0 || low < 0 || (is_escaped && high + low == 0))
            return false;
        *out++ = (char)(is_escaped ? high << 4 | low : *text);
        text += is_escaped ? 2 : 0;
    }
    *out = '\0';
    return true;
}

bool text_is_utf8(const char *text, size_t length)
{
    while (length) {
        size_t n = utf8_sequence(text, length);
        if (n == 0)
            return false;
        text += n;
        length -= n;
    }
    return true;
}

/* The character of a well-formed sequence of n bytes. */
static uint32_t decode_sequence(const char *text, size_t n)
{
    uint32_t value = n == 1 ? (unsigned char)text[0] : (unsigned char)text[0] & (0x7Fu >> n);
    for (size_t i = 1; i < n; i++)
        value = value << 6 | ((unsigned char)text[i] & 0x3F);
    return value;
}

bool text_is_disruptive(const char *sequence, size_t n)
{
    uint32_t c = decode_sequence(sequence, n);
    return (c >= 0x80 && c < 0xA0)       /* C1 controls */
           || c == 0x2028 || c == 0x2029 /* line and paragraph separator */
           || (c >= 0x200E && c <= 0x200F) || (c >= 0x202A && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069) /* bidi */
           || c == 0xFEFF || c == 0xFFFE || c == 0xFFFF; /* byte order mark, non-characters */
}

size_t text_escape_char(const char *text, size_t length, char out[TEXT_ESCAPE_CHARS])
{
    static const char controls[] = "\n\t\r", letters[] = "ntr";
    unsigned char first = (unsigned char)text[0];
    if (first > 0x20 && first < 0x7F && first != '\\') { /* nearly every character of nearly every name */
        out[0] = text[0];
        out[1] = '\0';
        return 1;
    }
    size_t n = utf8_sequence(text, length);
    const char *control = first ? strchr(controls, first) : NULL;
    if (control)
        snprintf(out, TEXT_ESCAPE_CHARS, "\\%c", letters[control - controls]);
    else if (first == '\\')
        snprintf(out, TEXT_ESCAPE_CHARS, "\\\\");
    else if (n == 0 || first < 0x20 || first == 0x7F)
        snprintf(out, TEXT_ESCAPE_CHARS, "\\x%02x", first);
    else if (text_is_disruptive(text, n))
        snprintf(out, TEXT_ESCAPE_CHARS, "\\u%04x", (unsigned)decode_sequence(text, n));
    else
        snprintf(out, TEXT_ESCAPE_CHARS, "%.*s", (int)n, text);
    return n ? n : 1;
}

enum { SHOWN_CHARS = 120, SHOWN_HEAD_CHARS = 60, SHOWN_TAIL_CHARS = 57 };

const char *text_escape(const char *name, size_t length, char out[TEXT_NAME_CHARS])
{
    size_t total = 0, seen = 0, used = 0;
    char piece[TEXT_ESCAPE_CHARS];
    for (size_t at = 0; at < length; total += strlen(piece))
        at += text_escape_char(name + at, length - at, piece);
    bool is_long = total > SHOWN_CHARS, is_cut = false;
    for (size_t at = 0; at < length;) {
        at += text_escape_char(name + at, length - at, piece);
        size_t n = strlen(piece);
        if (!is_long || seen + n <= SHOWN_HEAD_CHARS || seen >= total - SHOWN_TAIL_CHARS) {
            memcpy(out + used, piece, n);
            used += n;
        } else if (!is_cut) {
            memcpy(out + used, "...", 3);
            used += 3;
            is_cut = true;
        }
        seen += n;
    }
    out[used] = '\0';
    return out;
}

static char *shown_next(void)
{
    static __thread char texts[8][TEXT_NAME_CHARS];
    static __thread unsigned n_shown;
    return texts[n_shown++ % 8];
}

const char *text_show_bytes(const char *name, size_t length)
{
    return text_escape(name, length, shown_next());
}

const char *text_show(const char *name)
{
    return text_show_bytes(name, strlen(name));
}

const char *text_show_amount(uint64_t bytes)
{
    return text_people_bytes(bytes, shown_next());
}

const char *text_show_rate(double bytes_per_s)
{
    return text_people_rate(bytes_per_s, shown_next());
}

const char *text_show_shape(const uint64_t *shape, size_t rank)
{
    static const char more[] = ", ...]";
    char *text = shown_next();
    size_t used = (size_t)snprintf(text, TEXT_NAME_CHARS, "[");
    for (size_t d = 0; d < rank; d++) {
        char extent[24];
        size_t length = (size_t)snprintf(extent, sizeof extent, "%s%llu", d ? ", " : "", (unsigned long long)shape[d]);
        if (used + length + sizeof more > TEXT_NAME_CHARS)
            return strcpy(text + used, more), text;
        memcpy(text + used, extent, length);
        used += length;
    }
    strcpy(text + used, "]");
    return text;
}

enum { NEAREST_MAX_CHARS = 255 };

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static bool is_same_letter(char a, char b)
{
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

/* Edit distance with two neighbours swapped counted as one, or limit + 1 when it is larger. Only cells that can still be
 * within the limit are filled: a wrong tensor name is compared with a hundred thousand right ones. */
static size_t edit_distance(const char *a, size_t n_a, const char *b, size_t n_b, size_t limit)
{
    uint8_t rows[3][NEAREST_MAX_CHARS + 2];
    for (; n_a && n_b && is_same_letter(*a, *b); a++, b++, n_a--, n_b--)
        ;
    for (; n_a && n_b && is_same_letter(a[n_a - 1], b[n_b - 1]); n_a--, n_b--)
        ;
    for (size_t j = 0; j <= n_b; j++)
        rows[0][j] = (uint8_t)least(j, limit + 1);
    for (size_t i = 1; i <= n_a; i++) {
        uint8_t *row = rows[i % 3];
        const uint8_t *above = rows[(i - 1) % 3], *above2 = rows[(i + 1) % 3];
        size_t first = i > limit ? i - limit : 1, last = least(n_b, i + limit);
        row[first - 1] = (uint8_t)(first == 1 ? least(i, limit + 1) : limit + 1);
        row[last + 1] = (uint8_t)(limit + 1);
        for (size_t j = first; j <= last; j++) {
            size_t best =
                least(above[j - 1] + (is_same_letter(a[i - 1], b[j - 1]) ? 0u : 1u), least(above[j], row[j - 1]) + 1u);
            if (i > 1 && j > 1 && is_same_letter(a[i - 1], b[j - 2]) && is_same_letter(a[i - 2], b[j - 1]))
                best = least(best, above2[j - 2] + 1u);
            row[j] = (uint8_t)least(best, limit + 1);
        }
    }
    return rows[n_a % 3][n_b];
}

const char *text_nearest(const char *word, const char *const *candidates, size_t n_candidates)
{
    const char *nearest = NULL;
    size_t length = strlen(word);
    if (length > NEAREST_MAX_CHARS)
        return NULL;
    size_t best = length / 3 + 2; /* at most a third of the letters and one more may differ */
    for (size_t i = 0; i < n_candidates && best > 0; i++) {
        size_t n = strlen(candidates[i]);
        size_t gap = n > length ? n - length : length - n;
        if (n > NEAREST_MAX_CHARS || gap >= best)
            continue;
        size_t distance = edit_distance(word, length, candidates[i], n, best - 1);
        if (distance < best) {
            best = distance;
            nearest = candidates[i];
        }
    }
    return nearest;
}

/* One [...] at `at`. Returns what follows it, or NULL when it never closes (then '[' stands for itself). */
static const char *match_set(const char *at, unsigned char c, bool *is_match)
{
    bool is_negated = *++at == '!' || *at == '^';
    const char *first = at += is_negated;
    bool found = false;
    for (; *at && (*at != ']' || at == first); at++) {
        unsigned char low = (unsigned char)*at, high = low;
        if (at[1] == '-' && at[2] && at[2] != ']') {
            high = (unsigned char)at[2];
            at += 2;
        }
        found = found || (c >= low && c <= high);
    }
    *is_match = found != is_negated;
    return *at ? at + 1 : NULL;
}

/* Matches one byte against the element at `pattern`. Returns what follows the element, or NULL. */
static const char *match_one(const char *pattern, unsigned char c)
{
    bool is_match;
    const char *after = *pattern == '[' ? match_set(pattern, c, &is_match) : NULL;
    if (after)
        return is_match ? after : NULL;
    if (*pattern == '?')
        return pattern + 1;
    if (*pattern == '\\' && pattern[1])
        pattern++;
    return (unsigned char)*pattern == c ? pattern + 1 : NULL;
}

bool text_glob(const char *pattern, const char *name, size_t name_length)
{
    const char *after_star = NULL;
    size_t at = 0, star_at = 0;
    for (;;) {
        if (*pattern == '*') {
            after_star = ++pattern;
            star_at = at;
            continue;
        }
        if (at == name_length && !*pattern)
            return true;
        const char *next = at < name_length && *pattern ? match_one(pattern, (unsigned char)name[at]) : NULL;
        if (next) {
            pattern = next;
            at++;
        } else if (after_star && star_at < name_length) {
            pattern = after_star; /* the last '*' takes one more byte */
            at = ++star_at;
        } else {
            return false;
        }
    }
}

bool text_ends_with(const char *text, size_t length, const char *ending)
{
    size_t n = strlen(ending);
    return length >= n && memcmp(text + length - n, ending, n) == 0;
}

bool text_is_one_of(const char *text, const char *const *words, size_t n_words)
{
    for (size_t i = 0; i < n_words; i++)
        if (strcmp(words[i], text) == 0)
            return true;
    return false;
}

bool text_is_plain_path(const char *path)
{
    for (;; path++) {
        size_t length = strcspn(path, "/");
        if (length == 0 || (length <= 2 && strncmp(path, "..", length) == 0))
            return false;
        path += length;
        if (!*path)
            return true;
    }
}

bool text_is_plain_name(const char *name, size_t length)
{
    if (length == 0 || name[0] == '.' || !text_is_utf8(name, length))
        return false;
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f || name[i] == '/' || name[i] == '\\')
            return false;
    return true;
}
