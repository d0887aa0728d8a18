/* The part of explain that is about a whole group. Private to plan/. */
#ifndef PLAN_EXPLAIN_GROUP_H
#define PLAN_EXPLAIN_GROUP_H

#include <stdio.h>

#include "plan/plan.h"

/* Nothing when the request named no group. */
void explain_group(const struct plan *plan, const struct plan_facts *facts, FILE *out);

#endif
