/* The threads under the HTTP engine; see http_mover.h. */
#include "source/http/http_mover.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/memory.h"

enum { IDLE_MS = 10000 /* libcurl shortens it by its own timers */ };

struct http_mover {
    CURLM *multi;
    pthread_t thread;
    pthread_mutex_t lock;
    struct http_exchange *inbox;  /* newest first; under the lock */
    bool is_stopping;             /* under the lock */
    struct http_exchange *active; /* the thread's own, as are the links */
    atomic_bool has_cancels;
    atomic_uint load;
};

static void end(struct http_mover *mover, struct http_exchange *exchange, CURLcode code)
{
    struct http_exchange **link = &mover->active;
    while (*link != exchange)
        link = &(*link)->next;
    *link = exchange->next;
    curl_multi_remove_handle(mover->multi, exchange->easy);
    atomic_fetch_sub(&mover->load, 1);
    http_exchange_finish(exchange, code);
}

static void begin(struct http_mover *mover, struct http_exchange *exchange)
{
    exchange->next = mover->active;
    mover->active = exchange;
    if (curl_multi_add_handle(mover->multi, exchange->easy) != CURLM_OK)
        end(mover, exchange, CURLE_FAILED_INIT);
    else if (atomic_load(&exchange->is_cancelled)) /* while it was in the inbox, where end_cancelled() did not see it */
        end(mover, exchange, CURLE_ABORTED_BY_CALLBACK);
}

static bool take_inbox(struct http_mover *mover)
{
    pthread_mutex_lock(&mover->lock);
    struct http_exchange *list = mover->inbox;
    bool is_stopping = mover->is_stopping;
    mover->inbox = NULL;
    pthread_mutex_unlock(&mover->lock);
    while (list) {
        struct http_exchange *exchange = list;
        list = list->next;
        begin(mover, exchange);
    }
    return !is_stopping;
}

static void end_cancelled(struct http_mover *mover)
{
    if (!atomic_exchange(&mover->has_cancels, false))
        return;
    for (struct http_exchange *exchange = mover->active, *next; exchange; exchange = next) {
        next = exchange->next;
        if (atomic_load(&exchange->is_cancelled))
            end(mover, exchange, CURLE_ABORTED_BY_CALLBACK);
    }
}

static void end_complete(struct http_mover *mover)
{
    int n_left;
    CURLMsg *message;
    while ((message = curl_multi_info_read(mover->multi, &n_left))) {
        struct http_exchange *exchange;
        CURLcode code = message->data.result;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &exchange);
        end(mover, exchange, code);
    }
}

static void *move(void *data)
{
    struct http_mover *mover = data;
    while (take_inbox(mover)) {
        int n_running;
        end_cancelled(mover);
        curl_multi_perform(mover->multi, &n_running);
        end_complete(mover);
        curl_multi_poll(mover->multi, NULL, 0, IDLE_MS, NULL);
    }
    return NULL;
}

int http_mover_start(uint32_t max_connections, struct http_mover **mover, struct error *error)
{
    struct http_mover *new = memory_alloc(sizeof *new);
    pthread_mutex_init(&new->lock, NULL);
    new->multi = curl_multi_init();
    if (new->multi) {
        curl_multi_setopt(new->multi, CURLMOPT_MAXCONNECTS, (long)max_connections);
        curl_multi_setopt(new->multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING);
    }
    if (!new->multi || pthread_create(&new->thread, NULL, move, new) != 0) {
        curl_multi_cleanup(new->multi);
        pthread_mutex_destroy(&new->lock);
        free(new);
        return fail(error, ERROR_RESOURCE_EXHAUSTED, "NO_THREAD", "no thread can be started for HTTP");
    }
    *mover = new;
    return 0;
}

void http_mover_stop(struct http_mover *mover)
{
    if (!mover)
        return;
    pthread_mutex_lock(&mover->lock);
    mover->is_stopping = true;
    pthread_mutex_unlock(&mover->lock);
    curl_multi_wakeup(mover->multi);
    pthread_join(mover->thread, NULL);
    curl_multi_cleanup(mover->multi);
    pthread_mutex_destroy(&mover->lock);
    free(mover);
}

void http_mover_submit(struct http_mover *mover, struct http_exchange *exchange)
{
    exchange->mover = mover;
    atomic_fetch_add(&mover->load, 1);
    pthread_mutex_lock(&mover->lock);
    exchange->next = mover->inbox;
    mover->inbox = exchange;
    pthread_mutex_unlock(&mover->lock);
    curl_multi_wakeup(mover->multi);
}

void http_mover_cancel(struct http_exchange *exchange)
{
    struct http_mover *mover = exchange->mover;
    atomic_store(&exchange->is_cancelled, true);
    atomic_store(&mover->has_cancels, true);
    curl_multi_wakeup(mover->multi);
}

uint32_t http_mover_load(struct http_mover *mover)
{
    return atomic_load(&mover->load);
}
