/* Scans: which runs want which blocks of one version of a part file, and who reads them. All under the engine's lock. */
#ifndef EXECUTE_SCAN_H
#define EXECUTE_SCAN_H

#include "execute/item.h"
#include "execute/ledger.h"

struct scan { /* one version of one part file, in blocks of one size */
    struct source_identity identity;
    const struct source *source; /* only for sources without identities */
    uint32_t file;
    uint64_t block_bytes;
    struct member *members;
    struct ledger ledger; /* of what was read of it; kind is const */
    struct scan *next;
};

void scan_attach(struct engine *engine, struct run *run); /* after run_build_needs() */
void scan_detach(struct engine *engine, struct run *run);

/* Finds the run's next block that no worker is at and fills in the item with it, with a part for every run that still needs it.
 * Blocks in flight are put off: when they are done their bytes can be copied. */
bool scan_take(struct run *run, struct item *item);

/* Index of the run's need for a block, SIZE_MAX when it has none. */
size_t scan_find_need(const struct run *run, uint32_t file, uint64_t block);
/* No worker is at this block now. */
bool scan_is_takeable(struct run *run, size_t need);
/* Fills in the item with this pending need, as scan_take() does. */
void scan_take_need(struct run *run, size_t need, struct item *item);

/* Whether a run that is active still needs this block. */
bool scan_is_wanted(const struct scan *scan, uint64_t block);

/* Whether the member's run has finished this block. */
bool scan_is_done(const struct member *member, uint64_t block);

/* Verification: reads for which a checksum is known are summed on the way, see ledger.h. A worker that reads a part file for
 * an item asks scan_sum_kind() which CRC to ask the source for, and after a good read gives what came to scan_add_sum(). Gaps
 * that are thrown away count as well. */

/* For source_read.checksum. Any thread. */
static inline enum checksum_kind scan_sum_kind(const struct scan *scan)
{
    return scan->ledger.kind;
}

/* A read of these bytes of the scan's file went well; takes the engine's lock. Does nothing when nothing was summed. */
void scan_add_sum(struct engine *engine, struct scan *scan, const struct source_read *read, uint64_t bytes);

/* Which CRC the scans of this run are to sum, by what there is to compare it with; CHECKSUM_NONE where the source cannot
 * sum on the way. */
enum checksum_kind scan_choose_sum(const struct run *run, uint32_t file);

/* What is known of a file by now, a copy; ledger_fini() it. Takes the engine's lock. */
struct ledger scan_copy_sums(struct run *run, uint32_t file);
/* A range was read again; see ledger_correct(). Takes the engine's lock. */
void scan_correct_sums(struct run *run, uint32_t file, const struct ledger_range *range);

#endif
