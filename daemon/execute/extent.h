/* Extents: what has to be read of a window, and on whose behalf. */
#ifndef EXECUTE_EXTENT_H
#define EXECUTE_EXTENT_H

#include "execute/item.h"
#include "execute/window.h"

/* The steps of all parts in the range: sorted and disjoint, each byte charged to one part only. */
void extent_collect(struct extents *extents, const struct item *item, struct range range);
/* Keeps what the clips still need: the rest came from elsewhere. Sorts the clips by offset. `spans` is overwritten. */
void extent_keep_wanted(struct extents *extents, struct clips *clips, struct extents *spans);
/* Cuts the range out of the extents: it is here already. */
void extent_subtract(struct extents *extents, struct range range);
/* Joins neighbours with smaller gaps than this; the first one's part is charged with all of it. */
void extent_join(struct extents *extents, uint64_t gap_bytes);
/* Adds the extents to the parts' reports: read, requests, and as shared whatever of their clips is not read for them. */
void extent_charge(struct item *item, const struct extents *extents, const struct clips *clips, double cached_share);
/* Fills in requests: extents widened to `alignment`, a power of two, and joined where the gap is no larger than `gap_bytes`.
 */
void extent_plan_requests(struct extents *requests, const struct extents *extents, uint64_t alignment, uint64_t gap_bytes);
/* Adds a range that needs no reading to the requests, which stay sorted and disjoint. */
void extent_add_request(struct extents *requests, struct range range);

struct range extent_longest(const struct extents *extents); /* empty when there is none */
uint64_t extent_sum_bytes(const struct extents *extents);

#endif
