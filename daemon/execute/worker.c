/* Takes items from the active runs in turn, so that a small load is never stuck behind a large one; see worker.h.
 *
 * An idle worker waits without a timeout; only while there is unused memory it wakes once more to give that back. */
#include "execute/worker.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/condition.h"
#include "base/memory.h"
#include "base/metadata.h"
#include "base/quota.h"
#include "execute/item.h"
#include "execute/block.h"
#include "execute/collective_private.h"
#include "execute/engine_private.h"
#include "execute/in_place.h"
#include "execute/io_device.h"
#include "execute/run.h"
#include "execute/run_clock.h"
#include "execute/remote_pool.h"
#include "execute/scan.h"
#include "execute/turns.h"

enum {
    STACK_BYTES = 256 << 10,
    LARGE_ARRAYS = 16 << 10, /* elements; more are not kept between items */
};

/* --- taking --------------------------------------------------------------------------------------------------------- */

static bool take_item_of(struct run *run, struct worker *worker)
{
    struct item *item = &worker->item;
    struct collective *collective = run->options.collective;
    bool is_new = run->stage == RUN_NEW && !run->has_failed;
    item_begin(item);
    if (!item->is_remote && (is_new || run_wants_ending(run))) {
        item_set_kind(item, is_new ? ITEM_SETUP : ITEM_ENDING);
        run_set_stage(run, is_new ? RUN_SETUP : RUN_ENDING);
        item_add_part(item, run)->has_failed = run->has_failed; /* a cancel from now on comes too late */
        return true;
    }
    if (run->stage != RUN_ACTIVE || run->has_failed || item->is_remote != (run->origin != NULL))
        return false;
    if (run->origin && !remote_pool_may_take(run))
        return false;
    if (collective && collective_take(collective, item))
        return true;
    return (!collective || collective_is_exhausted(collective)) && scan_take(run, item);
}

static bool take_from(struct run *run, struct worker *worker)
{
    bool is_remote = worker->item.is_remote;
    if (!(is_remote || io_device_may_take(worker, run)) || !take_item_of(run, worker))
        return false;
    if (is_remote)
        remote_pool_begin(worker, run);
    else
        io_device_begin(worker, run);
    return true;
}

bool worker_take_item(struct worker *worker)
{
    return turns_take(worker->engine, take_from, worker);
}

/* --- doing ---------------------------------------------------------------------------------------------------------- */

/* Files may be sparse and far larger than what is wanted of them, so there can be millions. They are charged to the
 * mapping's user. No thread can make room here, so only the host refuses memory: what comes next is, until there is room again. */
static int list_needs(struct run *run, struct error *error)
{
    const struct quota_charge *payer = &run->options.mapping->arena.charge;
    if (run_build_needs(&run->needs, run->options.plan, run->options.mapping, run->block_bytes, error) != 0)
        return -1;
    struct run_needs *needs = &run->needs;
    needs->deferred = memory_try(needs->n * sizeof *needs->deferred);
    if (!needs->deferred)
        return metadata_fail_memory(needs->n * sizeof *needs->deferred, error);
    needs->deferred_room = needs->n; /* at most all of them */
    needs->charge = (struct quota_charge){.quota = payer->quota, .kind = QUOTA_METADATA, .uid = payer->uid};
    quota_charge_force(&needs->charge, needs->n * (sizeof *needs->list + sizeof *needs->deferred));
    run_find_far(run);
    return 0;
}

/* Fails only when there is no thread at all. */
static int grow_remote_crew(struct engine *engine, struct error *error)
{
    struct crew *crew = &engine->remote.crew;
    size_t n_started = 0;
    bool is_enough = false;
    int why = 0;
    while (!is_enough && !why) { /* one at a time: others get the lock in between */
        pthread_mutex_lock(&engine->lock);
        is_enough = crew->n >= remote_pool_wanted_threads(&engine->remote);
        if (!is_enough)
            why = crew_grow(crew, engine, true);
        n_started = crew->n;
        pthread_mutex_unlock(&engine->lock);
    }
    return n_started > 0 ? 0 : fail_errno(error, why, "starting a thread that reads from a store");
}

static void set_up_run(struct part *part)
{
    struct run *run = part->run;
    struct engine *engine = run->engine;
    const struct mapping *mapping = run->options.mapping;
    bool is_plain = (!mapping->order && !mapping->n_operations) || mapping->view_bytes == 0; /* each byte is placed once */
    destination_begin(run->destination, mapping->replica_bytes);
    run->account.source_share = is_plain ? 1 : (double)mapping_source_bytes(mapping) / (double)mapping->view_bytes;
    bool has_scales = mapping->scales.bytes == 0 || mapping->scales.are_read;
    if (!has_scales)
        fail(&part->error, ERROR_INTERNAL, "SCALES_MISSING", "the scales of quantized tensors were not read before the run");
    bool can_run = has_scales && list_needs(run, &part->error) == 0 &&
                   (!run->options.collective || collective_prepare(run, &part->error) == 0) &&
                   (!run->origin || grow_remote_crew(engine, &part->error) == 0);
    pthread_mutex_lock(&engine->lock);
    if (!can_run)
        run_fail(run, &part->error);
    scan_attach(engine, run);
    run->needs.n_pending = run->needs.n;
    if (run->options.collective)
        collective_gather(run);
    else
        run_set_stage(run, RUN_ACTIVE);
    engine_wake(engine);
    pthread_mutex_unlock(&engine->lock);
}

static void end_destination(struct part *part)
{
    struct destination *destination = part->run->destination;
    if (part->has_failed)
        destination_abandon(destination);
    else
        part->has_failed = destination_finish(destination, part->run->options.mapping, &part->error) != 0;
    part->report.filled_bytes = part->has_failed ? 0 : destination->filled_bytes;
}

static bool take_buffer(struct worker *worker)
{
    struct staging *staging = &worker->engine->staging;
    struct error error;
    if (!worker->buffer)
        worker->buffer = staging_take(staging, NULL);
    if (worker->buffer)
        return true;
    fail(&error, ERROR_RESOURCE_EXHAUSTED, "OUT_OF_MEMORY", "no memory for a staging buffer of %" PRIu64 " bytes",
         staging->buffer_bytes);
    for (size_t i = 0; i < worker->item.n_parts; i++)
        item_fail_part(&worker->item.parts[i], &error);
    return false;
}

static void complete_part(const struct worker *worker, const struct part *part)
{
    const struct item *item = &worker->item;
    struct run *run = part->run;
    run_clock_end(worker, part);
    if (item->kind != ITEM_SETUP) {
        if (part->has_failed)
            run_fail(run, &part->error);
        run_add_report(run, &part->report, part->placed_bytes);
        item_add_from_hosts(item, part);
        collective_count(part);
        item_end_arrivals(item, part);
    }
    if (item->kind == ITEM_BLOCK && !part->has_failed)
        run_finish_need(run, part->need);
    if (item->kind == ITEM_BLOCK)
        run->needs.n_taken[run->needs.list[part->need].is_far]--;
    run->n_taken--;
}

static void complete_item(struct worker *worker)
{
    struct item *item = &worker->item;
    for (size_t i = 0; i < item->n_parts; i++)
        complete_part(worker, &item->parts[i]);
    item_set_kind(item, ITEM_NONE);
    if (item->is_remote)
        remote_pool_end(worker);
    else
        io_device_end(worker);
    collective_complete(item);
    for (size_t i = 0; i < item->n_parts; i++)
        run_settle(item->parts[i].run);
}

void worker_run_item(struct worker *worker)
{
    struct item *item = &worker->item;
    pthread_mutex_t *lock = &worker->engine->lock;
    if (item->kind != ITEM_BLOCK || item->is_remote || take_buffer(worker)) {
        pthread_mutex_unlock(lock);
        if (item->kind == ITEM_SETUP)
            set_up_run(&item->parts[0]);
        else if (item->kind == ITEM_ENDING)
            end_destination(&item->parts[0]);
        else
            block_run(worker);
        pthread_mutex_lock(lock);
    }
    collective_settle(item, run_fail);
    complete_item(worker);
}

/* --- waiting -------------------------------------------------------------------------------------------------------- */

static void free_arrays(struct worker *worker)
{
    free(worker->window.clips.list);
    free(worker->window.extents.list);
    free(worker->window.requests.list);
    in_place_fini(&worker->window.in_place);
    worker->window = (struct window){.scratch = worker->window.scratch};
    scatter_fini(&worker->scatter);
    item_fini(&worker->item);
}

static void give_buffers(struct worker *worker, uint64_t now_ns)
{
    struct engine *engine = worker->engine;
    if (worker->spare)
        staging_give(worker->spare, now_ns);
    if (worker->buffer)
        staging_give(worker->buffer, now_ns);
    if (worker->window.scratch)
        staging_give(worker->window.scratch, now_ns);
    worker->buffer = worker->spare = worker->window.scratch = NULL;
    if (engine->wants_buffers)
        pthread_cond_broadcast(&engine->crew.work);
    engine->wants_buffers = false;
}

static void wait_for_work(struct worker *worker)
{
    struct engine *engine = worker->engine;
    struct crew *crew = worker->crew;
    bool is_remote = worker->item.is_remote;
    give_buffers(worker, clock_now_ns());
    if (worker->window.clips.room + worker->window.extents.room + worker->scatter.pieces.room + worker->scatter.copies_room >
        LARGE_ARRAYS)
        free_arrays(worker);
    if (is_remote ? !remote_pool_has_memory(&engine->remote) : engine->staging.n_buffers == 0) {
        pthread_cond_wait(&crew->work, &engine->lock);
        return;
    }
    uint64_t until_ns = clock_now_ns() + crew->keep_ns + 1000 * (uint64_t)NS_PER_MS;
    condition_wait_until(&crew->work, &engine->lock, until_ns);
    if (clock_now_ns() < until_ns)
        return;
    if (is_remote)
        remote_pool_expire(engine, clock_now_ns() - crew->keep_ns);
    else
        staging_expire(&engine->staging, clock_now_ns() - crew->keep_ns);
}

static void *worker_main(void *argument)
{
    struct worker *worker = argument;
    struct engine *engine = worker->engine;
    pthread_mutex_lock(&engine->lock);
    while (!engine->is_stopping) {
        if (worker_take_item(worker))
            worker_run_item(worker);
        else
            wait_for_work(worker);
        __atomic_store_n(&worker->item.should_stop, false, __ATOMIC_RELAXED);
    }
    give_buffers(worker, 0);
    pthread_mutex_unlock(&engine->lock);
    return NULL;
}

/* --- crews ---------------------------------------------------------------------------------------------------------- */

void crew_init(struct crew *crew, size_t room, uint64_t keep_ns)
{
    *crew = (struct crew){.workers = memory_alloc_array(room, sizeof *crew->workers), .room = room, .keep_ns = keep_ns};
    condition_init(&crew->work);
}

int crew_grow(struct crew *crew, struct engine *engine, bool is_remote)
{
    struct worker *worker = &crew->workers[crew->n];
    pthread_attr_t attributes;
    worker->engine = engine;
    worker->crew = crew;
    item_init(&worker->item, engine, is_remote);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    int why = pthread_create(&worker->thread, &attributes, worker_main, worker);
    pthread_attr_destroy(&attributes);
    crew->n += why == 0;
    return why;
}

void crew_fini(struct crew *crew)
{
    for (size_t i = 0; i < crew->n; i++) {
        pthread_join(crew->workers[i].thread, NULL);
        free_arrays(&crew->workers[i]);
    }
    pthread_cond_destroy(&crew->work);
    free(crew->workers);
}
