/* Which blocks of which part files a run needs. Pure but for memory; any thread. */
#ifndef EXECUTE_NEEDS_H
#define EXECUTE_NEEDS_H

#include "execute/engine_private.h"

/* Fills run->needs from its plan and mapping. */
void needs_build(struct run *run, uint64_t block_bytes);

/* Reading the block mostly serves others: their turn comes late, when the others are here. */
static inline bool need_is_amplified(const struct need *need)
{
    return need->wanted_bytes < need->read_bytes / 8 * 7;
}

#endif
