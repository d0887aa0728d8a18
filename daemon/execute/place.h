/* Puts bytes where a part wants them and keeps the books: pages are made ready, copies and placed bytes are counted. */
#ifndef EXECUTE_PLACE_H
#define EXECUTE_PLACE_H

#include "execute/item.h"

/* Makes [offset, offset + bytes) ready. False when that failed: the part has the error and takes no more. */
bool place_prepare(struct part *part, uint64_t offset, uint64_t bytes);
/* The same for everything that it gets of this range of the file, in few calls: the kernel's part of that has a price each.
 */
void place_prepare_range(struct part *part, struct range range);

/* Moves rows to `dst_offset` and on; source_offset is where the first begins in the file when they are src_stride apart
 * there too, or TRANSPORT_UNKNOWN. A dst_stride that wraps around goes backwards: that is a call for each row where the
 * destination has no address. False as above. */
bool place_rows(struct part *part, uint64_t dst_offset, const void *src, const struct device_rows *rows,
                uint64_t source_offset);

/* Where to write directly: made ready; NULL when the part has failed, or its destination has no address. */
unsigned char *place_find(struct part *part, uint64_t offset, uint64_t bytes);
/* So many bytes were written there. */
void place_count(struct part *part, uint64_t bytes);

#endif
