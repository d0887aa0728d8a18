/* The engine's side of verification: reads for which a checksum is known are summed on the way, see ledger.h.
 *
 * Whoever reads a part file for an item asks sums_kind() which CRC to ask the source for, and after a good read gives what
 * came to sums_add(). Gaps that are thrown away count as well. */
#ifndef EXECUTE_SUMS_H
#define EXECUTE_SUMS_H

#include "execute/ledger.h"
#include "execute/scan.h"

/* For source_read.checksum. Any thread. */
static inline enum checksum_kind sums_kind(const struct scan *scan)
{
    return scan->ledger.kind;
}

/* A read of these bytes of the scan's file went well; takes the engine's lock. Does nothing when nothing was summed. */
void sums_add(struct engine *engine, struct scan *scan, const struct source_read *read, uint64_t bytes);

/* Which CRC the scans of this run are to sum, by what there is to compare it with; CHECKSUM_NONE where the source cannot
 * sum on the way. */
enum checksum_kind sums_choose(const struct run *run, uint32_t file);

/* What is known of a file by now, a copy; ledger_fini() it. Takes the engine's lock. */
struct ledger sums_copy(struct run *run, uint32_t file);
/* A range was read again; see ledger_correct(). Takes the engine's lock. */
void sums_correct(struct run *run, uint32_t file, const struct ledger_range *range);

#endif
