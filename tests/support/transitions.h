/* Which transitions of a state machine (base/state.h) a test program has taken. Loop thread; transitions are noted on any. */
#ifndef SUPPORT_TRANSITIONS_H
#define SUPPORT_TRANSITIONS_H

#include <stdbool.h>

#include "base/loop.h"
#include "base/state.h"

/* From here on transitions are noted. */
void transitions_watch(void);
/* Each allowed one was taken; prints those that were not. */
bool transitions_all_taken(const struct state_machine *machine);
bool transitions_was_taken(const struct state_machine *machine, unsigned from, unsigned to);
/* Posts the task to the loop once, when the machine next goes to that state. */
void transitions_post_at(const struct state_machine *machine, unsigned to, struct loop *loop, struct loop_task *task);

#endif
