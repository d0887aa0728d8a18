/* Matching goes from left to right and tries the longest first. What was found not to match from some wildcard at some place
 * of the name is noted, so that nothing is tried twice. */
#include "recipe/pattern.h"

#include <string.h>

#include "base/metadata.h"

enum wildcard { WILDCARD_NONE, WILDCARD_NUMBER, WILDCARD_RUN };

static enum wildcard wildcard_at(const struct pattern *pattern, size_t at)
{
    if (pattern->text[at] == '*')
        return WILDCARD_RUN;
    if (pattern->text[at] == '{' && at + 1 < pattern->length && pattern->text[at + 1] == '}')
        return WILDCARD_NUMBER;
    return WILDCARD_NONE;
}

static size_t wildcard_length(enum wildcard wildcard)
{
    return wildcard == WILDCARD_NUMBER ? 2 : 1;
}

bool pattern_init(struct pattern *pattern, const char *text, size_t length)
{
    *pattern = (struct pattern){.text = text, .length = length};
    for (size_t at = 0; at < length;) {
        enum wildcard wildcard = wildcard_at(pattern, at);
        pattern->n_numbers += wildcard == WILDCARD_NUMBER;
        pattern->n_runs += wildcard == WILDCARD_RUN;
        at += wildcard ? wildcard_length(wildcard) : 1;
    }
    return pattern->n_numbers + pattern->n_runs <= PATTERN_MAX_WILDCARDS;
}

enum { NOTED_BYTES = 1024 };

struct matching {
    const struct pattern *pattern;
    const char *name;
    size_t length;
    unsigned char *dead; /* a bit for each wildcard and place: no match from there */
    struct pattern_match *match;
    uint64_t *steps_left;
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* The pattern from `at` against the name from `from`, which wildcard number `w` is the next of. */
static bool match_from(const struct matching *matching, size_t at, size_t from, uint32_t w, struct pattern_match match)
{
    const struct pattern *pattern = matching->pattern;
    while (at < pattern->length && !wildcard_at(pattern, at)) {
        if (from == matching->length || pattern->text[at] != matching->name[from])
            return false;
        at++;
        from++;
    }
    if (at == pattern->length) {
        if (from == matching->length && matching->match)
            *matching->match = match;
        return from == matching->length;
    }
    size_t bit = w * (matching->length + 1) + from, longest = matching->length - from;
    if (matching->dead[bit / 8] & 1 << bit % 8)
        return false;
    bool is_number = wildcard_at(pattern, at) == WILDCARD_NUMBER;
    for (size_t i = 0; is_number && i < longest; i++)
        longest = is_digit(matching->name[from + i]) ? longest : i;
    struct captured *captured = is_number ? &match.numbers[match.n_numbers++] : &match.runs[match.n_runs++];
    for (size_t n = longest + 1; n-- > is_number && *matching->steps_left;) {
        --*matching->steps_left;
        *captured = (struct captured){matching->name + from, n};
        if (match_from(matching, at + wildcard_length(is_number ? WILDCARD_NUMBER : WILDCARD_RUN), from + n, w + 1, match))
            return true;
    }
    matching->dead[bit / 8] |= (unsigned char)(1 << bit % 8);
    return false;
}

int pattern_match(const struct pattern *pattern, const char *name, size_t length, struct pattern_match *match,
                  uint64_t *steps_left, struct error *error)
{
    uint32_t n_wildcards = pattern->n_numbers + pattern->n_runs;
    unsigned char noted[NOTED_BYTES];
    size_t n_bytes = n_wildcards * (length + 1) / 8 + 1;
    if (n_wildcards == 0) {
        if (match)
            match->n_numbers = match->n_runs = 0;
        return length == pattern->length && memcmp(name, pattern->text, length) == 0;
    }
    struct matching matching = {pattern, name, length, noted, match, steps_left};
    if (n_bytes > sizeof noted)
        matching.dead = metadata_alloc(n_bytes, error);
    else
        memset(noted, 0, n_bytes);
    if (!matching.dead)
        return -1;
    struct pattern_match empty;
    empty.n_numbers = empty.n_runs = 0;
    bool found = match_from(&matching, 0, 0, 0, empty);
    if (matching.dead != noted)
        metadata_free(matching.dead);
    if (!*steps_left)
        return fail(error, ERROR_RESOURCE_EXHAUSTED, "TOO_MANY_PATTERNS",
                    "names are too long, or too many, for these patterns; use fewer * and {}");
    return found;
}

bool pattern_can_fill(const struct pattern *pattern, const struct pattern *template)
{
    return template->n_numbers <= pattern->n_numbers && template->n_runs <= pattern->n_runs;
}

/* Counts, and writes unless `out` is NULL. */
static size_t fill(const struct pattern *template, const struct pattern_match *match, char *out)
{
    uint32_t n_numbers = 0, n_runs = 0;
    size_t length = 0;
    for (size_t at = 0; at < template->length;) {
        enum wildcard wildcard = wildcard_at(template, at);
        struct captured part = {template->text + at, 1};
        at += wildcard ? wildcard_length(wildcard) : 1;
        if (wildcard == WILDCARD_NUMBER)
            part = match->numbers[n_numbers++];
        else if (wildcard == WILDCARD_RUN)
            part = match->runs[n_runs++];
        if (out)
            memcpy(out + length, part.text, part.length);
        length += part.length;
    }
    if (out)
        out[length] = 0;
    return length;
}

size_t pattern_filled_length(const struct pattern *template, const struct pattern_match *match)
{
    return fill(template, match, NULL);
}

void pattern_fill(const struct pattern *template, const struct pattern_match *match, char *out)
{
    fill(template, match, out);
}
