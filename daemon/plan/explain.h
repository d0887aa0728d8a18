/* A plan as text that a person enjoys reading: one line per candidate, the chosen one marked, then the steps per file.
 * Pure and deterministic (golden files). The caller frees. */
#ifndef PLAN_EXPLAIN_H
#define PLAN_EXPLAIN_H

#include <stdio.h>

#include "plan/plan.h"

char *explain_text(const struct plan *plan, const struct mapping *mapping, const struct plan_facts *facts);

/* The part that is about a whole group; nothing when the request named none. */
void explain_group(const struct plan *plan, const struct plan_facts *facts, FILE *out);

#endif
