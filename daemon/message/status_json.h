/* The daemon's status as JSON, for the command and for the daemon's HTTP port. Pure; any thread. */
#ifndef MESSAGE_STATUS_JSON_H
#define MESSAGE_STATUS_JSON_H

#include "tensorcast/daemon/v1/store_daemon.pb-c.h"

/* The object of `tensorcast status --json`, and that of `tensorcast hosts --json`. The caller frees. */
char *status_json(const Tensorcast__Daemon__V1__StatusResponse *status);
char *status_hosts_json(const Tensorcast__Daemon__V1__StatusResponse *status);

#endif
