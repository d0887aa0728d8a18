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

void scan_attach(struct engine *engine, struct run *run); /* after needs_build() */
void scan_detach(struct engine *engine, struct run *run);

/* Finds the run's next block that nobody is at and fills in the item with it, with a part for every run that still needs it.
 * Blocks in flight are put off: when they are done their bytes can be copied. */
bool scan_take(struct run *run, struct item *item);

/* Index of the run's need for a block, SIZE_MAX when it has none. */
size_t scan_find_need(const struct run *run, uint32_t file, uint64_t block);
/* Nobody is at this block now. */
bool scan_is_takeable(struct run *run, size_t need);
/* Fills in the item with this pending need, as scan_take() does. */
void scan_take_need(struct run *run, size_t need, struct item *item);

/* Whether a run that is active still needs this block. */
bool scan_is_wanted(const struct scan *scan, uint64_t block);

/* Whether the member's run has finished this block. */
bool scan_is_done(const struct member *member, uint64_t block);

#endif
