/* How many requests to a store are worth having in flight, learned from how fast they come back.
 *
 * It begins with as many as are allowed: a short load loses nothing. When those have shown what they carry together, three
 * quarters of them are tried, then halves, until fewer carry less. Then the least number that carries everything follows
 * from Little's law: requests done per second x the time that one takes when they do not wait for each other. Now and then a
 * few more are tried, in case the store or the network has become faster.
 *
 * A value; all functions are pure except for it. */
#ifndef EXECUTE_REMOTE_PACE_H
#define EXECUTE_REMOTE_PACE_H

#include <stdbool.h>
#include <stdint.h>

enum remote_pace_phase { PACE_FIRST, PACE_FEWER, PACE_HOLD, PACE_MORE };

struct remote_pace {
    enum remote_pace_phase phase;
    uint32_t limit, most, settled;      /* requests at once: now, ever, and what is held to between two trials */
    uint32_t n_stale;                   /* requests in flight from before the limit changed */
    uint32_t n_epochs;                  /* of this phase */
    uint64_t epoch_ns, n_done, busy_ns; /* since when this epoch counts; its requests, and their times summed */
    double best_per_s;                  /* requests per second */
};

void remote_pace_init(struct remote_pace *pace, uint32_t most);

/* A request has come back after took_ns, when in_flight (itself included) were under way. */
void remote_pace_add(struct remote_pace *pace, uint64_t now_ns, uint64_t took_ns, uint32_t in_flight);

#endif
