/* Server: start and drain. Users and connections are admitted in rpc_admission.c, what comes over a connection in rpc_connection.c, the life of
 * a call in rpc_call.c.
 *
 * Drain: new calls are answered UNAVAILABLE, except health and status, and so are running ones when the grace is over. Where the
 * listening socket was passed, another process accepts from it, now or soon. So no call has to fail: clients are told to make other
 * connections, and for LEAVING_MS, or until all have left, calls that they had sent before are handled. When the last
 * call has ended, accepting ends, too; or LAST_WORDS_MS after the grace, every connection is told GOAWAY and closed. When every call is freed (or
 * after LAST_WAIT_MS, should a handler not end its call) `drained` runs. Destroy frees all of it, or abandons it when a call
 * is left: then the end of the last one frees it. */
#include "rpc/rpc.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/state.h"
#include "observe/log.h"
#include "rpc/rpc_internal.h"

enum {
    LAST_WAIT_MS = 1000,
    LEAVING_MS = 1000,
    LEAVING_POLL_MS = 10,
    LAST_WORDS_MS = 500, /* for clients to get the answer that the daemon stops */
    TRIM_DELAY_MS = 1000,
    KEPT_BYTES = 1 << 20, /* free memory that each of malloc's arenas may keep */
    MAX_ARENAS = 4,
};

/* --- memory of large requests ---------------------------------------------------------------------------------------- */

static void trim_work(struct loop_work *work)
{
    (void)work;
    malloc_trim(0);
}

static void trim_done(struct loop_work *work)
{
    free(work);
}

static void on_trim_timer(void *data)
{
    struct rpc_server *server = data;
    server->trim_waits = false;
    struct loop_work *work = memory_alloc(sizeof *work);
    *work = (struct loop_work){.do_work = trim_work, .done = trim_done, .uid = geteuid()};
    loop_continue(server->options.loop, work);
}

void rpc_server_trim_later(struct rpc_server *server)
{
    if (server->trim_waits || !server->trim)
        return;
    server->trim_waits = true;
    loop_timer_start(server->trim, TRIM_DELAY_MS, 0);
}

/* --- the beginning --------------------------------------------------------------------------------------------------- */

static void on_shed(void *context, int errno_value)
{
    const struct rpc_server *server = context;
    log_at_of(LOG_WARN, "accept_failed", LOG_NOBODY, LOG_TEXT("error", strerror(errno_value)),
              LOG_TEXT("socket", server->options.socket_path));
}

static void on_turn(void *context)
{
    const struct rpc_server *server = context;
    log_at_of(LOG_INFO, "socket_taken_over", LOG_NOBODY, LOG_TEXT("socket", server->options.socket_path));
}

int rpc_server_create(const struct rpc_options *options, struct rpc_server **result, struct error *error)
{
    struct rpc_server *server = memory_alloc(sizeof *server);
    *result = NULL;
    server->options = *options;
    server->symbols = rpc_symbols_create(options->descriptor_set, options->descriptor_set_bytes);
    server->trim = loop_timer_create(options->loop, on_trim_timer, server);
    /* Left alone, malloc raises its thresholds with every large request it sees and then keeps up to 64 MB per arena, which
     * malloc_trim() does not return. */
    mallopt(M_MMAP_THRESHOLD, KEPT_BYTES);
    mallopt(M_TRIM_THRESHOLD, KEPT_BYTES);
    mallopt(M_ARENA_MAX, MAX_ARENAS);
    rpc_connection_init(server);
    rpc_admission_init(server);
    const struct unix_listener_options listen = {.loop = options->loop,
                                                 .key = "server.socket_path",
                                                 .type = SOCK_STREAM,
                                                 .path = options->socket_path,
                                                 .mode = options->socket_mode,
                                                 .group = options->socket_group,
                                                 .listen_fd = options->listen_fd,
                                                 .refuse_descriptors = true,
                                                 .on_accept = rpc_admission_accept,
                                                 .on_shed = on_shed,
                                                 .on_turn = on_turn,
                                                 .context = server};
    if (rpc_services_build(server, error) || !(server->listener = unix_listener_open(&listen, error))) {
        rpc_server_destroy(server);
        return -1;
    }
    *result = server;
    return 0;
}

uint64_t rpc_server_connections(const struct rpc_server *server)
{
    return server->n_connections;
}

/* From the start each time: the end of one call may end others. */
static struct rpc_call *find_call(const struct rpc_server *server, bool (*is_wanted)(const struct rpc_call *call))
{
    struct rpc_connection *connection;
    struct rpc_call *call;
    LIST_FOREACH (connection, &server->connections, in_server)
        LIST_FOREACH (call, &connection->calls, in_connection)
            if (is_wanted(call))
                return call;
    return NULL;
}

static bool was_not_told(const struct rpc_call *call)
{
    return call->hooks.on_state && call->state_told != call->server->state;
}

static void set_server_state(struct rpc_server *server, enum rpc_state state)
{
    static const struct state_row states[] = {
        [RPC_STARTING] = {"starting", STATE_BIT(RPC_SERVING) | STATE_BIT(RPC_DRAINING)},
        [RPC_SERVING] = {"serving", STATE_BIT(RPC_DRAINING)},
        [RPC_DRAINING] = {"draining", 0}};
    static const struct state_machine machine = {"server", states, 3};
    struct rpc_call *call;
    state_check(&machine, server->state, state);
    server->state = state;
    while ((call = find_call(server, was_not_told))) {
        call->state_told = state;
        call->hooks.on_state(call);
    }
}

void rpc_server_ready(struct rpc_server *server)
{
    set_server_state(server, RPC_SERVING);
}

bool rpc_server_waits(const struct rpc_server *server)
{
    return server->listener && unix_listener_waits(server->listener);
}

/* --- the end --------------------------------------------------------------------------------------------------------- */

static void free_server(struct rpc_server *server)
{
    rpc_services_destroy(server);
    rpc_symbols_destroy(server->symbols);
    free(server);
}

static void on_over(struct loop_task *task)
{
    struct rpc_server *server = (struct rpc_server *)((char *)task - offsetof(struct rpc_server, drain.over));
    server->drain.on_drained(server->options.context);
}

static void end_if_over(struct rpc_server *server)
{
    struct rpc_drain *drain = &server->drain;
    if (!drain->is_shut || server->n_calls || drain->is_over)
        return;
    drain->is_over = true;
    loop_timer_stop(drain->timer);
    drain->over.run = on_over;
    loop_post(server->options.loop, &drain->over);
}

static void on_last_wait(void *data)
{
    struct rpc_server *server = data;
    log_debug("calls_abandoned", LOG_U64("calls", server->n_calls));
    server->drain.is_over = true;
    server->drain.on_drained(server->options.context);
}

static void start_timer(struct rpc_server *server, void (*fn)(void *server), uint64_t delay_ms)
{
    loop_timer_destroy(server->drain.timer);
    server->drain.timer = loop_timer_create(server->options.loop, fn, server);
    loop_timer_start(server->drain.timer, delay_ms, 0);
}

static void stop_listening(struct rpc_server *server)
{
    unix_listener_close(server->listener);
    server->listener = NULL;
}

static void on_words_over(void *data)
{
    struct rpc_server *server = data;
    server->drain.is_shut = true;
    stop_listening(server);
    start_timer(server, on_last_wait, LAST_WAIT_MS);
    rpc_connection_end_all(server);
    end_if_over(server);
}

static bool has_work(const struct rpc_server *server)
{
    return server->n_calls > server->n_late_calls;
}

static bool is_running(const struct rpc_call *call)
{
    return call->state != RPC_CALL_ENDED && !call->is_left && !call->is_cut_off;
}

/* Or there is nothing more to wait for. */
static void on_grace_over(void *data)
{
    struct rpc_server *server = data;
    struct rpc_call *call;
    uint64_t now_ns = clock_now_ns();
    bool are_leaving = server->n_connections && now_ns < server->drain.leaving_ns;
    if (has_work(server) ? now_ns < server->drain.grace_ns : are_leaving) {
        loop_timer_start(server->drain.timer, LEAVING_POLL_MS, 0);
        return;
    }
    if (server->options.on_grace_over && has_work(server))
        server->options.on_grace_over(server->options.context);
    start_timer(server, on_words_over, has_work(server) ? LAST_WORDS_MS : 0);
    while ((call = find_call(server, is_running)))
        rpc_call_cut_off(call);
}

void rpc_server_call_gone(struct rpc_server *server)
{
    if (server->drain.is_destroyed && !server->n_calls)
        free_server(server);
    else if (server->state == RPC_DRAINING && !has_work(server) && !server->drain.is_shut)
        loop_timer_start(server->drain.timer, 0, 0);
    else
        end_if_over(server);
}

static bool is_arriving(const struct rpc_call *call)
{
    return call->state == RPC_CALL_RECEIVING;
}

void rpc_server_drain(struct rpc_server *server, uint64_t grace_ms, void (*drained)(void *context))
{
    struct rpc_call *call;
    struct error error;
    uint64_t now_ns = clock_now_ns();
    bool is_shared = server->options.listen_fd >= 0;
    server->drain.on_drained = drained;
    server->drain.grace_ns = now_ns + grace_ms * NS_PER_MS;
    server->drain.leaving_ns = is_shared ? now_ns + LEAVING_MS * NS_PER_MS : now_ns;
    if (is_shared)
        stop_listening(server);
    fail(&server->drain.stopping, ERROR_UNAVAILABLE, "DAEMON_STOPPING",
         "the daemon is stopping; the request did not end within server.shutdown_grace %g s", (double)grace_ms / 1000);
    start_timer(server, on_grace_over, has_work(server) ? grace_ms : 0);
    set_server_state(server, RPC_DRAINING);
    fail(&error, ERROR_UNAVAILABLE, "SHUTTING_DOWN", "the daemon is shutting down");
    if (is_shared)
        rpc_connection_send_away_all(server);
    while (!is_shared && (call = find_call(server, is_arriving))) /* half a request must not hold up the end */
        rpc_call_fail(call, &error);
}

void rpc_server_destroy(struct rpc_server *server)
{
    if (!server)
        return;
    stop_listening(server);
    rpc_connection_end_all(server);
    loop_timer_destroy(server->drain.timer);
    loop_timer_destroy(server->trim);
    server->trim = server->drain.timer = NULL;
    rpc_admission_fini(server);
    rpc_connection_fini(server);
    server->drain.is_destroyed = server->drain.is_shut = server->drain.is_over = true;
    if (!server->n_calls)
        free_server(server);
}
