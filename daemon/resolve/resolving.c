/* One entry per key, on the stack of the thread that resolves it. It is in the list only while that thread is at work,
 * so no thread is given an answer that was complete before it asked; the thread leaves after its last waiter. */
#include "resolve/resolving.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/condition.h"
#include "base/memory.h"
#include "base/waiting.h"

enum { LOOK_NS = 50000000 }; /* between two looks at a waiting client's cancel */

struct entry {
    struct entry *next;
    const char *key;
    const struct cancel *cancel; /* of the thread that resolves, like ... */
    struct waiting *waiting;     /* ... what that waits for */
    size_t n_waiting;            /* written under the lock; atomic */
    bool is_done;
    void *found; /* NULL = the error */
    struct error error;
};

struct resolving {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct entry *entries;
};

struct resolving *resolving_create(void)
{
    struct resolving *resolving = memory_alloc(sizeof *resolving);
    pthread_mutex_init(&resolving->lock, NULL);
    condition_init(&resolving->changed);
    return resolving;
}

void resolving_destroy(struct resolving *resolving)
{
    if (!resolving)
        return;
    pthread_cond_destroy(&resolving->changed);
    pthread_mutex_destroy(&resolving->lock);
    free(resolving);
}

/* Under the lock, which is given up meanwhile. */
static int wait_for(struct resolving *resolving, struct entry *entry, const struct resolving_ops *ops,
                    const struct cancel *cancel, void **found, struct error *error)
{
    struct waiting *waiting = waiting_current();
    __atomic_add_fetch(&entry->n_waiting, 1, __ATOMIC_RELAXED);
    waiting_follow(waiting, entry->waiting);
    while (!entry->is_done && !cancel_is_set(cancel))
        condition_wait_until(&resolving->changed, &resolving->lock, clock_now_ns() + LOOK_NS);
    waiting_follow(waiting, NULL);
    *found = entry->is_done ? entry->found : NULL;
    if (*found)
        ops->ref(*found);
    else if (entry->is_done)
        *error = entry->error;
    else
        fail(error, ERROR_CANCELLED, "CANCELLED", "cancelled while the artifact was resolved");
    if (__atomic_sub_fetch(&entry->n_waiting, 1, __ATOMIC_RELAXED) == 0)
        pthread_cond_broadcast(&resolving->changed);
    return *found ? 0 : -1;
}

/* Asked beside the lock by the thread that resolves. */
static bool is_unwanted(void *data)
{
    const struct entry *entry = data;
    return __atomic_load_n(&entry->n_waiting, __ATOMIC_RELAXED) == 0 && cancel_is_set(entry->cancel);
}

/* Under the lock, which is given up meanwhile. */
static int lead(struct resolving *resolving, const char *key, const struct resolving_ops *ops, void *data,
                const struct cancel *cancel, void **found, struct error *error)
{
    struct entry entry = {.next = resolving->entries, .key = key, .cancel = cancel, .waiting = waiting_current()},
                 **link = &resolving->entries;
    const struct cancel unwanted = {is_unwanted, &entry};
    resolving->entries = &entry;
    pthread_mutex_unlock(&resolving->lock);
    int failed = ops->resolve(data, &unwanted, &entry.found, &entry.error);
    pthread_mutex_lock(&resolving->lock);
    while (*link != &entry)
        link = &(*link)->next;
    *link = entry.next;
    entry.is_done = true;
    pthread_cond_broadcast(&resolving->changed);
    while (entry.n_waiting)
        pthread_cond_wait(&resolving->changed, &resolving->lock);
    *found = entry.found; /* its reference is ours */
    if (failed)
        *error = entry.error;
    return failed;
}

int resolving_share(struct resolving *resolving, const char *key, const struct resolving_ops *ops, void *data,
                    const struct cancel *cancel, void **found, struct error *error)
{
    int result;
    do { /* again when we came as the last other client's cancel took effect */
        pthread_mutex_lock(&resolving->lock);
        struct entry *entry = resolving->entries;
        while (entry && strcmp(entry->key, key) != 0)
            entry = entry->next;
        result = entry ? wait_for(resolving, entry, ops, cancel, found, error)
                       : lead(resolving, key, ops, data, cancel, found, error);
        pthread_mutex_unlock(&resolving->lock);
    } while (result < 0 && error->code == ERROR_CANCELLED && cancel && !cancel_is_set(cancel));
    return result;
}
