/* The HTTP engine's life and its threads; see http.h and http_engine.h.
 *
 * Connecting, and all of what libcurl drives, happens in a mover's multi handle. Direct exchanges take turns on connections
 * that were made there; a connection is idle between two of them. */
#include "source/http/http_engine.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "source/http/http_direct.h"

enum {
    IDLE_MS = 10000, /* libcurl shortens it by its own timers */
    GATHER_BYTES = 4 << 20,
    GATHER_NS = 500000
};
static const uint64_t max_idle_ns = 118000ull * NS_PER_MS; /* as libcurl's own: a balancer may have forgotten it then */

TAILQ_HEAD(exchanges, http_exchange);
struct http_mover {
    CURLM *multi;
    pthread_t thread;
    pthread_mutex_t lock;
    struct exchanges inbox; /* under the lock */
    bool is_stopping;       /* under the lock */
    bool has_cancels;       /* atomic */
    /* the thread's own, as are the links */
    struct exchanges active;
    uint32_t n_driven;                             /* of them, in libcurl's hands */
    uint64_t turn_bytes;                           /* that the direct ones moved since the last wait */
    TAILQ_HEAD(connections, http_connection) idle; /* the one used last first */
    uint32_t n_idle, max_idle;
    struct curl_waitfd *waits;
    size_t waits_room;
    char scratch[HTTP_SCRATCH_BYTES];
};

static bool is_driven(const struct http_exchange *exchange)
{
    return exchange->curl.easy || exchange->direct.is_connecting;
}

/* --- idle connections of a mover --- */

static void close_idle(struct http_mover *mover, struct http_connection *connection)
{
    TAILQ_REMOVE(&mover->idle, connection, link);
    mover->n_idle--;
    http_connection_close(mover->multi, connection);
}

static struct http_connection *take_idle(struct http_mover *mover, const struct http_exchange *exchange)
{
    struct http_connection *next;
    for (struct http_connection *connection = TAILQ_FIRST(&mover->idle); connection; connection = next) {
        next = TAILQ_NEXT(connection, link);
        if (!http_connection_serves(connection, exchange))
            continue;
        if (http_connection_is_quiet(connection)) {
            TAILQ_REMOVE(&mover->idle, connection, link);
            mover->n_idle--;
            return connection;
        }
        close_idle(mover, connection);
    }
    return NULL;
}

/* --- exchanges --- */

static void end(struct http_mover *mover, struct http_exchange *exchange, CURLcode code)
{
    TAILQ_REMOVE(&mover->active, exchange, link);
    mover->n_driven -= is_driven(exchange);
    exchange->curl.code = code;
    struct http_connection *connection = exchange->direct.connection;
    if (exchange->curl.easy)
        curl_multi_remove_handle(mover->multi, exchange->curl.easy);
    else if (connection && http_direct_spares_connection(exchange)) {
        connection->idle_since_ns = clock_now_ns();
        TAILQ_INSERT_HEAD(&mover->idle, connection, link);
        if (++mover->n_idle > mover->max_idle)
            close_idle(mover, TAILQ_LAST(&mover->idle, connections));
    } else if (connection)
        http_connection_close(mover->multi, connection);
    http_exchange_finish(exchange);
}

static void go_on_direct(struct http_mover *mover, struct http_exchange *exchange)
{
    mover->turn_bytes += http_direct_go_on(exchange, mover->scratch);
    if (exchange->direct.wait == HTTP_WAIT_OVER)
        end(mover, exchange, exchange->curl.code);
}

static bool begin(struct http_mover *mover, struct http_exchange *exchange)
{
    if (exchange->curl.easy) {
        mover->n_driven++;
        return curl_multi_add_handle(mover->multi, exchange->curl.easy) == CURLM_OK;
    }
    struct http_connection *connection = exchange->order.is_fresh ? NULL : take_idle(mover, exchange);
    if (connection) {
        http_direct_begin(exchange, connection);
        return true;
    }
    exchange->direct.connection = http_connection_open(mover->multi, exchange);
    exchange->direct.is_connecting = exchange->direct.connection != NULL;
    mover->n_driven += exchange->direct.is_connecting;
    return exchange->direct.is_connecting;
}

static bool take_inbox(struct http_mover *mover)
{
    struct exchanges fresh = TAILQ_HEAD_INITIALIZER(fresh);
    struct http_exchange *exchange;
    pthread_mutex_lock(&mover->lock);
    TAILQ_CONCAT(&fresh, &mover->inbox, link);
    bool is_stopping = mover->is_stopping;
    pthread_mutex_unlock(&mover->lock);
    while ((exchange = TAILQ_FIRST(&fresh))) {
        TAILQ_REMOVE(&fresh, exchange, link);
        TAILQ_INSERT_TAIL(&mover->active, exchange, link);
        if (!begin(mover, exchange))
            end(mover, exchange, CURLE_FAILED_INIT);
        else if (__atomic_load_n(&exchange->is_cancelled,
                                 __ATOMIC_SEQ_CST)) /* while it was in the inbox, where move() did not see it */
            end(mover, exchange, CURLE_ABORTED_BY_CALLBACK);
    }
    return !is_stopping;
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
        struct http_connection *connection = exchange->direct.connection; /* has been made, or not */
        if (connection)
            http_exchange_note_connection(exchange, connection->easy);
        if (connection && code == CURLE_OK) {
            curl_easy_getinfo(connection->easy, CURLINFO_ACTIVESOCKET, &connection->socket);
            mover->n_driven--;
            http_direct_begin(exchange, connection);
            go_on_direct(mover, exchange);
            continue;
        }
        if (connection)
            memcpy(exchange->curl.message, connection->message, sizeof exchange->curl.message);
        end(mover, exchange, code);
    }
}

/* Until something comes; not at all when an exchange has more to do. */
static void wait(struct http_mover *mover)
{
    static const short events[] = {[HTTP_WAIT_READABLE] = CURL_WAIT_POLLIN,
                                   [HTTP_WAIT_WRITABLE] = CURL_WAIT_POLLOUT,
                                   [HTTP_WAIT_EITHER] = CURL_WAIT_POLLIN | CURL_WAIT_POLLOUT};
    struct http_exchange *exchange;
    unsigned n = 0, i = 0;
    int timeout_ms = IDLE_MS;
    TAILQ_FOREACH (exchange, &mover->active, link) {
        enum http_direct_wait wait = exchange->direct.wait;
        if (is_driven(exchange))
            continue;
        if (wait == HTTP_WAIT_NOTHING) {
            timeout_ms = 0;
            continue;
        }
        ARRAY_RESERVE(mover->waits, n, mover->waits_room);
        mover->waits[n++] = (struct curl_waitfd){.fd = exchange->direct.connection->socket, .events = events[wait]};
    }
    /* bytes in driblets cost a wake-up each and pull the sender's work along: a moment later there are more of them */
    if (timeout_ms > 0 && mover->turn_bytes > 0 && mover->turn_bytes < GATHER_BYTES)
        nanosleep(&(struct timespec){.tv_nsec = GATHER_NS}, NULL);
    curl_multi_poll(mover->multi, mover->waits, n, timeout_ms, NULL);
    TAILQ_FOREACH (exchange, &mover->active, link)
        if (!is_driven(exchange) && exchange->direct.wait != HTTP_WAIT_NOTHING && mover->waits[i++].revents)
            exchange->direct.wait = HTTP_WAIT_NOTHING;
}

static void *move(void *data)
{
    struct http_mover *mover = data;
    struct http_exchange *exchange, *next;
    struct http_connection *last;
    while (take_inbox(mover)) {
        mover->turn_bytes = 0;
        bool has_cancels = __atomic_exchange_n(&mover->has_cancels, false, __ATOMIC_SEQ_CST);
        for (exchange = TAILQ_FIRST(&mover->active); has_cancels && exchange; exchange = next) {
            next = TAILQ_NEXT(exchange, link);
            if (__atomic_load_n(&exchange->is_cancelled, __ATOMIC_SEQ_CST))
                end(mover, exchange, CURLE_ABORTED_BY_CALLBACK);
        }
        drive(mover);
        for (exchange = TAILQ_FIRST(&mover->active); exchange; exchange = next) {
            next = TAILQ_NEXT(exchange, link);
            if (!is_driven(exchange) && exchange->direct.wait == HTTP_WAIT_NOTHING)
                go_on_direct(mover, exchange);
        }
        uint64_t now_ns = clock_now_ns();
        while ((last = TAILQ_LAST(&mover->idle, connections)) && now_ns - last->idle_since_ns > max_idle_ns)
            close_idle(mover, last);
        wait(mover);
    }
    while ((last = TAILQ_LAST(&mover->idle, connections)))
        close_idle(mover, last);
    return NULL;
}

static int start_mover(uint32_t max_connections, struct http_mover **mover, struct error *error)
{
    struct http_mover *new = memory_alloc(sizeof *new);
    new->max_idle = max_connections;
    TAILQ_INIT(&new->inbox);
    TAILQ_INIT(&new->active);
    TAILQ_INIT(&new->idle);
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

static void stop_mover(struct http_mover *mover)
{
    pthread_mutex_lock(&mover->lock);
    mover->is_stopping = true;
    pthread_mutex_unlock(&mover->lock);
    curl_multi_wakeup(mover->multi);
    pthread_join(mover->thread, NULL);
    curl_multi_cleanup(mover->multi);
    pthread_mutex_destroy(&mover->lock);
    free(mover->waits);
    free(mover);
}

void http_engine_submit(struct http_engine *engine, uint32_t number, struct http_exchange *exchange)
{
    struct error ignored; /* what cannot be started is done without */
    pthread_mutex_lock(&engine->movers_lock);
    if (!engine->movers[number] && start_mover(engine->options.max_connections, &engine->movers[number], &ignored))
        number = 0;
    struct http_mover *mover = exchange->mover = engine->movers[number];
    pthread_mutex_unlock(&engine->movers_lock);
    pthread_mutex_lock(&mover->lock);
    TAILQ_INSERT_TAIL(&mover->inbox, exchange, link);
    pthread_mutex_unlock(&mover->lock);
    curl_multi_wakeup(mover->multi);
}

void http_engine_cancel(struct http_exchange *exchange)
{
    struct http_mover *mover = exchange->mover;
    __atomic_store_n(&exchange->is_cancelled, true, __ATOMIC_SEQ_CST);
    __atomic_store_n(&mover->has_cancels, true, __ATOMIC_SEQ_CST);
    curl_multi_wakeup(mover->multi);
}

/* --- the engine --- */

/* One of them moves about 4 GB/s plain or 1.5 GB/s of TLS and is a core then; the others are left to the copies that follow.
 * A small host may start two: one alone waits for a core behind everything else there. */
enum { CPUS_PER_MOVER = 4, MIN_MOVERS = 2 };

static uint64_t or_default(uint64_t value, uint64_t otherwise)
{
    return value ? value : otherwise;
}

/* libcurl itself reads none of these; its command does, and so do Python's clients. Those that tools set by themselves
 * (conda, nix) come after those that only a person sets. */
static const char *ca_from_environment(void)
{
    static const char *const names[] = {"REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "AWS_CA_BUNDLE", "SSL_CERT_FILE"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *path = getenv(names[i]);
        if (path && *path)
            return path;
    }
    const char *folder = getenv("SSL_CERT_DIR"); /* one that is not there counts for nothing, as with OpenSSL */
    return folder && *folder && access(folder, R_OK) == 0 ? folder : NULL;
}

static struct http_engine_options fill_in(const struct http_engine_options *given, const char *ca_file)
{
    struct http_engine_options filled = given ? *given : (struct http_engine_options){0};
    filled.max_connections = (uint32_t)or_default(filled.max_connections, 64);
    filled.max_host_connections = (uint32_t)or_default(filled.max_host_connections, 32);
    filled.new_host_connections = (uint32_t)or_default(filled.new_host_connections, filled.max_host_connections);
    filled.max_tries = (uint32_t)or_default(filled.max_tries, 8);
    filled.connect_timeout_ms = or_default(filled.connect_timeout_ms, 5000);
    filled.first_byte_timeout_ms = or_default(filled.first_byte_timeout_ms, 30000);
    filled.stall_timeout_ms = or_default(filled.stall_timeout_ms, 5000);
    filled.progress_timeout_ms = or_default(filled.progress_timeout_ms, 120000);
    filled.minimum_bytes_per_s = or_default(filled.minimum_bytes_per_s, 16 << 10);
    filled.hedge_after_ms = or_default(filled.hedge_after_ms, 1500);
    filled.hedge_percent = (uint32_t)or_default(filled.hedge_percent, 5);
    filled.turn_ms = or_default(filled.turn_ms, 2000);
    filled.backoff_ms = or_default(filled.backoff_ms, 200);
    filled.ca_file = ca_file && *ca_file ? memory_copy_text(ca_file) : NULL;
    filled.user_agent = memory_copy_text(filled.user_agent ? filled.user_agent : "tensorcast/" VERSION);
    return filled;
}

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void start_curl(void)
{
    curl_global_init(CURL_GLOBAL_DEFAULT);
}

int http_engine_create(const struct http_engine_options *options, struct http_engine **engine, struct error *error)
{
    pthread_once(&once, start_curl);
    bool is_ca_configured = options && options->ca_file && *options->ca_file;
    const char *ca_file = is_ca_configured ? options->ca_file : ca_from_environment();
    if (ca_file && access(ca_file, R_OK) != 0)
        return fail(error, ERROR_INVALID_ARGUMENT, "NO_CA_FILE", "the CA file %s cannot be read", ca_file);
    struct http_engine *new = memory_alloc(sizeof *new);
    new->options = fill_in(options, ca_file);
    new->is_ca_configured = is_ca_configured;
    http_origins_init(&new->origins, new->options.new_host_connections, new->options.max_host_connections);
    new->origins.is_uncounted = new->options.is_uncounted;
    http_slots_init(&new->slots, &new->origins, new->options.max_connections);
    pthread_mutex_init(&new->easy_lock, NULL);
    pthread_mutex_init(&new->movers_lock, NULL);
    long wanted = sysconf(_SC_NPROCESSORS_ONLN) / CPUS_PER_MOVER;
    new->origins.n_movers = wanted < MIN_MOVERS ? MIN_MOVERS : wanted > HTTP_MAX_MOVERS ? HTTP_MAX_MOVERS : (uint32_t)wanted;
    if (start_mover(new->options.max_connections, &new->movers[0], error)) { /* the others when they have work */
        http_engine_destroy(new);
        return -1;
    }
    *engine = new;
    return 0;
}

void http_engine_destroy(struct http_engine *engine)
{
    if (!engine)
        return;
    for (uint32_t i = 0; i < HTTP_MAX_MOVERS; i++)
        if (engine->movers[i])
            stop_mover(engine->movers[i]);
    for (uint32_t i = 0; i < engine->n_easies; i++)
        curl_easy_cleanup(engine->easies[i]);
    free(engine->easies);
    pthread_mutex_destroy(&engine->easy_lock);
    pthread_mutex_destroy(&engine->movers_lock);
    http_origins_fini(&engine->origins);
    memory_free_const(engine->options.ca_file);
    memory_free_const(engine->options.user_agent);
    free(engine);
}

CURL *http_engine_take_easy(struct http_engine *engine)
{
    pthread_mutex_lock(&engine->easy_lock);
    CURL *easy = engine->n_easies > 0 ? engine->easies[--engine->n_easies] : NULL;
    pthread_mutex_unlock(&engine->easy_lock);
    easy = easy ? easy : curl_easy_init();
    if (!easy)
        abort(); /* as any small allocation that fails: see base/memory.h */
    return easy;
}

void http_engine_give_easy(struct http_engine *engine, CURL *easy)
{
    pthread_mutex_lock(&engine->easy_lock);
    ARRAY_RESERVE(engine->easies, engine->n_easies, engine->easies_room);
    engine->easies[engine->n_easies++] = easy;
    pthread_mutex_unlock(&engine->easy_lock);
}

void http_engine_statistics(struct http_engine *engine, const char *origin, struct http_statistics *statistics)
{
    char name[URL_ORIGIN_CHARS];
    struct url url;
    struct error ignored;
    bool is_url = origin && url_parse(origin, &url, &ignored) == 0;
    http_origins_statistics(&engine->origins, is_url ? url_origin(&url, name) : origin, statistics);
}
