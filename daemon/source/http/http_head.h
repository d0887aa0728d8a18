/* The head of an answer, line by line as libcurl hands it over, bounded in size and count. One thread at a time. */
#ifndef SOURCE_HTTP_HEAD_H
#define SOURCE_HTTP_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "source/http/http.h"

enum { HTTP_HEAD_MAX_BYTES = 64 << 10, HTTP_HEAD_MAX_LINES = 256 };

struct http_head_builder { /* zeroed = empty */
    struct http_head head; /* what is shown; its headers point into lines */
    struct http_header *headers;
    size_t n_headers, headers_room, n_bytes;
};

/* A status line begins a new head (100 Continue may come first). Anything else is "Name: value".
 * UNAVAILABLE when it is malformed or too much. */
int http_head_add_line(struct http_head_builder *builder, const char *line, size_t count, struct error *error);
void http_head_clear(struct http_head_builder *builder);
/* Takes what was collected; free with http_head_free(). */
struct http_head http_head_take(struct http_head_builder *builder);
void http_head_free(struct http_head *head);

/* "bytes 0-99/1000". total_bytes is UINT64_MAX for "*". */
struct http_content_range {
    uint64_t first, last, total_bytes;
};
bool http_head_content_range(const struct http_head *head, struct http_content_range *range);
bool http_head_content_length(const struct http_head *head, uint64_t *bytes);
/* What the server calls this request, or NULL: the id to quote to whoever runs it. */
const char *http_head_request_id(const struct http_head *head);

#endif
