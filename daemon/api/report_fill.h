/* What became of a request as the LoadReport that clients see: in an RPC's answer and, because the command line runs the same
 * engine standalone, in its JSON object. Pure; any thread. The report lives in the arena and borrows texts of what it is made of.
 * Clients know by an empty load id that a plan's figures are estimates: the caller empties it where nothing will be run. */
#ifndef API_REPORT_FILL_H
#define API_REPORT_FILL_H

#include "load/load_result.h"
#include "tensorcast/daemon/v1/store_daemon.pb-c.h"

Tensorcast__Daemon__V1__LoadReport *report_fill(const struct load_result *result, struct arena *arena);

#endif
