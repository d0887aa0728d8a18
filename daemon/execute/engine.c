/* The engine's outside: it is created, runs start and are destroyed; see engine.h. The work is in worker.c and block.c.
 *
 * A run is set up by a worker, not here: a view of a million rows must not hold up the loop. */
#include "execute/engine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/metadata.h"
#include "execute/collective.h"
#include "execute/collective_private.h"
#include "execute/engine_private.h"
#include "execute/io_device.h"
#include "execute/remote_pool.h"
#include "execute/scan.h"
#include "execute/turns.h"

enum {
    MAX_BUFFER_BYTES = 2 << 20, /* one huge page: one piece for the device, and what is copied is still in the cache */
    MIN_BUFFER_BYTES = 4 << 10,
    WANTED_BUFFER_BYTES = MAX_BUFFER_BYTES, /* rather fewer threads than smaller buffers, which have small pages */
    THREADS_PER_CORE = 2,                   /* while one copies, the other keeps the device busy ... */
    MIN_THREADS = 4,
    ENOUGH_THREADS = 8,    /* ... for a device; from here on they copy, a thread on each core, */
    MAX_AUTO_THREADS = 16, /* which on 16 cores is as fast as it gets (docs/performance.md) */
    MAX_THREADS = 64,
    MAX_DEVICES = 16,  /* that are read from, or hang, at once ... */
    MAX_STARTED = 256, /* ... unless so many threads are reached before */
};
static const uint64_t keep_ns = 1000 * (uint64_t)NS_PER_MS, remote_keep_ns = 2000 * (uint64_t)NS_PER_MS;

uint64_t engine_auto_threads(uint64_t n_cores)
{
    if (n_cores >= MAX_AUTO_THREADS)
        return MAX_AUTO_THREADS;
    if (n_cores >= ENOUGH_THREADS)
        return n_cores;
    uint64_t wanted = THREADS_PER_CORE * n_cores;
    return wanted < MIN_THREADS ? MIN_THREADS : wanted < ENOUGH_THREADS ? wanted : ENOUGH_THREADS;
}

static size_t choose_threads(const struct engine_options *options)
{
    uint64_t threads = options->io_threads;
    if (threads == 0)
        threads = engine_auto_threads((uint64_t)sysconf(_SC_NPROCESSORS_ONLN));
    uint64_t affordable = options->staging_budget_bytes / WANTED_BUFFER_BYTES;
    threads = threads < affordable ? threads : affordable;
    return threads < 1 ? 1 : threads > MAX_THREADS ? MAX_THREADS : threads;
}

/* Under the lock. Returns 0 or what went wrong. */
static int start_threads(struct engine *engine, size_t n_wanted)
{
    int why = 0;
    n_wanted = n_wanted < engine->crew.room ? n_wanted : engine->crew.room;
    while (engine->crew.n < n_wanted && !why)
        why = crew_grow(&engine->crew, engine, false);
    return why;
}

int engine_create(const struct engine_options *options, struct engine **engine, struct error *error)
{
    struct engine *fresh = memory_alloc(sizeof *fresh);
    fresh->loop = options->loop;
    fresh->n_workers = choose_threads(options);
    /* the largest power of two of which every thread can have one; one more is for remote sources */
    uint64_t buffer_bytes = MAX_BUFFER_BYTES;
    while (buffer_bytes > MIN_BUFFER_BYTES && buffer_bytes * (fresh->n_workers + 1) > options->staging_budget_bytes)
        buffer_bytes /= 2;
    staging_init(&fresh->staging, buffer_bytes, options->staging_budget_bytes);
    fresh->has_spares = fresh->staging.budget_buffers >= 2 * fresh->n_workers;
    fresh->block_bytes = fresh->staging.buffer_bytes; /* so that the device is asked for one piece after the other */
    pthread_mutex_init(&fresh->lock, NULL);
    pthread_cond_init(&fresh->unpinned, NULL);
    size_t most_started = fresh->n_workers * MAX_DEVICES;
    crew_init(&fresh->crew, most_started < MAX_STARTED ? most_started : MAX_STARTED, keep_ns);
    crew_init(&fresh->remote.crew, REMOTE_MAX_THREADS, remote_keep_ns);
    remote_pool_init(&fresh->remote, options);
    pthread_mutex_lock(&fresh->lock);
    int why = start_threads(fresh, fresh->n_workers);
    pthread_mutex_unlock(&fresh->lock);
    if (why) {
        fail_errno(error, why, "starting I/O thread %zu of %zu", fresh->crew.n + 1, fresh->n_workers);
        engine_destroy(fresh);
        return -1;
    }
    *engine = fresh;
    return 0;
}

void engine_destroy(struct engine *engine)
{
    if (!engine)
        return;
    pthread_mutex_lock(&engine->lock);
    engine->is_stopping = true;
    engine_wake(engine);
    pthread_mutex_unlock(&engine->lock);
    crew_fini(&engine->crew);
    crew_fini(&engine->remote.crew);
    remote_pool_fini(&engine->remote);
    staging_fini(&engine->staging);
    pthread_cond_destroy(&engine->unpinned);
    pthread_mutex_destroy(&engine->lock);
    free(engine);
}

uint64_t engine_staging_bytes(const struct engine *engine)
{
    return __atomic_load_n(&engine->staging.n_buffers, __ATOMIC_RELAXED) * engine->staging.buffer_bytes +
           remote_pool_bytes(&engine->remote);
}

static void on_finished(struct loop_task *task)
{
    struct run *run = (struct run *)task;
    run->options.done(run, run->options.data, run->has_failed ? &run->error : NULL);
}

struct run *run_start(struct engine *engine, const struct run_options *options)
{
    struct run *run = memory_alloc(sizeof *run);
    run->task.run = on_finished;
    run->engine = engine;
    run->options = *options;
    run->destination = options->destination ? options->destination : &run->memory;
    if (!options->destination)
        run->memory = destination_of_segment(options->segment);
    run->account.started_ns = clock_now_ns();
    waiting_init(&run->waiting);
    pthread_mutex_lock(&engine->lock);
    remote_pool_attach(run);
    io_device_attach(run);
    turns_add(run);
    start_threads(engine, engine->n_workers * engine->n_devices); /* or not: those there are take turns */
    if (options->collective)
        collective_attach(run);
    pthread_cond_broadcast(&engine->crew.work);
    pthread_mutex_unlock(&engine->lock);
    return run;
}

void run_cancel(struct run *run)
{
    struct error error;
    fail(&error, ERROR_CANCELLED, "LOAD_CANCELLED", "the load was cancelled");
    pthread_mutex_lock(&run->engine->lock);
    run_fail(run, &error);
    pthread_mutex_unlock(&run->engine->lock);
}

uint64_t run_done_bytes(const struct run *run)
{
    return __atomic_load_n(&run->account.done_bytes, __ATOMIC_RELAXED);
}

bool run_waits_for(struct run *run, char text[WAITING_TEXT_CHARS])
{
    text[0] = '\0';
    return waiting_read(&run->waiting, text);
}

const struct run_report *run_report(const struct run *run)
{
    return &run->account.report;
}

const struct from_hosts *run_from_hosts(const struct run *run)
{
    return &run->account.from;
}

/* A worker that copies from the run's segment right now is waited for: it copies one block at most. */
void run_destroy(struct run *run)
{
    if (!run)
        return;
    struct engine *engine = run->engine;
    struct collective *ended = NULL;
    pthread_mutex_lock(&engine->lock);
    run->is_leaving = true;
    while (run->pins > 0)
        pthread_cond_wait(&engine->unpinned, &engine->lock);
    scan_detach(engine, run);
    remote_pool_detach(run);
    if (run->options.collective)
        ended = collective_detach(run);
    pthread_mutex_unlock(&engine->lock);
    collective_destroy(ended);
    free(run->members);
    quota_charge_end(&run->needs.charge);
    metadata_free(run->needs.list);
    free(run->needs.deferred);
    free(run->needs.far);
    destination_fini(run->destination);
    waiting_fini(&run->waiting);
    free(run->account.from.list);
    free(run);
}
