/* What the engine's own files call of the collective. All under the engine's lock except for collective_prepare() and
 * collective_use_temporary(). */
#ifndef EXECUTE_COLLECTIVE_PRIVATE_H
#define EXECUTE_COLLECTIVE_PRIVATE_H

#include "execute/item.h"

void collective_attach(struct run *run); /* when it starts */
/* Before it is set up: the blocks of a remote source are others, which are unknown before there is a run. */
int collective_prepare(struct run *run, struct error *error);
void collective_gather(struct run *run);    /* it is set up; the last one lets all of them begin */
void collective_lose(struct run *run);      /* it has failed; with the last one that has, the transport need not go on */
void collective_part_with(struct run *run); /* it is done; if before it was set up, no rank waits for it any more */
/* When it is destroyed. The last one gets the collective, to destroy it without the lock: closing a transport may take long.
 */
struct collective *collective_detach(struct run *run);

/* Fills in the item with the next block of the open batches. */
bool collective_take(struct collective *collective, struct item *item);
/* No batch has anything left to take: what a run still needs is residual. */
bool collective_is_exhausted(const struct collective *collective);

/* Before the item is completed: flushes what is on its way when that is the end of a batch or of a run. Releases
 * the lock meanwhile. When it cannot, fails every run of the collective: fail_run is run_fail(). */
void collective_settle(struct item *item, void (*fail_run)(struct run *run, const struct error *error));
void collective_complete(struct item *item);
void collective_count(const struct part *part);

void collective_use_temporary(struct collective *collective, uint64_t bytes, bool begins);

#endif
