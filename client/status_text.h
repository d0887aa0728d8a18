/* The daemon's status as a page for people. Pure. */
#ifndef CLIENT_STATUS_TEXT_H
#define CLIENT_STATUS_TEXT_H

#include <stddef.h>

#include "base/text.h"
#include "tensorcast/daemon/v1/store_daemon.pb-c.h"

/* columns: of the terminal, whose width it keeps and of which long lists get the largest; 0 = everything in full. The caller
 * frees. */
char *status_text(const Tensorcast__Daemon__V1__StatusResponse *status, size_t columns);

/* "2 h 3 min", "12 s" */
const char *status_age_text(double seconds, char out[TEXT_SIZE_CHARS]);

/* The other hosts alone, as `tensorcast hosts` shows them; the caller frees. */
char *status_hosts_text(const Tensorcast__Daemon__V1__StatusResponse *status);

#endif
