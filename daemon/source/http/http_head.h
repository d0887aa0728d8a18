/* The head of an answer, line by line as libcurl hands it over, bounded in size and count; and whether this answer is the one
 * that was asked for, decided from the head alone, before a byte of the body is taken. Pure; one thread at a time. */
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
    size_t headers_room, n_bytes;
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
/* What the server calls this request, or NULL: the id to quote to its operator. */
const char *http_head_request_id(const struct http_head *head);

struct http_expectation {
    bool is_range; /* bytes first_byte .. end were asked for */
    bool is_exact; /* of an object whose size is known: 206, or 200 for all of it, and it must still have that size */
    bool has_no_body;
    uint64_t first_byte, end, object_bytes;
    uint64_t max_bytes; /* a document's */
};

enum http_fault {
    HTTP_FAULT_NONE,
    HTTP_FAULT_PASSING,  /* the store's check said ABORTED: worth a retry like a 503 */
    HTTP_FAULT_PROTOCOL, /* the server does not do what HTTP says: worth one more try */
    HTTP_FAULT_FINAL,
};

/* For 2xx. body_bytes: how long the body must be, UINT64_MAX = not announced. */
enum http_fault http_answer_check(const struct http_expectation *expected, const struct http_head *head,
                                  uint64_t *body_bytes, struct error *error);

#endif
