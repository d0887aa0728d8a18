/* Byte runs -> extents to read: the one walk that every candidate's numbers and the chosen plan's steps come from.
 *
 * A rule says when neighbours become one request. Exact = {1, 1}: only what is exactly adjacent. Pure; the steps lie in
 * the plan's arena. */
#ifndef PLAN_STEPS_H
#define PLAN_STEPS_H

#include <stddef.h>
#include <stdint.h>

#include "plan/plan.h"
#include "resolve/mapping.h"

struct step_rule {
    uint64_t join_below_bytes; /* extents with a smaller gap than this between them become one */
    uint64_t hull_below_bytes; /* rows with a smaller gap than this are read in one piece, from the first to the last */
    uint64_t grid_bytes;       /* extents are asked for in pieces that end at its multiples; 0 = whole */
};

#define STEP_RULE_EXACT ((struct step_rule){.join_below_bytes = 1, .hull_below_bytes = 1})

struct step_totals {
    size_t n_steps;
    uint64_t requests, read_bytes; /* pieces on the grid; sum of count * bytes */
};

struct step_totals steps_measure(const struct mapping *mapping, struct step_rule rule);

/* Fills plan->steps, n_steps and file_first. */
int steps_build(const struct mapping *mapping, struct step_rule rule, struct plan *plan, struct error *error);

#endif
