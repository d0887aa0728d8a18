/* An artifact whose tensors lie in several pieces, for tests of what works on pieces whatever layout they come of.
 * A stored tensor "w@0,8" is the piece of "w" that begins at [0, 8]; the shape of "w" is the hull of its pieces. One without
 * "@" is whole. */
#ifndef SUPPORT_PIECES_H
#define SUPPORT_PIECES_H

#include "resolve/artifact.h"

struct artifact *pieces_join(struct artifact *stored); /* borrows it */
void pieces_free(struct artifact *joined);             /* after the last mapping of it; accepts NULL */

#endif
