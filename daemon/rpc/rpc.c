/* Server: start and drain. Who connects is in rpc_admission.c, what comes over a connection in rpc_connection.c, the life of
 * a call in rpc_call.c.
 *
 * Drain: no more accepts, new calls are answered UNAVAILABLE, and so are running ones when the grace is over. When the last
 * call has ended, or LAST_WORDS_MS after the grace, every connection is told GOAWAY and closed. When every call is freed (or
 * after LAST_WAIT_MS, should a handler not end its call) `drained` runs. Destroy frees all of it, or abandons it when a call
 * is left: then the end of the last one frees it. */
#include "rpc/rpc.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/state.h"
#include "observe/log.h"
#include "rpc/rpc_internal.h"

enum {
    LAST_WAIT_MS = 1000,
    LAST_WORDS_MS = 500, /* for clients to get the answer that the daemon stops */
};

static void on_shed(void *context, int errno_value)
{
    const struct rpc_server *server = context;
    log_at_of(LOG_WARN, "accept_failed", LOG_NOBODY, LOG_TEXT("error", strerror(errno_value)),
              LOG_TEXT("socket", server->options.socket_path));
}

int rpc_server_create(const struct rpc_options *options, struct rpc_server **result, struct error *error)
{
    struct rpc_server *server = memory_alloc(sizeof *server);
    *result = NULL;
    server->options = *options;
    server->symbols = rpc_symbols_create(options->descriptor_set, options->descriptor_set_bytes);
    server->trim = loop_timer_create(options->loop, rpc_memory_on_timer, server);
    server->admission.sweep = loop_timer_create(options->loop, rpc_admission_on_sweep, server);
    rpc_memory_tame();
    rpc_connection_init(server);
    rpc_turns_init(server);
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
                                                 .context = server};
    if (rpc_route_build(server, error) || !(server->listener = unix_listener_open(&listen, error))) {
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
    for (const struct rpc_connection *connection = server->connections; connection; connection = connection->next)
        for (struct rpc_call *call = connection->calls; call; call = call->next)
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

/* --- the end --------------------------------------------------------------------------------------------------------- */

static void free_server(struct rpc_server *server)
{
    rpc_route_destroy(server);
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

static void on_words_over(void *data)
{
    struct rpc_server *server = data;
    server->drain.is_shut = true;
    start_timer(server, on_last_wait, LAST_WAIT_MS);
    rpc_connection_end_all(server);
    end_if_over(server);
}

static bool is_running(const struct rpc_call *call)
{
    return call->state != RPC_CALL_ENDED && !call->is_left && !call->is_cut_off;
}

static void on_grace_over(void *data)
{
    struct rpc_server *server = data;
    struct rpc_call *call;
    if (server->options.on_grace_over && server->n_calls)
        server->options.on_grace_over(server->options.context);
    start_timer(server, on_words_over, server->n_calls ? LAST_WORDS_MS : 0);
    while ((call = find_call(server, is_running)))
        rpc_call_cut_off(call);
}

void rpc_server_call_gone(struct rpc_server *server)
{
    if (server->drain.is_destroyed && !server->n_calls)
        free_server(server);
    else if (server->state == RPC_DRAINING && !server->n_calls && !server->drain.is_shut)
        loop_timer_start(server->drain.timer, 0, 0);
    else
        end_if_over(server);
}

static bool is_arriving(const struct rpc_call *call)
{
    return call->state == RPC_CALL_RECEIVING;
}

/* Half a request must not hold up the end. */
static void refuse_arriving(struct rpc_server *server)
{
    struct rpc_call *call;
    struct error error;
    fail(&error, ERROR_UNAVAILABLE, "SHUTTING_DOWN", "the daemon is shutting down");
    while ((call = find_call(server, is_arriving)))
        rpc_call_fail(call, &error);
}

void rpc_server_drain(struct rpc_server *server, uint64_t grace_ms, void (*drained)(void *context))
{
    server->drain.on_drained = drained;
    unix_listener_close(server->listener);
    server->listener = NULL;
    fail(&server->drain.stopping, ERROR_UNAVAILABLE, "DAEMON_STOPPING",
         "the daemon is stopping; the request did not end within server.shutdown_grace %g s", (double)grace_ms / 1000);
    start_timer(server, on_grace_over, server->n_calls ? grace_ms : 0);
    set_server_state(server, RPC_DRAINING);
    refuse_arriving(server);
}

void rpc_server_destroy(struct rpc_server *server)
{
    if (!server)
        return;
    unix_listener_close(server->listener);
    rpc_connection_end_all(server);
    loop_timer_destroy(server->drain.timer);
    loop_timer_destroy(server->trim);
    loop_timer_destroy(server->admission.sweep);
    server->trim = server->admission.sweep = server->drain.timer = NULL;
    rpc_turns_fini(server);
    rpc_connection_fini(server);
    server->drain.is_destroyed = server->drain.is_shut = server->drain.is_over = true;
    if (!server->n_calls)
        free_server(server);
}
