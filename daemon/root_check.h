/* What is found out about the roots at the start. A trusted one that does not exist is mostly a typing error, one for activations
 * that cannot be written to lacks a right: it is said, and how their paths are opened (base/path_step.h). */
#ifndef ROOT_CHECK_H
#define ROOT_CHECK_H

#include <stdint.h>

#include "config/config.h"

/* Looks on a thread of its own, since a mount may not answer, and warns in the log. */
void root_check_start(const struct config *config);
/* The file systems that the thread asks now (source/disk/mounts.h); 0 = none. Any thread. */
uint64_t root_check_asks(void);

#endif
