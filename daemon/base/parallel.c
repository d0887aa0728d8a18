/* Threads take the next item from a counter until none is left. When a thread cannot be made the others do its share. */
#include "base/parallel.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/metadata.h"
#include "base/waiting.h"

struct crew {
    size_t count;
    int (*work)(void *data, size_t i, struct error *error);
    void *data;
    struct metadata_account account; /* of the caller, like ... */
    struct waiting *waiting;         /* ... who is told of waits */
    pthread_mutex_t lock;            /* of what follows */
    size_t next, failed_at;
    struct error error;
};

static void *run_thread(void *data)
{
    struct crew *crew = data;
    struct metadata_account before = metadata_enter(crew->account);
    struct waiting *note = waiting_enter(crew->waiting);
    struct error error;
    pthread_mutex_lock(&crew->lock);
    while (crew->failed_at == SIZE_MAX && crew->next < crew->count) {
        size_t item = crew->next++;
        pthread_mutex_unlock(&crew->lock);
        int failed = crew->work(crew->data, item, &error);
        pthread_mutex_lock(&crew->lock);
        if (failed && item < crew->failed_at) {
            crew->failed_at = item;
            crew->error = error;
        }
    }
    pthread_mutex_unlock(&crew->lock);
    waiting_enter(note);
    metadata_enter(before);
    return NULL;
}

int parallel_run(size_t count, size_t n_threads, int (*work)(void *data, size_t i, struct error *error), void *data,
                 struct error *error)
{
    struct crew crew = {.count = count,
                        .work = work,
                        .data = data,
                        .account = metadata_current(),
                        .waiting = waiting_current(),
                        .failed_at = SIZE_MAX};
    size_t n_others = (n_threads < count ? n_threads : count), n_made = 0;
    n_others -= n_others > 0; /* the caller's thread works, too */
    pthread_t *others = memory_alloc_array(n_others, sizeof *others);
    pthread_mutex_init(&crew.lock, NULL);
    while (n_made < n_others && pthread_create(&others[n_made], NULL, run_thread, &crew) == 0)
        n_made++;
    run_thread(&crew);
    while (n_made > 0)
        pthread_join(others[--n_made], NULL);
    pthread_mutex_destroy(&crew.lock);
    free(others);
    if (crew.failed_at == SIZE_MAX)
        return 0;
    *error = crew.error;
    return -1;
}
