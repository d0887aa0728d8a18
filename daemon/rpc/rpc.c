/* Server, queue thread, drain. The life of a call is in rpc_call.c; who connects, in rpc_peer.c and rpc_connections.c.
 *
 * Start: routes are built, the queue thread runs, the listener binds last. A connection goes to the peer of its uid,
 * which is made when the first connection of that uid arrives.
 * Drain: no more accepts, new calls are answered UNAVAILABLE, and so are running ones when the grace is over. When the last
 * call has ended, or LAST_WORDS_MS after the grace, gRPC is shut down and everything that is left cancelled; not earlier,
 * because gRPC answers calls that cross its GOAWAY with CANCELLED, and because silent connections would never answer one.
 * When every peer has stopped and every call is freed (or after LAST_WAIT_MS, should a handler not end its call) `drained`
 * runs. Destroy frees all of it in order, or abandons it when a call is left, because gRPC cannot be torn down under one. */
#include "rpc/rpc.h"

#include <grpc/grpc_security.h>
#include <grpc/support/log.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "observe/log.h"
#include "rpc/rpc_internal.h"

enum {
    LAST_WAIT_MS = 1000,
    LAST_WORDS_MS = 500,     /* for clients to get the answer that the daemon stops */
    SPARE_BYTES = 256 << 20, /* what gRPC may need beside messages */
};

void rpc_post(struct rpc_server *server, struct rpc_tag *tag)
{
    pthread_mutex_lock(&server->post_lock);
    if (!server->closed)
        loop_post(server->options.loop, &tag->task);
    pthread_mutex_unlock(&server->post_lock);
}

void rpc_hand_over(struct rpc_tag *tag)
{
    atomic_store_explicit(&tag->handed_over, true, memory_order_release);
}

static void *serve_queue(void *data)
{
    grpc_completion_queue *queue = data;
    for (;;) {
        grpc_event event = grpc_completion_queue_next(queue, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
        if (event.type == GRPC_QUEUE_SHUTDOWN)
            return NULL;
        struct rpc_tag *tag = event.tag;
        atomic_load_explicit(&tag->handed_over, memory_order_acquire);
        tag->on_event(tag, event.success);
    }
}

static void on_shed(void *context, int errno_value)
{
    const struct rpc_server *server = context;
    log_warn("accept_failed", LOG_TEXT("error", strerror(errno_value)), LOG_TEXT("socket", server->options.socket_path));
}

static void on_accept(void *context, int fd, const struct ucred *credentials)
{
    rpc_peer_accept(context, fd, credentials->uid);
}

static void on_hangup(void *context, uint64_t id, void *owner, bool is_surplus)
{
    struct rpc_server *server = context;
    rpc_peer_connection_ended(server, owner, is_surplus);
    if (server->options.on_disconnect)
        server->options.on_disconnect(server->options.context, id);
}

static void on_grpc_log(gpr_log_func_args *args)
{
    log_debug("grpc", LOG_TEXT("file", args->file), LOG_U64("line", (uint64_t)args->line),
              LOG_TEXT("message", args->message));
}

/* Messages are bounded by the relay, which refuses one of them; gRPC, short of memory, ends any streams, so it comes last.
 */
static size_t grpc_quota_bytes(struct quota *quota)
{
    uint64_t messages = quota ? quota_limit(quota, QUOTA_METADATA) : 0;
    return messages > SIZE_MAX / 2 ? SIZE_MAX / 2 : SPARE_BYTES + messages;
}

/* gRPC's threads and ours must never take a signal that is meant for the loop. */
static int start_grpc(struct rpc_server *server, struct error *error)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    rpc_memory_tame();
    gpr_set_log_function(on_grpc_log);
    grpc_init();
    server->queue = grpc_completion_queue_create_for_next(NULL);
    server->credentials = grpc_insecure_server_credentials_create();
    server->quota = grpc_resource_quota_create("rpc");
    grpc_resource_quota_resize(server->quota, grpc_quota_bytes(server->options.quota));
    int failed = pthread_create(&server->thread, NULL, serve_queue, server->queue);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    server->thread_runs = !failed;
    return failed ? fail_errno(error, failed, "cannot start the thread that serves requests") : 0;
}

int rpc_server_create(const struct rpc_options *options, struct rpc_server **result, struct error *error)
{
    struct rpc_server *server = memory_alloc(sizeof *server);
    *result = NULL;
    server->options = *options;
    pthread_mutex_init(&server->post_lock, NULL);
    server->connections = rpc_connections_create(options->loop, on_hangup, server);
    server->symbols = rpc_symbols_create(options->descriptor_set, options->descriptor_set_bytes);
    server->trim = loop_timer_create(options->loop, rpc_memory_on_timer, server);
    server->sweep = loop_timer_create(options->loop, rpc_peer_on_sweep, server);
    const struct unix_listener_options listen = {.loop = options->loop,
                                                 .key = "server.socket_path",
                                                 .type = SOCK_STREAM,
                                                 .path = options->socket_path,
                                                 .mode = options->socket_mode,
                                                 .group = options->socket_group,
                                                 .listen_fd = options->listen_fd,
                                                 .refuse_descriptors = true,
                                                 .on_accept = on_accept,
                                                 .on_shed = on_shed,
                                                 .context = server};
    if (rpc_route_build(server, error) || start_grpc(server, error) ||
        !(server->listener = unix_listener_open(&listen, error))) {
        rpc_server_destroy(server);
        return -1;
    }
    *result = server;
    return 0;
}

static void tell_calls(struct rpc_server *server)
{
    struct rpc_call *next;
    for (struct rpc_call *call = server->calls; call; call = next) {
        next = call->next;
        if (call->on_state)
            call->on_state(call);
    }
}

void rpc_server_ready(struct rpc_server *server)
{
    server->state = RPC_SERVING;
    tell_calls(server);
}

static void on_over(struct loop_task *task)
{
    struct rpc_server *server = (struct rpc_server *)((char *)task - offsetof(struct rpc_server, over));
    server->on_drained(server->options.context);
}

/* gRPC says a peer has stopped when its connections are closed, which may be before the last of its calls is freed. */
static void end_if_over(struct rpc_server *server)
{
    if (!server->shut || server->n_peers_running || server->n_calls || server->drained)
        return;
    server->drained = true;
    loop_timer_stop(server->grace);
    server->over.run = on_over;
    loop_post(server->options.loop, &server->over);
}

static void on_last_wait(void *data)
{
    struct rpc_server *server = data;
    log_debug("calls_abandoned", LOG_U64("calls", server->n_calls), LOG_U64("users", server->n_peers_running));
    server->drained = true;
    server->on_drained(server->options.context);
}

static void shut_down(struct rpc_server *server)
{
    if (server->shut)
        return;
    server->shut = true;
    loop_timer_destroy(server->grace);
    server->grace = loop_timer_create(server->options.loop, on_last_wait, server);
    loop_timer_start(server->grace, LAST_WAIT_MS, 0);
    rpc_peer_stop_all(server);
    end_if_over(server);
}

static void on_words_over(void *data)
{
    shut_down(data);
}

/* From the start each time: the end of one call may end others. */
static struct rpc_call *find_running(const struct rpc_server *server)
{
    for (struct rpc_call *call = server->calls; call; call = call->next)
        if (!call->ended && !call->cancelled && !call->is_cut_off && call->route && call->route->kind != RPC_BIDI)
            return call;
    return NULL;
}

static void on_grace_over(void *data)
{
    struct rpc_server *server = data;
    struct rpc_call *call;
    if (server->options.on_grace_over && server->calls)
        server->options.on_grace_over(server->options.context);
    loop_timer_destroy(server->grace);
    server->grace = loop_timer_create(server->options.loop, on_words_over, server);
    loop_timer_start(server->grace, server->calls ? LAST_WORDS_MS : 0, 0);
    while ((call = find_running(server)))
        rpc_call_cut_off(call);
}

void rpc_peer_gone(struct rpc_server *server)
{
    end_if_over(server);
}

void rpc_call_gone(struct rpc_server *server)
{
    if (server->state == RPC_DRAINING && !server->calls && !server->shut)
        loop_timer_start(server->grace, 0, 0);
    end_if_over(server);
}

void rpc_server_drain(struct rpc_server *server, uint64_t grace_ms, void (*drained)(void *context))
{
    server->state = RPC_DRAINING;
    server->on_drained = drained;
    unix_listener_close(server->listener);
    server->listener = NULL;
    fail(&server->stopping, ERROR_UNAVAILABLE, "DAEMON_STOPPING",
         "the daemon is stopping; the request did not end within server.shutdown_grace %g s", (double)grace_ms / 1000);
    server->grace = loop_timer_create(server->options.loop, on_grace_over, server);
    loop_timer_start(server->grace, grace_ms, 0);
    tell_calls(server);
    rpc_call_gone(server);
}

static void stop_grpc(struct rpc_server *server)
{
    if (!server->queue)
        return;
    grpc_completion_queue_shutdown(server->queue);
    if (server->thread_runs)
        pthread_join(server->thread, NULL);
    grpc_completion_queue_destroy(server->queue);
    grpc_server_credentials_release(server->credentials);
    grpc_resource_quota_unref(server->quota);
    grpc_shutdown_blocking();
}

void rpc_server_destroy(struct rpc_server *server)
{
    if (!server)
        return;
    unix_listener_close(server->listener);
    loop_timer_destroy(server->grace);
    loop_timer_destroy(server->trim);
    loop_timer_destroy(server->sweep);
    server->trim = server->sweep = NULL;
    pthread_mutex_lock(&server->post_lock);
    server->closed = true;
    pthread_mutex_unlock(&server->post_lock);
    rpc_connections_end_all(server->connections);
    if (server->n_peers_running || server->n_calls)
        return; /* abandoned: its thread may still look at it */
    stop_grpc(server);
    rpc_connections_destroy(server->connections);
    rpc_peer_free_all(server);
    rpc_route_destroy(server);
    rpc_symbols_destroy(server->symbols);
    pthread_mutex_destroy(&server->post_lock);
    free(server);
}

uint64_t rpc_server_connections(const struct rpc_server *server)
{
    return rpc_connections_count(server->connections);
}
