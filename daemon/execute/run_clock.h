/* Where the time of a run goes. At each moment all of it belongs to the items in flight, in equal shares, and an item's time to
 * what the item did: then the shares of all items, and the time without any, add up to the time of the run. So one read that
 * everything waits for counts in full, and one of ten beside each other by a tenth.
 *
 * Under the engine's lock except for what says otherwise. */
#ifndef EXECUTE_RUN_CLOCK_H
#define EXECUTE_RUN_CLOCK_H

#include "execute/run.h"

struct part;
struct worker;

/* Before a part is added to the run's parts in flight. */
void run_clock_begin(struct part *part);
/* Before it is taken from them; its report is complete. Draws it, too. */
void run_clock_end(const struct worker *worker, const struct part *part);

#endif
