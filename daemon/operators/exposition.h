/* Metrics as text: Prometheus' format 0.0.4, or OpenMetrics 1.0.0. Families in any order, each with its samples behind it.
 *
 *     exposition_family(&out, "tensorcast_loads", EXPOSITION_COUNTER, "requests that have ended");
 *     exposition_u64(&out, "tensorcast_loads", 3, (struct exposition_label[]){{"code", "OK"}, {0}});
 *     text = exposition_end(&out, &length);
 *
 * The name of a counter has no "_total" here. Not thread-safe per object. */
#ifndef OPERATORS_EXPOSITION_H
#define OPERATORS_EXPOSITION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum exposition_type { EXPOSITION_COUNTER, EXPOSITION_GAUGE, EXPOSITION_HISTOGRAM };

struct exposition {
    bool is_openmetrics;
    enum exposition_type type; /* of the current family */
    FILE *out;
    char *text;
    size_t length;
};

struct exposition_label { /* a list ends with one whose key is NULL; a value may be any bytes */
    const char *key, *value;
};

void exposition_begin(struct exposition *exposition, bool is_openmetrics); /* to be ended by exposition_end() */
void exposition_family(struct exposition *exposition, const char *name, enum exposition_type type, const char *help);
/* labels NULL = none */
void exposition_u64(struct exposition *exposition, const char *name, uint64_t value, const struct exposition_label *labels);
void exposition_real(struct exposition *exposition, const char *name, double value, const struct exposition_label *labels);

struct exposition_histogram {
    const double *bounds;    /* upper bounds, rising */
    const uint64_t *numbers; /* of each bucket alone; one more than bounds */
    size_t n_bounds;
    double sum;
};
void exposition_histogram(struct exposition *exposition, const char *name, const struct exposition_histogram *histogram,
                          const struct exposition_label *labels);
char *exposition_end(struct exposition *exposition, size_t *length); /* the caller frees */

#endif
