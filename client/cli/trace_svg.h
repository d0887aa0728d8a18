/* `tensorcast plot`: one static picture of a load, with a lane for what it waited for, one for each rank of its group, and one for
 * each thread that worked for it. No script, nothing from elsewhere. Pure; the caller frees. */
#ifndef CLI_TRACE_SVG_H
#define CLI_TRACE_SVG_H

#include "tensorcast/daemon/v1/store_daemon.pb-c.h"

char *trace_svg(const Tensorcast__Daemon__V1__BlameResponse *response); /* of one load: loads[0], then the other ranks */

#endif
