/* The daemon's status as the JSON object of `tensorcast status --json`. Pure. */
#ifndef CLIENT_STATUS_JSON_H
#define CLIENT_STATUS_JSON_H

#include "tensorcast/daemon/v1/store_daemon.pb-c.h"

char *status_json(const Tensorcast__Daemon__V1__StatusResponse *status); /* the caller frees */

#endif
