/* A queue and the thread that empties it, started with the first large memory. Without a thread memory is freed at once. */
#include "device/host_freer.h"

#include <signal.h>
#include <stddef.h>

#include "device/host_memory.h"

enum { LARGE_BYTES = 64 << 20, STACK_BYTES = 256 << 10 };

void host_freer_init(struct host_freer *freer)
{
    *freer = (struct host_freer){.last = &freer->first};
    pthread_mutex_init(&freer->lock, NULL);
    pthread_cond_init(&freer->changed, NULL);
}

static void *free_them(void *data)
{
    struct host_freer *freer = data;
    pthread_mutex_lock(&freer->lock);
    while (freer->first || !freer->is_stopping) {
        struct host_memory *memory = freer->first;
        if (!memory) {
            pthread_cond_wait(&freer->changed, &freer->lock);
            continue;
        }
        freer->first = memory->next;
        if (!freer->first)
            freer->last = &freer->first;
        pthread_mutex_unlock(&freer->lock);
        host_memory_destroy(memory);
        pthread_mutex_lock(&freer->lock);
        __atomic_store_n(&freer->n_freed, freer->n_freed + 1, __ATOMIC_RELEASE);
        pthread_cond_broadcast(&freer->changed);
    }
    pthread_mutex_unlock(&freer->lock);
    return NULL;
}

/* Under the lock. */
static bool start_thread(struct host_freer *freer)
{
    pthread_attr_t attributes;
    sigset_t all, old;
    if (freer->has_thread)
        return true;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    freer->has_thread = pthread_create(&freer->thread, &attributes, free_them, freer) == 0;
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return freer->has_thread;
}

void host_freer_give(struct host_freer *freer, struct host_memory *memory)
{
    pthread_mutex_lock(&freer->lock);
    bool is_later = memory->bytes >= LARGE_BYTES && memory->rung != HUGE_RUNG_RESERVED && start_thread(freer);
    if (is_later) {
        memory->next = NULL;
        *freer->last = memory;
        freer->last = &memory->next;
        __atomic_store_n(&freer->n_given, freer->n_given + 1, __ATOMIC_RELEASE);
        pthread_cond_broadcast(&freer->changed);
    }
    pthread_mutex_unlock(&freer->lock);
    if (!is_later)
        host_memory_destroy(memory);
}

uint64_t host_freer_now(const struct host_freer *freer)
{
    return __atomic_load_n(&freer->n_given, __ATOMIC_ACQUIRE);
}

void host_freer_wait(struct host_freer *freer, uint64_t until)
{
    if (__atomic_load_n(&freer->n_freed, __ATOMIC_ACQUIRE) >= until)
        return;
    pthread_mutex_lock(&freer->lock);
    while (freer->n_freed < until)
        pthread_cond_wait(&freer->changed, &freer->lock);
    pthread_mutex_unlock(&freer->lock);
}

void host_freer_fini(struct host_freer *freer)
{
    pthread_mutex_lock(&freer->lock);
    freer->is_stopping = true;
    pthread_cond_broadcast(&freer->changed);
    pthread_mutex_unlock(&freer->lock);
    if (freer->has_thread)
        pthread_join(freer->thread, NULL);
    pthread_cond_destroy(&freer->changed);
    pthread_mutex_destroy(&freer->lock);
}
