/* A page of a file costs its fault and, when it is not in the page cache, the device; whole pages, whatever of them is wanted.
 * So rows that are narrow and far apart may be cheaper to copy. */
#include "plan/mapped_choice.h"

#include <string.h>

#include "base/clock.h"
#include "plan/steps.h"

/* The kernel maps this much around a page that is touched, if it is in the page cache (fault_around_bytes), and reads about as
 * much at once if it is not. */
static const struct step_rule around_a_fault = {.join_below_bytes = 64 << 10, .hull_below_bytes = 64 << 10};

/* Measured with views of cached files on two kinds of machines: 0.8 to 2 us for 64 KiB, and what a fault costs at least. */
static const double FAULT_NS = 500, FAULTED_BYTES_PER_NS = 40;

static double estimate_ms(const struct mapping *mapping, const struct cost_constants *costs, double cached_share)
{
    struct step_totals touched = steps_measure(mapping, around_a_fault);
    struct cost_work waiting = {.requests = touched.requests, .read_bytes = touched.read_bytes};
    double working_ms =
        ((double)touched.requests * FAULT_NS + (double)touched.read_bytes / FAULTED_BYTES_PER_NS) / NS_PER_MS;
    double waiting_ms = (1 - cached_share) * cost_estimate_ms(costs, &waiting);
    return waiting_ms > working_ms ? waiting_ms : working_ms;
}

struct mapped_choice mapped_choose(const struct mapping *mapping, const struct mapped_facts *facts,
                                   const struct cost_constants *costs, double cached_share, double copied_ms,
                                   struct arena *arena)
{
    struct mapped_choice choice = {.is_known = facts != NULL};
    if (!facts)
        return choice;
    choice.is_possible = facts->is_possible;
    choice.proof = facts->proof;
    choice.reason = facts->reason ? arena_text(arena, facts->reason, strlen(facts->reason)) : NULL;
    if (!choice.is_possible)
        return choice; /* it takes as long as the plan to look at every row */
    choice.estimated_ms = estimate_ms(mapping, costs, cached_share);
    choice.is_quicker = choice.estimated_ms <= copied_ms;
    return choice;
}
