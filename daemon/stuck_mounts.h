/* The end of threads that wait for FUSE servers. The kernel lets no signal end a request that such a server has taken, so a
 * process with such a thread cannot end, unless the connection is cut: unanswered requests then fail. */
#ifndef STUCK_MOUNTS_H
#define STUCK_MOUNTS_H

#include <stdint.h>

struct engine;
struct loop;

/* Waits until no thread asks a FUSE mount any more, for patience_ms at most; then cuts the connections of those that are
 * still asked, where this process has the right, and says in the log which. For a process that ends: no client may
 * still wait for answers. Either of loop and engine may be NULL. Any thread. */
void stuck_mounts_cut(struct loop *loop, struct engine *engine, uint64_t patience_ms);

#endif
