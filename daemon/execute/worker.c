/* Takes items from the active runs in turn, so that a small load is never stuck behind a large one; see worker.h.
 *
 *   RUN_NEW --setup item--> RUN_ACTIVE --padding, block items--> nothing pending or taken --> RUN_FINISHED
 *
 * A run that failed or was cancelled drops what is pending; what is in flight ends in peace, then it is finished. After
 * worker_finish_run() the run belongs to the loop: it may be gone at any moment. An idle worker waits without a timeout;
 * only while there is unused staging memory it wakes once more to give that back. */
#include "execute/worker.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/memory.h"
#include "device/huge_pages.h"
#include "execute/arrivals.h"
#include "execute/block.h"
#include "execute/collective_private.h"
#include "execute/io_device.h"
#include "execute/needs.h"
#include "execute/padding.h"
#include "execute/remote_block.h"
#include "execute/remote_pool.h"
#include "execute/scan.h"
#include "execute/turns.h"

enum { MANY = 16 << 10 }; /* larger arrays are not kept between items */
static const uint64_t keep_staging_ns = 1000 * (uint64_t)NS_PER_MS;

bool worker_run_is_over(const struct run *run)
{
    bool has_more = run->stage == RUN_NEW || run->wants_padding || run->n_pending > 0;
    return run->n_taken == 0 && (run->has_failed || !has_more);
}

static void check_account(struct run *run)
{
    uint64_t placed = run->placed_bytes, wanted = run->options.mapping->view_bytes;
    if (!run->has_failed && placed != wanted)
        run->has_failed =
            fail(&run->error, ERROR_INTERNAL, "BYTES_UNACCOUNTED",
                 "%" PRIu64 " of %" PRIu64 " bytes are in place: the plan does not cover the view", placed, wanted) != 0;
}

void worker_finish_run(struct run *run)
{
    turns_remove(run);
    check_account(run);
    io_device_detach(run);
    run->stage = RUN_FINISHED;
    if (run->options.collective)
        collective_part_with(run);
    run->report.execute_ns = clock_now_ns() - run->started_ns;
    loop_post(run->engine->loop, &run->task);
}

void worker_fail_run(struct run *run, const struct error *error)
{
    if (run->stage == RUN_FINISHED || run->has_failed)
        return;
    run->error = *error;
    run->has_failed = true;
    if (run->options.collective)
        collective_lose(run);
    turns_remove(run);
    if (run->origin)
        remote_pool_interrupt(run->engine);
    if (worker_run_is_over(run))
        worker_finish_run(run);
}

static bool take_item_of(struct run *run, struct worker *worker)
{
    worker->n_parts = 0;
    if (!worker->is_remote && (run->stage == RUN_NEW || run->wants_padding)) {
        worker->kind = run->stage == RUN_NEW ? ITEM_SETUP : ITEM_PADDING;
        run->stage = run->stage == RUN_NEW ? RUN_SETUP : run->stage;
        run->wants_padding = run->wants_padding && worker->kind == ITEM_SETUP;
        run->n_taken++;
        ARRAY_RESERVE(worker->parts, worker->n_parts, worker->parts_room);
        worker->parts[worker->n_parts++].run = run;
        return true;
    }
    if (run->stage != RUN_ACTIVE || worker->is_remote != (run->origin != NULL))
        return false;
    if (run->origin && !remote_pool_may_take(run))
        return false;
    struct collective *collective = run->options.collective;
    if (collective && collective_take(collective, worker))
        return true;
    return (!collective || collective_is_exhausted(collective)) && scan_take(run, worker);
}

static bool take_from(struct run *run, struct worker *worker)
{
    if (worker->is_remote)
        return take_item_of(run, worker);
    if (!io_device_may_take(worker, run) || !take_item_of(run, worker))
        return false;
    io_device_begin(worker, run);
    return true;
}

bool worker_take_item(struct worker *worker)
{
    return turns_take(worker->engine, take_from, worker);
}

static void set_up(struct worker *worker)
{
    struct engine *engine = worker->engine;
    struct run *run = worker->parts[0].run;
    run->ready = memory_alloc(run->options.segment->allocated_bytes / HUGE_PAGE_BYTES + 1);
    needs_build(run, run->block_bytes);
    bool has_threads = !run->origin || remote_pool_grow(run, &worker->parts[0].error) == 0;
    pthread_mutex_lock(&engine->lock);
    if (!has_threads)
        worker_fail_run(run, &worker->parts[0].error);
    scan_attach(engine, run);
    run->n_pending = run->n_needs;
    if (run->options.collective)
        collective_gather(run);
    else
        run->stage = RUN_ACTIVE;
    engine_wake(engine);
    pthread_mutex_unlock(&engine->lock);
}

static void zero_padding(struct worker *worker)
{
    struct part *part = &worker->parts[0];
    part->transport = NULL;
    part->report = (struct run_report){0};
    part->placed_bytes = 0;
    part->has_failed = padding_zero(part->run->options.mapping, part->run->options.segment, &part->error) != 0;
}

static void add_report(struct run_report *sum, const struct run_report *part)
{
    sum->read_bytes += part->read_bytes;
    sum->requests += part->requests;
    sum->cached_bytes += part->cached_bytes;
    sum->shared_bytes += part->shared_bytes;
    sum->direct_bytes += part->direct_bytes;
    sum->copied_bytes += part->copied_bytes;
    sum->read_ns += part->read_ns;
    sum->copy_ns += part->copy_ns;
    sum->prepare_ns += part->prepare_ns;
    if (part->peak_temporary_bytes > sum->peak_temporary_bytes)
        sum->peak_temporary_bytes = part->peak_temporary_bytes;
}

static void complete_part(struct worker *worker, const struct part *part)
{
    struct run *run = part->run;
    if (worker->kind != ITEM_SETUP) {
        if (part->has_failed)
            worker_fail_run(run, &part->error);
        add_report(&run->report, &part->report);
        collective_count(part);
        run->placed_bytes += part->placed_bytes;
        arrivals_end(worker, part);
    }
    if (worker->kind == ITEM_BLOCK && !part->has_failed)
        run->needs[part->need].state = NEED_DONE;
    run->n_taken--;
}

/* Under the lock. */
static void complete_item(struct worker *worker)
{
    for (size_t i = 0; i < worker->n_parts; i++)
        complete_part(worker, &worker->parts[i]);
    worker->kind = ITEM_NONE;
    if (worker->device)
        io_device_end(worker);
    collective_complete(worker);
    for (size_t i = 0; i < worker->n_parts; i++)
        if (worker_run_is_over(worker->parts[i].run))
            worker_finish_run(worker->parts[i].run);
}

static void fail_parts(struct worker *worker, const struct error *error)
{
    for (size_t i = 0; i < worker->n_parts; i++) {
        if (!worker->parts[i].has_failed)
            worker->parts[i].error = *error;
        worker->parts[i].has_failed = true;
    }
}

static int take_buffer(struct worker *worker)
{
    struct staging *staging = &worker->engine->staging;
    struct error error;
    if (worker->buffer || (worker->buffer = staging_take(staging)))
        return 0;
    fail(&error, ERROR_RESOURCE_EXHAUSTED, "OUT_OF_MEMORY", "no memory for a staging buffer of %" PRIu64 " bytes",
         staging->buffer_bytes);
    fail_parts(worker, &error);
    return -1;
}

void worker_run_item(struct worker *worker)
{
    pthread_mutex_t *lock = &worker->engine->lock;
    if (worker->kind != ITEM_BLOCK || worker->is_remote || take_buffer(worker) == 0) {
        pthread_mutex_unlock(lock);
        if (worker->kind == ITEM_SETUP)
            set_up(worker);
        else if (worker->kind == ITEM_PADDING)
            zero_padding(worker);
        else if (worker->is_remote)
            remote_block_run(worker);
        else
            block_run(worker);
        pthread_mutex_lock(lock);
    }
    collective_settle(worker);
    complete_item(worker);
}

void worker_drop_large_arrays(struct worker *worker)
{
    if (worker->clips_room + worker->rest_room + worker->pieces_room + worker->extents_room + worker->copies_room > MANY)
        worker_fini(worker);
}

/* Under the lock. */
static void give_buffers(struct worker *worker, uint64_t now_ns)
{
    struct staging *staging = &worker->engine->staging;
    if (worker->spare)
        staging_give(staging, worker->spare, now_ns);
    if (worker->buffer)
        staging_give(staging, worker->buffer, now_ns);
    worker->buffer = worker->spare = NULL;
    if (worker->engine->wants_buffers)
        pthread_cond_broadcast(&worker->engine->work);
    worker->engine->wants_buffers = false;
}

/* Under the lock. */
static void wait_for_work(struct worker *worker)
{
    struct engine *engine = worker->engine;
    give_buffers(worker, clock_now_ns());
    worker_drop_large_arrays(worker);
    if (!engine->staging.n_buffers) {
        pthread_cond_wait(&engine->work, &engine->lock);
        return;
    }
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)(keep_staging_ns / 1000000000) + 1;
    if (pthread_cond_timedwait(&engine->work, &engine->lock, &until) == ETIMEDOUT)
        staging_expire(&engine->staging, clock_now_ns() - keep_staging_ns);
}

void *worker_main(void *argument)
{
    struct worker *worker = argument;
    struct engine *engine = worker->engine;
    pthread_mutex_lock(&engine->lock);
    while (!engine->is_stopping) {
        if (worker_take_item(worker))
            worker_run_item(worker);
        else
            wait_for_work(worker);
    }
    give_buffers(worker, 0);
    pthread_mutex_unlock(&engine->lock);
    return NULL;
}

void worker_fini(struct worker *worker)
{
    free(worker->parts);
    free(worker->clips);
    free(worker->rest);
    free(worker->extents);
    free(worker->requests);
    free(worker->pieces);
    free(worker->primaries);
    free(worker->copies);
    free(worker->iov);
    free(worker->providers);
    *worker = (struct worker){
        .engine = worker->engine, .thread = worker->thread, .is_remote = worker->is_remote, .cancel = worker->cancel};
}
