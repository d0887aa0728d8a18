/* One item of work: a block of a part file, window by window, each read once for every run that needs it. */
#ifndef EXECUTE_BLOCK_H
#define EXECUTE_BLOCK_H

#include "execute/engine_private.h"

/* Fills the parts' reports, placed bytes and errors. Takes the lock for moments only. */
void block_run(struct worker *worker);

#endif
