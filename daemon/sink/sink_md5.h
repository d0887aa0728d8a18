/* MD5 of parts, which their threads make together: of those that wait at one moment one thread makes the sums of all, side by side
 * (base/md5_lanes.h). Alone MD5 takes 1.3 s of CPU per GB, eight parts together 0.3. Any thread; blocks for some 20 ms at most. */
#ifndef SINK_SINK_MD5_H
#define SINK_SINK_MD5_H

#include <stdbool.h>
#include <stddef.h>

#include "sink/sink_ops.h"

bool sink_md5_is_there(void);
/* False: this host's libcrypto has no MD5, by build or by policy, and then there is none here either. */
bool sink_md5(const void *bytes, size_t count, unsigned char md5[SINK_MD5_BYTES]);

#endif
