/* The W3C's traceparent: of which trace and span of another program a request is a part. Pure; any thread. */
#ifndef BASE_TRACEPARENT_H
#define BASE_TRACEPARENT_H

#include <stdbool.h>
#include <stddef.h>

enum { TRACE_ID_BYTES = 16, SPAN_ID_BYTES = 8, TRACEPARENT_CHARS = 55 };

struct traceparent {
    bool is_given, is_sampled; /* not sampled: the caller does not record it */
    unsigned char trace_id[TRACE_ID_BYTES], span_id[SPAN_ID_BYTES];
};

/* "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01". What is no such text gives nothing: is_given is false. Of a later
 * version the part that is known counts. */
struct traceparent traceparent_parse(const char *text, size_t length);

#endif
