/* Bytes that another run has in its memory already: copied from there instead of being read again. */
#ifndef EXECUTE_PROVIDER_H
#define EXECUTE_PROVIDER_H

#include "execute/item.h"
#include "execute/window.h"

/* Copies what runs that have finished this block hold of the clips, and leaves there what they have not. False when they had
 * nothing. Without the lock: they are pinned meanwhile. */
bool provider_take(struct item *item, struct clips *clips);

#endif
