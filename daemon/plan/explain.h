/* A plan as text that a person enjoys reading: one line per candidate, the chosen one marked, then the steps per file.
 * Pure and deterministic (golden files). The caller frees. */
#ifndef PLAN_EXPLAIN_H
#define PLAN_EXPLAIN_H

#include "plan/plan.h"

char *explain_text(const struct plan *plan, const struct mapping *mapping, const struct plan_facts *facts);

#endif
