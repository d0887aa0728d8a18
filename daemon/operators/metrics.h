/* All metrics as one text: counters of the process, which any thread reads, and gauges of a snapshot that the loop made.
 * Names and labels are a promise to operators: docs/monitoring.md. */
#ifndef OPERATORS_METRICS_H
#define OPERATORS_METRICS_H

#include <stdbool.h>
#include <stddef.h>

#include "operators/snapshot.h"

/* The caller frees. Any thread; reads /proc/self. */
char *metrics_text(const struct snapshot *snapshot, bool is_openmetrics, size_t *length);

#endif
