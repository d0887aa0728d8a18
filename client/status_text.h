/* The daemon's status as a page for people. Pure. */
#ifndef CLIENT_STATUS_TEXT_H
#define CLIENT_STATUS_TEXT_H

#include "tensorcast/daemon/v1/store_daemon.pb-c.h"

char *status_text(const Tensorcast__Daemon__V1__StatusResponse *status); /* the caller frees */

#endif
