/* What the daemon holds and does, as the message of Status: for its callers, and for the HTTP port of operators. Loop thread.
 *
 * Texts are borrowed and rows are in the arena, so the message is packed before the loop goes on. */
#ifndef API_STATUS_H
#define API_STATUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/api.h"
#include "base/arena.h"

struct status_limits {
    size_t rows;    /* of a list; of more replicas those that were used last. 0: no replicas, loads and users are walked */
    size_t holders; /* of all replicas together: each costs a look into /proc */
    bool in_turns;  /* without replicas, which come by status_add_replicas() */
};
extern const struct status_limits status_of_all;

void status_fill(const struct api *api, const struct status_limits *limits, struct arena *arena,
                 Tensorcast__Daemon__V1__StatusResponse *response);
struct status_walk { /* zeroed; one at a time */
    size_t target, n_holders;
    bool is_begun; /* in that target */
};
/* Rows until that time, clock_now_ns(), a few at least; borrowed texts, as above, so that each turn is packed by itself: packed
 * messages one behind the other are one message. False: that was all. */
bool status_add_replicas(const struct api *api, const struct status_limits *limits, struct status_walk *walk,
                         uint64_t until_ns, struct arena *arena, Tensorcast__Daemon__V1__StatusResponse *response);
/* The requests of one connection alone. */
void status_requests(const struct api *api, uint64_t connection, struct arena *arena,
                     Tensorcast__Daemon__V1__StatusResponse *response);

#endif
