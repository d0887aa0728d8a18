/* One request about to be sent: what the call wants, then what the store's prepare() adds. Caller's thread. */
#ifndef SOURCE_HTTP_ATTEMPT_H
#define SOURCE_HTTP_ATTEMPT_H

#include <stdbool.h>
#include <stddef.h>

#include "source/http/http.h"

struct http_attempt {        /* zeroed = empty */
    struct url where;        /* the URL taken apart, once it is admitted: what is compared is what is connected to */
    struct http_guard guard; /* of its connection */
    char *method, *url;
    const void *body;
    size_t body_bytes;
    struct http_header *headers; /* owned, as are their strings */
    size_t n_headers, headers_room;
    uint64_t credential; /* which one prepare used */
    const char *ca_file; /* what prepare named, or NULL */
    bool is_malformed;   /* a header held a line break */
};

/* is_foreign: to another host than the call's; only headers that say nothing about who asks go there. */
void http_attempt_begin(struct http_attempt *attempt, const struct http_call *call, const char *url, bool is_foreign);
void http_attempt_clear(struct http_attempt *attempt);
/* The URL is final: through the fence, then into the one form in which it is sent. */
int http_attempt_admit(struct http_attempt *attempt, const struct http_call *call, const struct http_fence *fence,
                       struct error *error);
bool http_attempt_has_header(const struct http_attempt *attempt, const char *name); /* in any case */

#endif
