/* Who has how much of what users share, for the status: one row per user, one per shared resource. Loop thread. */
#ifndef API_USER_STATUS_H
#define API_USER_STATUS_H

#include "base/arena.h"
#include "load/load_services.h"
#include "load/load_target.h"
#include "tensorcast/daemon/v1/store_daemon.pb-c.h"

/* Rows live in the arena. */
void user_status_fill(const struct load_services *services, struct arena *arena,
                      Tensorcast__Daemon__V1__StatusResponse *response);

#endif
