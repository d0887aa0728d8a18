/* Clips: what of a mapping's transfers lies in a window of a part file, as equal rows, partial ones apart. */
#ifndef EXECUTE_CLIP_H
#define EXECUTE_CLIP_H

#include "execute/item.h"
#include "execute/window.h"

/* What a smaller window would spare: clips of transfers that begin in the range (those that reach into it from before are in
 * every part of it), and the rows of steps, of which those without gaps count as few. Stops counting at `enough`. */
uint64_t clip_count_new(const struct part *part, struct range range, uint64_t enough);

/* Those of all parts that have not failed: sorted by source offset within a part. An element that is converted belongs to
 * the window of its first byte. */
void clip_collect(struct clips *clips, const struct item *item, struct range range);
void clip_add(struct clips *clips, struct clip clip);
int clip_compare(const void *a, const void *b); /* by offset in the file, then at the destination */

static inline uint64_t clip_bytes(const struct clip *clip) /* of the file */
{
    return clip->src.count * clip->src.bytes;
}

/* NULL = a copy. */
static inline const struct operation *clip_operation(const struct clip *clip, const struct item *item)
{
    return clip->operation ? &item->parts[clip->part].run->options.mapping->operations[clip->operation] : NULL;
}

/* What one row takes at its destination. */
static inline uint64_t clip_row_bytes(const struct clip *clip, const struct item *item)
{
    const struct operation *operation = clip_operation(clip, item);
    return operation ? operation_dst_bytes(operation, clip->src.bytes) : clip->src.bytes;
}

/* Where it is written, from the first to behind the last byte; `row_bytes` as above. */
static inline struct transfer_extent clip_extent(const struct clip *clip, uint64_t row_bytes)
{
    return transfer_extent(clip->dst_offset, clip->src.count, clip->dst_stride, row_bytes);
}
uint64_t clip_sum_bytes(const struct clips *clips);
uint64_t clip_sum_rows(const struct clips *clips);
bool clip_have_operations(const struct clips *clips);

/* Index of the first of the plan's steps in the file that ends behind `at`, as mapping_find() of transfers. */
size_t clip_find_step(const struct plan *plan, uint32_t file, uint64_t at);

#endif
