/* What `top` shows: budgets as bars, then loads, the one with most bytes left first. Pure. */
#ifndef CLI_TOP_TEXT_H
#define CLI_TOP_TEXT_H

#include <stddef.h>

#include "tensorcast/daemon/v1/store_daemon.pb-c.h"

/* columns, rows: of the terminal, which it fits; 0 = everything in full. The caller frees. */
char *top_text(const Tensorcast__Daemon__V1__StatusResponse *status, size_t columns, size_t rows);

#endif
