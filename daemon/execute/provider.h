/* Bytes that another run has in its segment already: copied from there instead of being read again. */
#ifndef EXECUTE_PROVIDER_H
#define EXECUTE_PROVIDER_H

#include "execute/engine_private.h"

/* Copies what runs that have finished this block hold of worker->clips, and leaves there what they have not. False when they
 * had nothing. Without the lock: they are pinned meanwhile. */
bool provider_take(struct worker *worker);

#endif
