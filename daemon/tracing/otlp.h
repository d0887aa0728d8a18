/* Traces of loads to an OpenTelemetry collector. A queue of OTLP_MAX_WAITING, from which a thread sends; what finds no room, or
 * cannot be delivered after a few tries, is counted and dropped. Loop thread, except for the thread itself. */
#ifndef TRACING_OTLP_H
#define TRACING_OTLP_H

#include "config/config.h"
#include "load/trace.h"

enum { OTLP_MAX_WAITING = 256 };

struct otlp;

/* Whether tracing.otlp_endpoint is empty or a base URL: 0 or -1. Any thread. */
int otlp_check(const struct config *config, struct error *error);
/* *otlp: NULL when tracing.otlp_endpoint is empty. -1: it is no URL, or there is no thread; *otlp is to be destroyed then,
 * too. */
int otlp_create(const struct config *config, struct otlp **otlp, struct error *error);
struct trace_sink *otlp_sink(struct otlp *otlp); /* accepts NULL, and returns it */
/* What waits is sent if that takes no longer than a second. Accepts NULL. */
void otlp_destroy(struct otlp *otlp);

#endif
