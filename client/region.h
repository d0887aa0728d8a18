/* Memory of this process, lent to the daemon for one load: offer -> the load, which names the token -> end. Any thread. */
#ifndef CLIENT_REGION_H
#define CLIENT_REGION_H

#include <stdint.h>

#include "base/error.h"
#include "client.h"
#include "handoff_wire.h"
#include "wait.h"

struct region {
    uint8_t token[HANDOFF_TOKEN_BYTES];
    int lease; /* the connection on which it was offered; -1 = nothing is lent */
};

/* The hand-off socket on which memory is offered, in the arena; NULL on error. Asks the daemon. */
const char *region_socket(struct tc_client *client, const struct wait *wait, struct arena *arena, struct error *error);
/* memory_fd: borrowed, -1 for an IPC handle. */
int region_offer(const char *socket, const struct handoff_region *offer, int memory_fd, const struct wait *wait,
                 struct region *region, struct error *error);
/* Waits until the daemon has closed the memory, whatever became of the load: only then it is the caller's again. -1 when the
 * daemon holds it for longer than any copy may take. */
int region_end(struct region *region, struct error *error);

#endif
