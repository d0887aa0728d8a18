/* One entry per key, on the stack of the thread that resolves it. It is in the list only while that thread is at work,
 * so nobody is given an answer that was complete before they asked; the thread leaves after the last who waited for it. */
#include "resolve/resolving.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

struct entry {
    struct entry *next;
    const char *key;
    size_t n_waiting;
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
    pthread_cond_init(&resolving->changed, NULL);
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

/* Under the lock. */
static int take_answer(const struct entry *entry, const struct resolving_ops *ops, void **found, struct error *error)
{
    *found = entry->found;
    if (*found)
        ops->ref(*found);
    else
        *error = entry->error;
    return *found ? 0 : -1;
}

/* Under the lock, which is given up meanwhile. */
static int wait_for(struct resolving *resolving, struct entry *entry, const struct resolving_ops *ops, void **found,
                    struct error *error)
{
    entry->n_waiting++;
    while (!entry->is_done)
        pthread_cond_wait(&resolving->changed, &resolving->lock);
    int result = take_answer(entry, ops, found, error);
    if (--entry->n_waiting == 0)
        pthread_cond_broadcast(&resolving->changed);
    return result;
}

static void remove_entry(struct resolving *resolving, const struct entry *entry)
{
    struct entry **link = &resolving->entries;
    while (*link != entry)
        link = &(*link)->next;
    *link = entry->next;
}

/* Under the lock, which is given up meanwhile. */
static int lead(struct resolving *resolving, const char *key, const struct resolving_ops *ops, void *data, void **found,
                struct error *error)
{
    struct entry entry = {.next = resolving->entries, .key = key};
    resolving->entries = &entry;
    pthread_mutex_unlock(&resolving->lock);
    int failed = ops->resolve(data, &entry.found, &entry.error);
    pthread_mutex_lock(&resolving->lock);
    remove_entry(resolving, &entry);
    entry.is_done = true;
    pthread_cond_broadcast(&resolving->changed);
    while (entry.n_waiting)
        pthread_cond_wait(&resolving->changed, &resolving->lock);
    *found = entry.found; /* its reference is ours */
    if (failed)
        *error = entry.error;
    return failed;
}

int resolving_share(struct resolving *resolving, const char *key, const struct resolving_ops *ops, void *data, void **found,
                    struct error *error)
{
    pthread_mutex_lock(&resolving->lock);
    struct entry *entry = resolving->entries;
    while (entry && strcmp(entry->key, key) != 0)
        entry = entry->next;
    int result = entry ? wait_for(resolving, entry, ops, found, error) : lead(resolving, key, ops, data, found, error);
    pthread_mutex_unlock(&resolving->lock);
    return result;
}
