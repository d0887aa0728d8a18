/* Generic byte-range: reads exactly what the view needs, row by row; only what is exactly adjacent in the file becomes one
 * request. It takes any view and any device, so it is the backstop of every plan. */
#include "plan/candidate.h"

void candidate_generic_build(const struct planning *planning, struct proposal *proposal)
{
    *proposal = (struct proposal){.candidate.executor = EXECUTOR_GENERIC_BYTE_RANGE, .rule = STEP_RULE_EXACT};
    candidate_measure(planning, proposal);
    candidate_judge(&proposal->candidate, true, "exact_generic_fallback");
}
