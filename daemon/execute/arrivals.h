/* Bytes of a remote block that have come while its read goes on, for progress: a block is up to 16 MiB, and minutes on a
 * slow link. Each run of the item counts its share of them, up to what it wants of the read, until the item is complete and
 * what was placed is counted instead. */
#ifndef EXECUTE_ARRIVALS_H
#define EXECUTE_ARRIVALS_H

#include "execute/item.h"
#include "execute/window.h"

/* Before the requests are read into the places of the clips; also several times for an item. What source_read() has to be
 * given; NULL for a local source. */
struct arrival *arrivals_begin(struct item *item, const struct clips *clips, const struct extents *requests);
/* Under the lock: counts what was placed instead. Of every item but set-up. */
void arrivals_end(const struct item *item, const struct part *part);

#endif
