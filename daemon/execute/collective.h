/* The owner-file collective at work: the runs of a group's ranks, tied together.
 *
 *   collective_create, collective_connect (any thread) -> collective_expect(n) -> n x run_start with options.collective
 *   -> ... -> n x run_destroy
 *
 * No run of it reads before all of them are set up. Then workers take blocks in the order of the joint plan's batches, never
 * from more than max_inflight_batches at a time; of these by turns those that this host reads, and those that other hosts have,
 * in the order that the run's holder gives. Each block is read once, its owner's rank is charged with it, and the transport
 * delivers it to every other rank that needs it. A rank that is cancelled or fails merely needs nothing any more. What no batch
 * covers is read afterwards, as every run does.
 *
 * A rank's bytes are in place when its run is done: before a run with deliveries on their way ends, they are flushed. When
 * that fails, so do all runs that are not done. The transport lives until run_release_transport(), the rest until the last
 * run_destroy(). */
#ifndef EXECUTE_COLLECTIVE_H
#define EXECUTE_COLLECTIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "execute/engine.h"
#include "plan/collective_plan.h"
#include "plan/transport_choice.h"

struct collective;

struct collective_counters {       /* of all ranks together, counted where the work happens; final when every run is done */
    uint64_t unique_source_bytes;  /* asked of the source */
    uint64_t peer_transfer_bytes;  /* landed in other ranks' memory than their owner's */
    uint64_t peak_temporary_bytes; /* staging in use for it at once, the transport's on devices included */
    uint64_t batch_count;          /* batches that were read to their end */
    uint64_t dedup_saving_bytes;   /* landed, for every rank that has it, and not read for it */
    uint64_t total_ns;             /* from the first read to the last byte */
};

/* NULL: what it has of the plan is metadata (base/metadata.h), and ran out. */
struct collective *collective_create(struct engine *engine, struct collective_plan *plan, struct error *error);
/* devices: by rank, where its memory will be; NULL where it shares another rank's or needs none. Opens the transport, which
 * may take a while; another one may be tried after it failed. */
int collective_connect(struct collective *collective, const struct transport_choice *transport,
                       struct device *const *devices, struct error *error);
void collective_expect(struct collective *collective, size_t n_runs); /* loop thread; at least one */
void collective_destroy(struct collective *collective); /* instead of collective_expect(): it is not needed; accepts NULL */

/* Closes the transport when every run of the run's collective is done, else does nothing; so when it was called for every
 * run, nothing of it is left. Any thread; may take a while. */
void run_release_transport(struct run *run);
/* The transport of the run's collective has failed, and whatever run was not done with it. Any thread. */
bool run_has_lost_transport(const struct run *run);
/* NULL when the run has none. */
const struct collective_counters *run_collective_counters(const struct run *run);

#endif
