/* What the engine's own files call of the collective. All under the engine's lock but for collective_use_temporary(). */
#ifndef EXECUTE_COLLECTIVE_PRIVATE_H
#define EXECUTE_COLLECTIVE_PRIVATE_H

#include "execute/engine_private.h"

void collective_attach(struct run *run); /* when it starts */
void collective_gather(struct run *run); /* it is set up; the last one lets all of them begin */
void collective_part_with(struct run *run); /* it ended; if before it was set up, nobody waits for it any more */
/* When it is destroyed. The last one gets the collective, to destroy it without the lock: closing a transport may take long. */
struct collective *collective_detach(struct run *run);

/* The next block of the open batches becomes the worker's item. */
bool collective_take(struct collective *collective, struct worker *worker);
/* No batch has anything left to take: what a run still needs is residual. */
bool collective_is_exhausted(const struct collective *collective);

/* Whether the worker's item is the last of its batch, which is to be flushed before the item is completed. */
bool collective_ends_batch(const struct worker *worker);
int collective_flush(struct collective *collective, struct error *error); /* without the lock */
void collective_complete(struct worker *worker);
void collective_count(const struct part *part);

void collective_use_temporary(struct collective *collective, uint64_t bytes, bool begins);

#endif
