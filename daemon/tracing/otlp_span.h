/* A load's trace as OTLP's JSON: a root span "load" with a child for each stage. Pure, except that ids are random. */
#ifndef TRACING_OTLP_SPAN_H
#define TRACING_OTLP_SPAN_H

#include "load/trace.h"

struct otlp_resource { /* who sends; borrowed */
    const char *host, *version;
    pid_t pid;
};

/* One element of "resourceSpans". The caller frees. */
char *otlp_span_write(const struct trace *trace, const struct otlp_resource *resource);

#endif
