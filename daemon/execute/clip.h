/* Clips: what of a run's byte runs lies in a window of a part file, as equal rows, partial ones apart. */
#ifndef EXECUTE_CLIP_H
#define EXECUTE_CLIP_H

#include "execute/engine_private.h"

/* How many rows (contiguous pieces) the part has in [lo, hi): what a window costs before it is cut into clips. Counts steps'
 * rows, too. Stops counting at `enough`. */
uint64_t clip_count_rows(const struct part *part, uint64_t lo, uint64_t hi, uint64_t enough);

/* Fills worker->clips for all parts in [lo, hi): sorted by source offset within a part. */
void clip_collect(struct worker *worker, uint64_t lo, uint64_t hi);

static inline uint64_t clip_bytes(const struct clip *clip)
{
    return clip->src.count * clip->src.bytes;
}

/* Index of the first byte run of the file that ends behind `at`. */
size_t clip_find_run(const struct mapping *mapping, uint32_t file, uint64_t at);
/* The same for a plan's steps. */
size_t clip_find_step(const struct plan *plan, uint32_t file, uint64_t at);

#endif
