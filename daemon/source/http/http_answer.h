/* Is this answer the one that was asked for? Decided from its head alone, before a byte of the body is taken. Pure. */
#ifndef SOURCE_HTTP_ANSWER_H
#define SOURCE_HTTP_ANSWER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "source/http/http.h"

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
