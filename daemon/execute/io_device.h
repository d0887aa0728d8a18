/* What the files of loads lie on: a device or mount that may stop answering, and then keeps for ever the workers that read
 * from it. So a device has at most engine->n_workers of them at once, and every device that has runs can have as many: more
 * threads are started when there are more devices, up to a limit, and stay. Staging buffers are shared by the rule of
 * quota.h: a device has less of them than are left for others.
 *
 * Files of one load on several devices count as one more device. Everything under the engine's lock. */
#ifndef EXECUTE_IO_DEVICE_H
#define EXECUTE_IO_DEVICE_H

#include "execute/worker.h"

struct io_device {
    struct io_device *next;
    uint64_t id; /* source_caps.device_set; 0 = all that are remote */
    size_t n_runs, n_in_flight;
};

/* Fills in run->device. */
void io_device_attach(struct run *run);
/* The run takes no more items. */
void io_device_detach(struct run *run);
/* Whether this worker, which is idle, may take an item of the run. */
bool io_device_may_take(const struct worker *worker, const struct run *run);
void io_device_begin(struct worker *worker, const struct run *run);
void io_device_end(struct worker *worker);

#endif
