/* Patterns of names: `{}` is a decimal number, `*` any run of characters, everything else itself. What they stood for is
 * filled into a template, whose k-th `{}` is the k-th of the pattern and whose k-th `*` the k-th.
 *
 * Where a name can be matched in several ways, earlier wildcards take as much as they can. Time grows with the length of the
 * pattern times that of the name squared: it is counted, and ends at a limit. Pure; any thread. */
#ifndef RECIPE_PATTERN_H
#define RECIPE_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum { PATTERN_MAX_WILDCARDS = 16 };

struct pattern {
    const char *text; /* borrowed */
    size_t length;
    uint32_t n_numbers, n_runs; /* of `{}` and of `*` */
};

struct captured {
    const char *text; /* in the name */
    size_t length;
};

struct pattern_match {
    struct captured numbers[PATTERN_MAX_WILDCARDS], runs[PATTERN_MAX_WILDCARDS];
    uint32_t n_numbers, n_runs;
};

/* False: it has too many wildcards. */
bool pattern_init(struct pattern *pattern, const char *text, size_t length);
/* 1 or 0; -1 where there is no memory, or TOO_MANY_PATTERNS when *steps_left, from which is taken, becomes 0. match may be NULL. */
int pattern_match(const struct pattern *pattern, const char *name, size_t length, struct pattern_match *match,
                  uint64_t *steps_left, struct error *error);

/* A template needs no more wildcards of each kind than the pattern has. */
bool pattern_can_fill(const struct pattern *pattern, const struct pattern *template);
size_t pattern_filled_length(const struct pattern *template, const struct pattern_match *match);
/* Writes that many bytes and a NUL. */
void pattern_fill(const struct pattern *template, const struct pattern_match *match, char *out);

#endif
