/* A device is in the list while its thread runs; a hung one keeps the descriptors of its own device only. */
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
    int *fds;
    size_t n_fds;
};

struct closer { /* of one device */
    struct closer *next;
    uint64_t device_id;
    struct batch *batches;
    bool is_running;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the list and the batches */
static struct closer *closers;

static void *close_all(void *argument)
{
    struct closer *closer = argument;
    pthread_mutex_lock(&lock);
    while (closer->batches) {
        struct batch *batch = closer->batches;
        closer->batches = batch->next;
        pthread_mutex_unlock(&lock);
        for (size_t i = 0; i < batch->n_fds; i++)
            if (batch->fds[i] >= 0)
                close(batch->fds[i]);
        free(batch->fds);
        free(batch);
        pthread_mutex_lock(&lock);
    }
    struct closer **link = &closers;
    while (*link != closer)
        link = &(*link)->next;
    *link = closer->next;
    free(closer);
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* Under the lock. Without a thread the batches wait for the next that is submitted. */
static void start_closer(struct closer *closer)
{
    pthread_attr_t detached;
    pthread_t thread;
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    pthread_attr_init(&detached);
    pthread_attr_setstacksize(&detached, STACK_BYTES);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    closer->is_running = pthread_create(&thread, &detached, close_all, closer) == 0;
    pthread_attr_destroy(&detached);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

void closing_submit(uint64_t device_id, int *fds, size_t n_fds)
{
    struct batch *batch = memory_alloc(sizeof *batch);
    pthread_mutex_lock(&lock);
    struct closer *closer = closers;
    while (closer && closer->device_id != device_id)
        closer = closer->next;
    if (!closer) {
        closer = memory_alloc(sizeof *closer);
        closer->device_id = device_id;
        closer->next = closers;
        closers = closer;
    }
    *batch = (struct batch){closer->batches, fds, n_fds};
    closer->batches = batch;
    if (!closer->is_running)
        start_closer(closer);
    pthread_mutex_unlock(&lock);
}

size_t closing_list(uint64_t *device_ids, size_t room)
{
    size_t n = 0;
    pthread_mutex_lock(&lock);
    for (const struct closer *closer = closers; closer && n < room; closer = closer->next)
        device_ids[n++] = closer->device_id;
    pthread_mutex_unlock(&lock);
    return n;
}
