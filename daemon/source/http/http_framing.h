/* Where the body of an answer ends: by its length, in chunks, or with the connection (RFC 9112, section 6). Pure; one thread
 * at a time. What contradicts itself is refused, not guessed. */
#ifndef SOURCE_HTTP_FRAMING_H
#define SOURCE_HTTP_FRAMING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "source/http/http.h"

enum http_framing_kind { HTTP_FRAMING_LENGTH, HTTP_FRAMING_CHUNKED, HTTP_FRAMING_CLOSE };

struct http_framing {
    enum http_framing_kind kind;
    uint64_t left_bytes; /* of the body, or of the chunk */
    bool is_over;        /* all of the body was taken */
    bool ends_connection;
    /* chunked: what comes next, and how much of it there was */
    enum { HTTP_CHUNK_SIZE, HTTP_CHUNK_EXTENSION, HTTP_CHUNK_DATA, HTTP_CHUNK_END, HTTP_CHUNK_TRAILER } part;
    uint32_t n_seen, line_bytes;
};

/* Of a GET's answer with this head. is_old: HTTP/1.0. UNAVAILABLE when no body can be told from it. */
int http_framing_begin(struct http_framing *framing, const struct http_head *head, bool is_old, struct error *error);

/* Takes from the `count` bytes that came next; returns how many were used, and in *body the *n_body of them that belong to
 * the body (may be 0). Call again with the rest until nothing is left or `is_over`. SIZE_MAX: malformed. */
size_t http_framing_take(struct http_framing *framing, const char *bytes, size_t count, const char **body, size_t *n_body,
                         struct error *error);

#endif
