/* Bodies told from what is around them; see http_framing.h. */
#include "source/http/http_framing.h"

#include <string.h>
#include <strings.h>

#include "base/text.h"
#include "source/http/http_head.h"

enum { MAX_SIZE_DIGITS = 15, MAX_LINE_BYTES = 4 << 10, MAX_TRAILER_BYTES = 16 << 10 };

static int malformed(struct error *error, const char *what)
{
    return fail(error, ERROR_UNAVAILABLE, "BAD_ANSWER", "the end of the answer cannot be told: %s", what);
}

static bool has_token(const char *list, const char *token)
{
    size_t length = strlen(token);
    for (const char *at = list; *at;) {
        size_t span = strcspn(at, ", \t");
        if (span == length && strncasecmp(at, token, length) == 0)
            return true;
        at += span;
        at += strspn(at, ", \t");
    }
    return false;
}

int http_framing_begin(struct http_framing *framing, const struct http_head *head, bool is_old, struct error *error)
{
    const char *connection = http_head_find(head, "connection"), *coding = http_head_find(head, "transfer-encoding");
    bool has_length = false;
    *framing = (struct http_framing){.ends_connection = is_old || (connection && has_token(connection, "close"))};
    for (size_t i = 0; i < head->n_headers; i++) { /* every Content-Length has to say the same */
        struct http_head one = {.headers = &head->headers[i], .n_headers = 1};
        uint64_t bytes;
        if (strcmp(head->headers[i].name, "content-length") != 0)
            continue;
        if (!http_head_content_length(&one, &bytes))
            return malformed(error, "its Content-Length is not a number");
        if (has_length && bytes != framing->left_bytes)
            return malformed(error, "it has two Content-Lengths that differ");
        framing->left_bytes = bytes;
        has_length = true;
    }
    if (head->status == 204 || head->status == 304) {
        framing->is_over = true;
    } else if (coding && strcasecmp(coding, "identity") != 0) {
        if (strcasecmp(coding, "chunked") != 0)
            return malformed(error, "its Transfer-Encoding is not chunked alone");
        framing->kind = HTTP_FRAMING_CHUNKED;
        framing->left_bytes = 0;
        framing->ends_connection = framing->ends_connection || has_length; /* one of the two is a lie */
    } else if (has_length) {
        framing->is_over = framing->left_bytes == 0;
    } else {
        framing->kind = HTTP_FRAMING_CLOSE;
        framing->left_bytes = UINT64_MAX;
        framing->ends_connection = true;
    }
    return 0;
}

static void next_part(struct http_framing *framing, int part)
{
    framing->part = part;
    framing->n_seen = framing->line_bytes = 0;
}

static int take_size(struct http_framing *framing, char c, struct error *error)
{
    int digit = text_hex_digit(c);
    if (digit < 0) {
        framing->part = HTTP_CHUNK_EXTENSION;
        return framing->n_seen > 0 && strchr("\r\n; \t", c) && c ? 0 : malformed(error, "a chunk has no size");
    }
    if (++framing->n_seen > MAX_SIZE_DIGITS)
        return malformed(error, "the size of a chunk has too many digits");
    framing->left_bytes = framing->left_bytes * 16 + (uint64_t)digit;
    return 0;
}

/* One byte of what stands between the chunks. */
static int take_between(struct http_framing *framing, char c, struct error *error)
{
    if (++framing->line_bytes > MAX_LINE_BYTES)
        return malformed(error, "a line between two chunks is too long");
    if (framing->part == HTTP_CHUNK_SIZE && take_size(framing, c, error))
        return -1;
    if (framing->part == HTTP_CHUNK_EXTENSION && c == '\n')
        next_part(framing, framing->left_bytes > 0 ? HTTP_CHUNK_DATA : HTTP_CHUNK_TRAILER);
    else if (framing->part == HTTP_CHUNK_END && c == '\n')
        next_part(framing, HTTP_CHUNK_SIZE);
    else if (framing->part == HTTP_CHUNK_END && c != '\r')
        return malformed(error, "a chunk is longer than its size");
    else if (framing->part == HTTP_CHUNK_TRAILER) {
        if (++framing->n_seen > MAX_TRAILER_BYTES)
            return malformed(error, "its trailer is too long");
        if (c != '\n')
            framing->line_bytes -= c == '\r';
        else if (framing->line_bytes == 1)
            framing->is_over = true;
        else
            framing->line_bytes = 0;
    }
    return 0;
}

size_t http_framing_take(struct http_framing *framing, const char *bytes, size_t count, const char **body, size_t *n_body,
                         struct error *error)
{
    bool is_chunked = framing->kind == HTTP_FRAMING_CHUNKED;
    size_t used = 0;
    while (is_chunked && used < count && !framing->is_over && framing->part != HTTP_CHUNK_DATA)
        if (take_between(framing, bytes[used++], error))
            return SIZE_MAX;
    *body = bytes + used;
    *n_body = 0;
    if (framing->is_over || used == count)
        return used;
    *n_body = count - used < framing->left_bytes ? count - used : (size_t)framing->left_bytes;
    framing->left_bytes -= *n_body;
    if (framing->left_bytes == 0 && is_chunked)
        next_part(framing, HTTP_CHUNK_END);
    else
        framing->is_over = framing->left_bytes == 0 && !is_chunked;
    return used + *n_body;
}
