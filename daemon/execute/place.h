/* Puts bytes into a part's segment and keeps the books: pages are made ready, copies and placed bytes are counted. */
#ifndef EXECUTE_PLACE_H
#define EXECUTE_PLACE_H

#include "execute/engine_private.h"

/* Makes the pages of [offset, offset + bytes) ready. False when that failed: the part has the error and takes no more. */
bool place_prepare(struct part *part, uint64_t offset, uint64_t bytes);

/* Moves rows to where they lie packed; rows.offset is where the first begins in the file and the rows are as far apart
 * there, or TRANSPORT_UNKNOWN. False as above. */
bool place_rows(struct part *part, uint64_t dst_offset, const unsigned char *src, struct rows rows);

/* Copies to an address of the part's segment that was made ready. False as above. */
bool place_copy(struct part *part, unsigned char *dst, const unsigned char *src, uint64_t bytes);

#endif
