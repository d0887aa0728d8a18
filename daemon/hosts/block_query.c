/* See block_query.h. Strict, as every sender is this program: each key once, no other one, and nothing raw that it would encode. */
#include "hosts/block_query.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "base/url.h"

static const char hex_digits[] = "0123456789abcdef";

/* Up to the next '&' or the end, decoded and malloced; NULL: it is malformed. */
static char *take_value(const char **at)
{
    static const char raw[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/%";
    size_t length = strspn(*at, raw);
    char *value = memory_copy_text(*at);
    value[length] = '\0';
    *at += length;
    if ((**at == '\0' || **at == '&') && text_percent_decode(value))
        return value;
    free(value);
    return NULL;
}

/* Exactly n lower hexadecimal digits. */
static bool copy_digits(const char *value, char *out, size_t n)
{
    if (!value || strlen(value) != n || strspn(value, hex_digits) != n)
        return false;
    memcpy(out, value, n + 1);
    return true;
}

static bool take_number(const char **at, uint64_t *number)
{
    const char *begin = *at;
    for (*number = 0; **at >= '0' && **at <= '9'; ++*at)
        if (__builtin_mul_overflow(*number, (uint64_t)10, number) ||
            __builtin_add_overflow(*number, (uint64_t)(**at - '0'), number))
            return false;
    return *at > begin;
}

/* "FIRST-LAST" and no more than one block. */
static bool take_span(const char **at, uint64_t *lo, uint64_t *hi)
{
    uint64_t last;
    if (!take_number(at, lo) || *(*at)++ != '-' || !take_number(at, &last) || last < *lo || last == UINT64_MAX)
        return false;
    *hi = last + 1;
    return *lo / SHARED_BLOCK_BYTES == last / SHARED_BLOCK_BYTES;
}

static bool parse_range(const char *range, uint64_t *lo, uint64_t *hi)
{
    if (strncmp(range, "bytes=", 6) != 0)
        return false;
    range += 6;
    return take_span(&range, lo, hi) && !*range;
}

/* Of several rows; the first and the last byte are in one. */
static bool parse_rows(const char *value, struct block_query *parsed)
{
    struct block_rows *rows = &parsed->rows;
    uint64_t last_at;
    if (!take_span(&value, &parsed->lo, &parsed->hi) || *value++ != '-' || !take_number(&value, &rows->phase) ||
        *value++ != '-' || !take_number(&value, &rows->take) || *value++ != '-' || !take_number(&value, &rows->stride) ||
        *value || rows->stride > SHARED_BLOCK_BYTES || rows->take >= rows->stride || rows->phase >= rows->take)
        return false;
    last_at = parsed->hi - 1 - parsed->lo + rows->phase;
    return last_at % rows->stride < rows->take && last_at / rows->stride > 0 && last_at / rows->stride < BLOCK_ROWS_MAX;
}

uint64_t block_rows_bytes(const struct block_rows *rows, uint64_t lo, uint64_t hi)
{
    uint64_t end = hi - lo + rows->phase;
    if (!rows->stride)
        return hi - lo;
    uint64_t of_last = end % rows->stride < rows->take ? end % rows->stride : rows->take;
    return end / rows->stride * rows->take + of_last - rows->phase;
}

bool block_query_parse(const char *query, const char *range, struct block_query *parsed, const char **reason)
{
    enum { REFERENCE, FILE_NAME, ID, FROM, HELD, ROWS, KEYS };
    static const char *const keys[KEYS] = {"reference", "file", "id", "from", "held", "rows"};
    char *values[KEYS] = {NULL};
    uint64_t first, end;
    *parsed = (struct block_query){0};
    *reason = NULL;
    for (const char *at = query; !*reason; at++) {
        size_t key = 0, length = strcspn(at, "=");
        while (key < KEYS && (strlen(keys[key]) != length || memcmp(keys[key], at, length) != 0))
            key++;
        at += length;
        if (key == KEYS || values[key] || *at != '=')
            *reason = "the query has a key that is unknown, or twice";
        else if (at++, !(values[key] = take_value(&at)))
            *reason = "the query has a value that is not encoded";
        else if (!*at)
            break;
    }
    parsed->reference = values[REFERENCE];
    parsed->file = values[FILE_NAME];
    parsed->only_held = values[HELD];
    if (*reason)
        ;
    else if (!parsed->reference || !*parsed->reference || !parsed->file || !text_is_plain_path(parsed->file) ||
             !copy_digits(values[ID], parsed->id, SHARED_ID_CHARS - 1) ||
             !copy_digits(values[FROM], parsed->from, PROOF_NONCE_CHARS - 1) ||
             (values[HELD] && strcmp(values[HELD], "1") != 0))
        *reason = "the query lacks a reference, a file below it, an id of a version or who asks";
    else if (!parse_range(range, &first, &end))
        *reason = "the range is not bytes=FIRST-LAST within one block of 4 MiB";
    else if (!values[ROWS])
        parsed->lo = first, parsed->hi = end;
    else if (!parse_rows(values[ROWS], parsed))
        *reason = "rows is not FIRST-LAST-PHASE-TAKE-STRIDE of several rows of one block of 4 MiB";
    else if (first != 0 || end != block_rows_bytes(&parsed->rows, parsed->lo, parsed->hi))
        *reason = "the range is not that of all bytes of the rows";
    free(values[ID]);
    free(values[FROM]);
    free(values[HELD]);
    free(values[ROWS]);
    return !*reason;
}

void block_query_fini(struct block_query *query)
{
    free(query->reference);
    free(query->file);
}

char *block_query_path(const struct block_query *query)
{
    const struct block_rows *rows = &query->rows;
    char *reference = url_encode(query->reference, strlen(query->reference), true);
    char *file = url_encode(query->file, strlen(query->file), true), pattern[128] = "";
    if (rows->stride)
        snprintf(pattern, sizeof pattern, "&rows=%" PRIu64 "-%" PRIu64 "-%" PRIu64 "-%" PRIu64 "-%" PRIu64, query->lo,
                 query->hi - 1, rows->phase, rows->take, rows->stride);
    char *path = memory_print(BLOCK_PATH "?reference=%s&file=%s&id=%s&from=%s%s%s", reference, file, query->id, query->from,
                              query->only_held ? "&held=1" : "", pattern);
    free(reference);
    free(file);
    return path;
}

char *block_query_range(const struct block_query *query)
{
    uint64_t first = query->rows.stride ? 0 : query->lo;
    return memory_print("bytes=%" PRIu64 "-%" PRIu64, first,
                        first + block_rows_bytes(&query->rows, query->lo, query->hi) - 1);
}
