/* The check of roots at the start, which may hang, and the end of threads that wait for FUSE servers. The kernel lets no signal end a request that such a server has taken, so a
 * process with such a thread cannot end, unless the connection is cut: unanswered requests then fail. */
#ifndef STUCK_MOUNTS_H
#define STUCK_MOUNTS_H

#include <stdint.h>

#include "config/config.h"

struct engine;
struct loop;

/* Looks at the roots of the configuration on a thread of its own, since a mount may not answer, and warns in the log: a trusted
 * root that does not exist is mostly a typing error, one for activations that cannot be written to lacks a right. Also says how
 * paths are opened (base/path_step.h). */
void stuck_mounts_check_roots(const struct config *config);
/* open() with O_PATH, on a thread of its own. -1 with errno; ETIMEDOUT: no answer in that time, and the thread is left to
 * itself. At the start. */
int stuck_mounts_open(const char *path, uint64_t patience_ms);
/* The folder of FUSE's connections, mounted for this process alone, by which root cuts them also in a sandbox that forbids
 * umount(). At the start; the descriptor stays open. -1 = no right. */
int stuck_mounts_open_control(void);
/* Waits until no thread asks a FUSE mount any more, for patience_ms at most; then cuts the connections of those that are
 * still asked, where this process has the right, and says in the log which. For a process that ends: no client may
 * still wait for answers. Either of loop and engine may be NULL. Any thread. */
void stuck_mounts_cut(struct loop *loop, struct engine *engine, uint64_t patience_ms);

#endif
