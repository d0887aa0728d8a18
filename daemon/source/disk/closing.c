/* A batch is in the list while its thread runs; a device that hangs keeps its own batches only. */
#include "source/disk/closing.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/memory.h"

enum { STACK_BYTES = 256 << 10 };

struct batch {
    struct batch *next;
    uint64_t device_id;
    int *fds;
    size_t n_fds;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the list */
static struct batch *batches;

static void *close_all(void *argument)
{
    struct batch *batch = argument, **link = &batches;
    for (size_t i = 0; i < batch->n_fds; i++)
        if (batch->fds[i] >= 0)
            close(batch->fds[i]);
    pthread_mutex_lock(&lock);
    while (*link != batch)
        link = &(*link)->next;
    *link = batch->next;
    pthread_mutex_unlock(&lock);
    free(batch->fds);
    free(batch);
    return NULL;
}

void closing_submit(uint64_t device_id, int *fds, size_t n_fds)
{
    struct batch *batch = memory_alloc(sizeof *batch);
    pthread_attr_t detached;
    pthread_t thread;
    sigset_t all, old;
    pthread_mutex_lock(&lock);
    *batch = (struct batch){batches, device_id, fds, n_fds};
    batches = batch;
    pthread_mutex_unlock(&lock);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    pthread_attr_init(&detached);
    pthread_attr_setstacksize(&detached, STACK_BYTES);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    bool is_started = pthread_create(&thread, &detached, close_all, batch) == 0;
    pthread_attr_destroy(&detached);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (!is_started)
        close_all(batch);
}

size_t closing_list(uint64_t *device_ids, size_t room)
{
    size_t n = 0;
    pthread_mutex_lock(&lock);
    for (const struct batch *batch = batches; batch && n < room; batch = batch->next) {
        bool is_listed = false;
        for (size_t i = 0; i < n; i++)
            is_listed |= device_ids[i] == batch->device_id;
        if (!is_listed)
            device_ids[n++] = batch->device_id;
    }
    pthread_mutex_unlock(&lock);
    return n;
}
