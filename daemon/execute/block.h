/* One item of work: a block of a part file, window by window, each read once for every run that needs it. */
#ifndef EXECUTE_BLOCK_H
#define EXECUTE_BLOCK_H

#include "execute/engine_private.h"

/* Fills the parts' reports, placed bytes and errors. Takes the lock for moments only. */
void block_run(struct worker *worker);

/* What blocks of remote sources need as well. */
void block_prepare_part(struct part *part, uint64_t lo, uint64_t hi); /* all pages that it gets bytes into */
void block_use_temporary(struct worker *worker, uint64_t bytes, bool begins);
void block_fail_parts(struct worker *worker, const struct error *error); /* those that clips are left of */
void block_share_time(struct worker *worker); /* of the whole item, by what was done for each part */

#endif
