/* The threads under the HTTP engine; see http_mover.h.
 *
 * Connecting, and all of what libcurl drives, happens in the multi handle. Direct exchanges take turns on connections that
 * were made there; a connection is idle between two of them. */
#include "source/http/http_mover.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/memory.h"
#include "source/http/http_direct.h"

enum {
    IDLE_MS = 10000, /* libcurl shortens it by its own timers */
    GATHER_BYTES = 4 << 20,
    GATHER_NS = 500000
};
static const uint64_t max_idle_ns = 118000ull * NS_PER_MS; /* as libcurl's own: a balancer may have forgotten it then */

struct http_mover {
    CURLM *multi;
    pthread_t thread;
    pthread_mutex_t lock;
    struct http_exchange *inbox; /* newest first; under the lock */
    bool is_stopping;            /* under the lock */
    atomic_bool has_cancels;
    atomic_uint load;
    /* the thread's own, as are the links */
    struct http_exchange *active;
    uint32_t n_driven;            /* of them, in libcurl's hands */
    uint64_t turn_bytes;          /* that the direct ones moved since the last wait */
    struct http_connection *idle; /* the one used last first */
    uint32_t n_idle, max_idle;
    struct curl_waitfd *waits;
    struct http_exchange **waiting; /* for which of them */
    size_t waits_room, waiting_room;
    char scratch[HTTP_SCRATCH_BYTES];
};

static bool is_driven(const struct http_exchange *exchange)
{
    return exchange->curl.easy || exchange->direct.is_connecting;
}

/* --- idle connections --- */

static void close_idle(struct http_mover *mover, struct http_connection **link)
{
    struct http_connection *connection = *link;
    *link = connection->next;
    mover->n_idle--;
    http_connection_close(connection);
}

static void keep_idle(struct http_mover *mover, struct http_connection *connection)
{
    struct http_connection **last = &mover->idle;
    connection->idle_since_ns = clock_now_ns();
    connection->next = mover->idle;
    mover->idle = connection;
    if (++mover->n_idle <= mover->max_idle)
        return;
    while ((*last)->next)
        last = &(*last)->next;
    close_idle(mover, last);
}

static void close_old(struct http_mover *mover)
{
    uint64_t now_ns = clock_now_ns();
    for (struct http_connection **link = &mover->idle; *link;) {
        if (now_ns - (*link)->idle_since_ns > max_idle_ns)
            close_idle(mover, link);
        else
            link = &(*link)->next;
    }
}

static struct http_connection *take_idle(struct http_mover *mover, const struct http_exchange *exchange)
{
    for (struct http_connection **link = &mover->idle; *link;) {
        struct http_connection *connection = *link;
        if (!http_connection_serves(connection, exchange->direct.origin, &exchange->curl.wire)) {
            link = &connection->next;
        } else if (!http_connection_is_quiet(connection)) {
            close_idle(mover, link);
        } else {
            *link = connection->next;
            mover->n_idle--;
            return connection;
        }
    }
    return NULL;
}

/* --- exchanges --- */

static void end(struct http_mover *mover, struct http_exchange *exchange, CURLcode code)
{
    struct http_exchange **link = &mover->active;
    while (*link != exchange)
        link = &(*link)->next;
    *link = exchange->next;
    mover->n_driven -= is_driven(exchange);
    struct http_connection *connection = exchange->direct.connection;
    if (exchange->curl.easy)
        curl_multi_remove_handle(mover->multi, exchange->curl.easy);
    else if (connection && http_direct_spares_connection(exchange, code))
        keep_idle(mover, connection);
    else if (connection)
        http_connection_close(connection);
    atomic_fetch_sub(&mover->load, 1);
    http_exchange_finish(exchange, code);
}

static void go_on_direct(struct http_mover *mover, struct http_exchange *exchange)
{
    CURLcode code = CURLE_OK;
    mover->turn_bytes += http_direct_go_on(exchange, mover->scratch, &code);
    if (exchange->direct.wait == HTTP_WAIT_OVER)
        end(mover, exchange, code);
}

static bool begin_direct(struct http_mover *mover, struct http_exchange *exchange)
{
    struct http_connection *connection = exchange->order.is_fresh ? NULL : take_idle(mover, exchange);
    if (connection) {
        http_direct_begin(exchange, connection);
        return true;
    }
    connection = http_connection_open(mover->multi, exchange->order.attempt->url, &exchange->curl.wire, exchange);
    if (!connection)
        return false;
    exchange->direct.connection = connection;
    exchange->direct.is_connecting = true;
    mover->n_driven++;
    return true;
}

static bool begin_driven(struct http_mover *mover, struct http_exchange *exchange)
{
    mover->n_driven++;
    return curl_multi_add_handle(mover->multi, exchange->curl.easy) == CURLM_OK;
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
        exchange->next = mover->active;
        mover->active = exchange;
        if (!(exchange->curl.easy ? begin_driven(mover, exchange) : begin_direct(mover, exchange)))
            end(mover, exchange, CURLE_FAILED_INIT);
        else if (atomic_load(&exchange->is_cancelled)) /* while it was in the inbox, where end_cancelled() did not see it */
            end(mover, exchange, CURLE_ABORTED_BY_CALLBACK);
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

static void connected(struct http_mover *mover, struct http_exchange *exchange, CURLcode code)
{
    struct http_connection *connection = exchange->direct.connection;
    http_exchange_note_connection(exchange, connection->easy);
    if (code != CURLE_OK) {
        memcpy(exchange->curl.message, connection->message, sizeof exchange->curl.message);
        end(mover, exchange, code);
        return;
    }
    http_connection_opened(connection);
    mover->n_driven--;
    http_direct_begin(exchange, connection);
    go_on_direct(mover, exchange);
}

static void drive(struct http_mover *mover)
{
    int n_running, n_left;
    CURLMsg *message;
    if (mover->n_driven == 0)
        return;
    curl_multi_perform(mover->multi, &n_running);
    while ((message = curl_multi_info_read(mover->multi, &n_left))) {
        struct http_exchange *exchange;
        CURLcode code = message->data.result;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &exchange);
        if (exchange->curl.easy)
            end(mover, exchange, code);
        else
            connected(mover, exchange, code);
    }
}

static void give_turns(struct http_mover *mover)
{
    for (struct http_exchange *exchange = mover->active, *next; exchange; exchange = next) {
        next = exchange->next;
        if (!is_driven(exchange) && exchange->direct.wait == HTTP_WAIT_NOTHING)
            go_on_direct(mover, exchange);
    }
}

static void wait_for_bytes(struct http_mover *mover, struct http_exchange *exchange, size_t n)
{
    static const short events[] = {[HTTP_WAIT_READABLE] = CURL_WAIT_POLLIN,
                                   [HTTP_WAIT_WRITABLE] = CURL_WAIT_POLLOUT,
                                   [HTTP_WAIT_EITHER] = CURL_WAIT_POLLIN | CURL_WAIT_POLLOUT};
    ARRAY_RESERVE(mover->waits, n, mover->waits_room);
    ARRAY_RESERVE(mover->waiting, n, mover->waiting_room);
    mover->waiting[n] = exchange;
    mover->waits[n] =
        (struct curl_waitfd){.fd = exchange->direct.connection->socket, .events = events[exchange->direct.wait]};
}

/* Until something comes; not at all when an exchange has more to do. */
static void wait(struct http_mover *mover)
{
    unsigned n = 0;
    int timeout_ms = IDLE_MS;
    for (struct http_exchange *exchange = mover->active; exchange; exchange = exchange->next) {
        if (is_driven(exchange))
            continue;
        if (exchange->direct.wait == HTTP_WAIT_NOTHING)
            timeout_ms = 0;
        else
            wait_for_bytes(mover, exchange, n++);
    }
    /* bytes in driblets cost a wake-up each and pull the sender's work along: a moment later there are more of them */
    if (timeout_ms > 0 && mover->turn_bytes > 0 && mover->turn_bytes < GATHER_BYTES)
        nanosleep(&(struct timespec){.tv_nsec = GATHER_NS}, NULL);
    curl_multi_poll(mover->multi, mover->waits, n, timeout_ms, NULL);
    for (unsigned i = 0; i < n; i++)
        if (mover->waits[i].revents)
            mover->waiting[i]->direct.wait = HTTP_WAIT_NOTHING;
}

static void *move(void *data)
{
    struct http_mover *mover = data;
    while (take_inbox(mover)) {
        mover->turn_bytes = 0;
        end_cancelled(mover);
        drive(mover);
        give_turns(mover);
        close_old(mover);
        wait(mover);
    }
    while (mover->idle)
        close_idle(mover, &mover->idle);
    return NULL;
}

int http_mover_start(uint32_t max_connections, struct http_mover **mover, struct error *error)
{
    struct http_mover *new = memory_alloc(sizeof *new);
    new->max_idle = max_connections;
    pthread_mutex_init(&new->lock, NULL);
    new->multi = curl_multi_init();
    if (new->multi) {
        curl_multi_setopt(new->multi, CURLMOPT_MAXCONNECTS, 2L * max_connections); /* those it lent count, too */
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
    free(mover->waits);
    free(mover->waiting);
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
