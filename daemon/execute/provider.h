/* Bytes that another run has in its segment already: copied from there instead of being read again. */
#ifndef EXECUTE_PROVIDER_H
#define EXECUTE_PROVIDER_H

#include "execute/engine_private.h"

/* Under the lock: finds and pins runs that have finished this block. Returns whether there are any. */
bool provider_pin(struct worker *worker);
/* Copies what the pinned runs have and leaves in worker->clips what they have not. False when they had nothing. */
bool provider_copy(struct worker *worker);
/* Under the lock. */
void provider_unpin(struct worker *worker);

#endif
