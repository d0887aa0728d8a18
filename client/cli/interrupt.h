/* SIGINT and SIGTERM. At first they end the process at once with status 130: the daemon notices by itself. From
 * interrupt_defer() on they only raise a flag, because there is something to clean up; a second signal still ends it. */
#ifndef CLI_INTERRUPT_H
#define CLI_INTERRUPT_H

#include <stdbool.h>
#include <stdint.h>

#include "tensorcast.h"

enum { INTERRUPT_EXIT_STATUS = 130 };

void interrupt_install(void);
/* Also raises `cancel` (may be NULL), which must stay valid until the next call of this function. */
void interrupt_defer(struct tc_cancel *cancel);
bool interrupt_seen(void);
/* Waits that long, or shorter when a signal comes; needs interrupt_defer(). */
void interrupt_sleep(uint64_t duration_ms);

#endif
