/* A trace as the LoadTrace that clients see; the command line's --standalone makes its own. Pure; any thread that has the
 * trace. The message lives in the arena and borrows texts of the trace. */
#ifndef API_TRACE_FILL_H
#define API_TRACE_FILL_H

#include "base/arena.h"
#include "load/trace.h"
#include "tensorcast/daemon/v1/store_daemon.pb-c.h"

enum trace_part {
    TRACE_PART_HEAD,  /* what it waited for */
    TRACE_PART_CHAIN, /* and its chain, advice and stages */
    TRACE_PART_LANES  /* and its lanes */
};

/* since: what start_ms counts from; its own beginning, or that of another rank's request. */
Tensorcast__Daemon__V1__LoadTrace *trace_fill(const struct trace *trace, enum trace_part part, uint64_t since_ns,
                                              struct arena *arena);

#endif
