/* The candidates of the facade. Private to plan/.
 *
 * A candidate fills in its numbers and says in `reason` whether it may run; a step rule says how it would read. It never
 * selects: plan.c does. Reasons and what to do about them: docs/planning.md. */
#ifndef PLAN_CANDIDATE_H
#define PLAN_CANDIDATE_H

#include <stdint.h>

#include "plan/plan.h"
#include "plan/steps.h"

struct planning { /* what every candidate looks at */
    const struct mapping *mapping;
    const struct load_spec *spec;
    const struct plan_facts *facts;
    uint64_t merge_gap_bytes;
    uint64_t n_rows; /* of all runs: pieces that land in the replica; of single elements many count as one */
};

struct proposal {
    struct candidate candidate;
    struct step_rule rule;
};

void candidate_generic_build(const struct planning *planning, struct proposal *proposal);
void candidate_local_build(const struct planning *planning, const struct proposal *generic, struct proposal *proposal);
/* The request says that the ranks read one source: a guess never counts. */
bool candidate_collective_is_proven(const struct planning *planning);
void candidate_collective_build(const struct planning *planning, const struct proposal *generic, struct proposal *proposal);

/* Fills in the numbers of reading by proposal->rule. unique_source_bytes has to be known, or 0 when the rule is exact. */
void candidate_measure(const struct planning *planning, struct proposal *proposal);
void candidate_judge(struct candidate *candidate, struct reason reason);
/* facts NULL = it was not asked for. copied_ms: what the plan estimates for copying. The reason is copied to the arena. */
struct mapped_choice candidate_mapped(const struct mapping *mapping, const struct mapped_facts *facts,
                                      const struct cost_constants *costs, double cached_share, double copied_ms,
                                      struct arena *arena);

#endif
