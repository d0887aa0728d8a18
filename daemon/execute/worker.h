/* The engine's threads: each waits for an item, does it, reports it, and takes the next. */
#ifndef EXECUTE_WORKER_H
#define EXECUTE_WORKER_H

#include "execute/engine_private.h"

void *worker_main(void *worker);
void worker_fini(struct worker *worker); /* frees its arrays, after the thread has ended */

/* Under the lock: everything that the run will ever do is done; tells the loop, once. */
void worker_finish_run(struct run *run);
/* Under the lock: it does nothing more, and is finished as soon as nothing of it is in flight. Keeps its first error. */
void worker_fail_run(struct run *run, const struct error *error);
/* Under the lock: the next item of the active runs in turn becomes the worker's. */
bool worker_take_item(struct worker *worker);
/* Under the lock, which is released while the work is done. */
void worker_run_item(struct worker *worker);
void worker_drop_large_arrays(struct worker *worker); /* before it sleeps */
/* Under the lock: whether nothing of the run is pending or in flight. */
bool worker_run_is_over(const struct run *run);

#endif
