/* Which blocks of which part files a run needs. Pure but for memory; any thread. */
#ifndef EXECUTE_NEEDS_H
#define EXECUTE_NEEDS_H

#include "execute/run.h"

/* Fills in the list, which is metadata, from a plan and its mapping; when it runs out there are none. */
int needs_build(struct run_needs *needs, const struct plan *plan, const struct mapping *mapping, uint64_t block_bytes,
                struct error *error);

/* Reading the block mostly serves others: their turn comes late, when the others are here. */
static inline bool need_is_amplified(const struct need *need)
{
    return need->wanted_bytes < need->read_bytes / 8 * 7;
}

#endif
