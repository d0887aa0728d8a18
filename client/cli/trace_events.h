/* `load --trace FILE`: a load as Chrome trace events, for Perfetto (ui.perfetto.dev) and chrome://tracing. Pure; the caller frees. */
#ifndef CLI_TRACE_EVENTS_H
#define CLI_TRACE_EVENTS_H

#include "tensorcast/daemon/v1/store_daemon.pb-c.h"

/* {"traceEvents": [...]}: the load and its stages on a lane, what each thread did for it on a lane of its own. Times are whole
 * microseconds since the request. */
char *trace_events(const Tensorcast__Daemon__V1__LoadTrace *load);

#endif
