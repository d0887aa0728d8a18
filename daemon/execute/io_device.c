/* A list: there are few devices. One is forgotten when it has no runs and nothing in flight. */
#include "execute/io_device.h"

#include <stdlib.h>

#include "base/memory.h"
#include "execute/engine_private.h"

static struct io_device **find_device(struct engine *engine, uint64_t id)
{
    struct io_device **link = &engine->devices;
    while (*link && (*link)->id != id)
        link = &(*link)->next;
    return link;
}

void io_device_attach(struct run *run)
{
    struct engine *engine = run->engine;
    const struct source_caps *caps = &run->options.mapping->artifact->source->caps;
    struct io_device **link = find_device(engine, caps->reads_are_requests ? 0 : caps->device_set);
    if (!*link) {
        *link = memory_alloc(sizeof **link);
        (*link)->id = caps->reads_are_requests ? 0 : caps->device_set;
        engine->n_devices++;
    }
    run->device = *link;
    run->device->n_runs++;
}

static void forget_if_idle(struct engine *engine, struct io_device *device)
{
    if (device->n_runs + device->n_in_flight > 0)
        return;
    *find_device(engine, device->id) = device->next;
    free(device);
    engine->n_devices--;
}

void io_device_detach(struct run *run)
{
    struct io_device *device = run->device;
    run->device = NULL;
    device->n_runs--;
    forget_if_idle(run->engine, device);
}

bool io_device_may_take(const struct worker *worker, const struct run *run)
{
    struct engine *engine = worker->engine;
    size_t n_left = staging_left(&engine->staging) + (worker->buffer != NULL) + (worker->spare != NULL);
    if (run->device->n_in_flight >= engine->n_workers)
        return false;
    if (run->device->n_in_flight < n_left)
        return true;
    engine->wants_buffers = true;
    return false;
}

void io_device_begin(struct worker *worker, const struct run *run)
{
    worker->device = run->device;
    worker->device->n_in_flight++;
}

/* With one device the same worker takes what comes next; with more, it may be another device's. */
void io_device_end(struct worker *worker)
{
    struct io_device *device = worker->device;
    worker->device = NULL;
    device->n_in_flight--;
    if (worker->engine->n_devices > 1)
        pthread_cond_signal(&worker->engine->crew.work);
    forget_if_idle(worker->engine, device);
}

size_t engine_list_devices(struct engine *engine, uint64_t *sets, size_t room)
{
    size_t n = 0;
    pthread_mutex_lock(&engine->lock);
    for (const struct io_device *device = engine->devices; device && n < room; device = device->next)
        if (device->id != 0 && device->n_in_flight > 0)
            sets[n++] = device->id;
    pthread_mutex_unlock(&engine->lock);
    return n;
}
