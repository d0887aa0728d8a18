/* Where tensors begin in the replica with PLACEMENT_SOURCE: so that a disk can write blocks of the files straight to where
 * they belong.
 *
 *     file       ...|----|----|----|...     blocks, as the device reads them
 *     replica    ...|----|----|----|...     a tensor begins as many bytes behind a block's edge as it does in its file
 *
 * A disk writes whole blocks, to memory that is aligned like the offset in the file; where the two differ, every byte has to
 * be copied once more. So a tensor's offset in the replica is congruent to that in its file, modulo PLACEMENT_BLOCK_BYTES.
 *
 * The rule: tensors lie in the order of their files and offsets there, whatever the view's order is. What follows each other
 * in a file without a gap is an extent, and stays one. An extent of PLACEMENT_EXTENT_BYTES or more begins at the next
 * congruent offset, so padding is less than a block for each of them, a sixteenth at most. All else is packed, each tensor
 * at the next multiple of its alignment: shorter extents, columns with rows below PLACEMENT_ROW_BYTES, and what is computed.
 * So is a tensor whose offset in the file is no multiple of its alignment (the view's, or without one the size of its
 * elements): alignment goes before congruence. */
#ifndef RESOLVE_PLACEMENT_H
#define RESOLVE_PLACEMENT_H

#include "resolve/mapping.h"

/* Logical blocks of disks have 512 or 4096 bytes; a multiple of both, and a page, so that buffers never end within one. */
#define PLACEMENT_BLOCK_BYTES ((uint64_t)4096)
#define PLACEMENT_EXTENT_BYTES (16 * PLACEMENT_BLOCK_BYTES)
#define PLACEMENT_ROW_BYTES (8 * PLACEMENT_BLOCK_BYTES) /* shorter rows are more work one by one than a copy */

/* Of a mapping that is complete except for this: its tensors have no offsets, and transfers count from the beginning of their
 * tensor. Fills in offsets and replica_bytes. mapping->align_bytes 0 = the size of the elements. */
int placement_by_source(struct mapping *mapping, struct error *error);

#endif
