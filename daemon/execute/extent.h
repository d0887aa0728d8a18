/* Extents: what has to be read of a window, and on whose behalf. */
#ifndef EXECUTE_EXTENT_H
#define EXECUTE_EXTENT_H

#include "execute/engine_private.h"

/* Fills worker->extents with the steps of all parts in [lo, hi): sorted and disjoint, each byte charged to one part only.
 * With only_clips it keeps just what worker->clips still need: the rest came from elsewhere. */
void extent_collect(struct worker *worker, uint64_t lo, uint64_t hi, bool only_clips);

/* Cuts [lo, hi) out of the extents: it is here already. */
void extent_subtract(struct worker *worker, uint64_t lo, uint64_t hi);

/* Joins neighbours with smaller gaps than this; the first one's part is charged with all of it. */
void extent_join(struct worker *worker, uint64_t gap_bytes);

/* Adds the extents to the parts' reports: read, requests, and as shared whatever of their clips is not read for them. */
void extent_charge(struct worker *worker, double cached_share);

/* Fills worker->requests: extents widened to `alignment` within the window and joined where the gap is no larger than a
 * page, which the kernel or the device would read anyway. */
void extent_requests(struct worker *worker, uint64_t alignment);
/* Adds a range that needs no reading to the requests, which stay sorted. */
void extent_add_request(struct worker *worker, uint64_t lo, uint64_t hi);

#endif
