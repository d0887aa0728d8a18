/* One work item of a remote source: a block of a part file, asked for in as few requests as the gap rule allows.
 *
 *   other replicas have it      copied from there
 *   an image of it was kept     copied from that, and what it lacks is asked for
 *   only a part is wanted       read into an image, which is kept for ranks that come later
 *   else                        from the socket straight into place, gaps thrown away
 *   too many pieces for that,   read in windows within the staging budget and copied into place
 *   or memory without address
 *
 * Without the lock. Fills in the parts' reports and errors. */
#ifndef EXECUTE_REMOTE_BLOCK_H
#define EXECUTE_REMOTE_BLOCK_H

#include "execute/engine_private.h"

void remote_block_run(struct worker *worker);

#endif
