/* Whose turn it is: users in a ring, and the runs of each in a ring of their own, so that a user with a hundred loads gets
 * no more than one with a single load. Everything under the engine's lock. */
#ifndef EXECUTE_TURNS_H
#define EXECUTE_TURNS_H

#include "execute/worker.h"

/* The newest is served first: setting it up is cheap, and from then on it takes part in what the others read. */
void turns_add(struct run *run);
void turns_remove(struct run *run); /* of one that is not listed, nothing */
/* The first run, in turn, for which `take` returns true; its user and it come last from then on. False when there is none.
 */
bool turns_take(struct engine *engine, bool (*take)(struct run *run, struct worker *worker), struct worker *worker);

#endif
