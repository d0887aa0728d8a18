/* Server, peers, queue thread, drain. The life of a call is in rpc_call.c, of a connection in rpc_connections.c.
 *
 * Start: routes are built, the queue thread runs, the listener binds last. A connection goes to the peer of its uid,
 * which is made when the first connection of that uid arrives.
 * Drain: no more accepts, new calls are answered UNAVAILABLE. When the last call has ended or the grace is over, gRPC is
 * shut down and everything that is left cancelled; not earlier, because gRPC answers calls that cross its GOAWAY with
 * CANCELLED, and because silent connections would never answer one. When every peer has stopped and every call is freed
 * (or after LAST_WAIT_MS, should a handler not end its call) `drained` runs.
 * Destroy frees all of it in order, or abandons it when a call is left, because gRPC cannot be torn down under one. */
#include "rpc/rpc.h"

#include <grpc/grpc_posix.h>
#include <grpc/grpc_security.h>
#include <grpc/support/log.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "observe/log.h"
#include "rpc/rpc_internal.h"

enum {
    SLOTS_PER_PEER = 4,
    TRIM_DELAY_MS = 1000,
    LAST_WAIT_MS = 1000,
    QUOTA_BYTES = 256 << 20, /* all buffered requests together; single ones are bounded by max_message_bytes */
    MAX_STREAMS_PER_CONNECTION = 128,
    MAX_METADATA_BYTES = 16 << 10,
    KEEPALIVE_MS = 10000, /* only while calls are running: a stopped client's calls are cancelled in 20 s */
    KEEPALIVE_TIMEOUT_MS = 10000,
    MIN_PING_INTERVAL_MS = 1000,
    MAX_IDLE_MS = 10 * 60 * 1000, /* from_fd has no handshake time-out: this ends connections that never say anything */
    WARNING_INTERVAL_NS = 1000000000,
    KEPT_BYTES = 1 << 20, /* free memory that each of malloc's arenas may keep */
    MAX_ARENAS = 4,
    ONLY_IDENTITY = 1, /* compression: 500 KB of gzip become 500 MB before the size is checked */
};

/* --- posting ----------------------------------------------------------------------------------------------------- */

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

/* --- routes ------------------------------------------------------------------------------------------------------ */

static void add_route(struct rpc_server *server, const char *service, const char *method, struct rpc_route route)
{
    size_t room = strlen(service) + strlen(method) + sizeof "//";
    ARRAY_RESERVE(server->routes, server->n_routes, server->routes_capacity);
    route.path = memory_alloc(room);
    snprintf(route.path, room, "/%s/%s", service, method);
    server->routes[server->n_routes++] = route;
}

static int add_method(struct rpc_server *server, const struct rpc_method *method, void *context, struct error *error)
{
    const ProtobufCMethodDescriptor *found = protobuf_c_service_descriptor_get_method_by_name(method->service, method->name);
    if (!found)
        return fail(error, ERROR_INTERNAL, "BAD_METHOD_TABLE", "service %s has no method %s", method->service->name,
                    method->name);
    add_route(server, method->service->name, method->name,
              (struct rpc_route){.input = found->input,
                                 .kind = method->streams ? RPC_STREAM : RPC_UNARY,
                                 .handle = method->handle,
                                 .context = context});
    return 0;
}

const struct rpc_route *rpc_find_route(const struct rpc_server *server, const char *path, size_t length)
{
    uint32_t index = map_find(&server->paths, path, length);
    return index == MAP_NONE ? NULL : &server->routes[index];
}

static int build_routes(struct rpc_server *server, struct error *error)
{
    for (size_t i = 0; i < server->options.n_methods; i++)
        if (add_method(server, &server->options.methods[i], server->options.context, error))
            return -1;
    for (size_t i = 0; i < RPC_HEALTH_METHODS; i++)
        if (add_method(server, &rpc_health_methods[i], server, error))
            return -1;
    for (size_t i = 0; i < RPC_REFLECTION_VERSIONS; i++) {
        const ProtobufCServiceDescriptor *service = rpc_reflection_services[i];
        /* both versions have the same wire format: the first one's types serve for all */
        add_route(server, service->name, service->methods[0].name,
                  (struct rpc_route){.input = rpc_reflection_services[0]->methods[0].input,
                                     .kind = RPC_BIDI,
                                     .handle = rpc_reflection_handle,
                                     .context = server});
    }
    map_init(&server->paths, server->n_routes);
    for (size_t i = 0; i < server->n_routes; i++)
        if (map_add(&server->paths, server->routes[i].path, strlen(server->routes[i].path), (uint32_t)i) != MAP_NONE)
            return fail(error, ERROR_INTERNAL, "BAD_METHOD_TABLE", "%s is listed twice", server->routes[i].path);
    return 0;
}

/* Every method of a service that has a row must have one. */
static int check_routes(const struct rpc_server *server, struct error *error)
{
    char path[256];
    for (size_t i = 0; i < server->options.n_methods; i++) {
        const ProtobufCServiceDescriptor *service = server->options.methods[i].service;
        for (unsigned k = 0; k < service->n_methods; k++) {
            int length = snprintf(path, sizeof path, "/%s/%s", service->name, service->methods[k].name);
            if (!rpc_find_route(server, path, (size_t)length))
                return fail(error, ERROR_INTERNAL, "BAD_METHOD_TABLE", "method %s has no handler", path);
        }
    }
    return 0;
}

/* --- peers and connections --------------------------------------------------------------------------------------- */

static grpc_arg integer_arg(const char *key, int value)
{
    return (grpc_arg){.type = GRPC_ARG_INTEGER, .key = (char *)key, .value.integer = value};
}

static grpc_server *create_grpc_server(const struct rpc_server *server)
{
    uint64_t limit = server->options.max_message_bytes;
    grpc_arg args[] = {
        integer_arg(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, limit > INT32_MAX ? INT32_MAX : (int)limit),
        integer_arg(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, ONLY_IDENTITY),
        integer_arg(GRPC_ARG_MAX_CONCURRENT_STREAMS, MAX_STREAMS_PER_CONNECTION),
        integer_arg(GRPC_ARG_MAX_METADATA_SIZE, MAX_METADATA_BYTES),
        integer_arg(GRPC_ARG_KEEPALIVE_TIME_MS, KEEPALIVE_MS),
        integer_arg(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, KEEPALIVE_TIMEOUT_MS),
        integer_arg(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, MIN_PING_INTERVAL_MS),
        integer_arg(GRPC_ARG_MAX_CONNECTION_IDLE_MS, MAX_IDLE_MS),
        integer_arg(GRPC_ARG_ENABLE_CHANNELZ, 0),
        integer_arg(GRPC_ARG_HTTP2_BDP_PROBE, 0), /* there is no bandwidth-delay product to find on a Unix socket */
        {.type = GRPC_ARG_POINTER,
         .key = GRPC_ARG_RESOURCE_QUOTA,
         .value.pointer = {.p = server->quota, .vtable = grpc_resource_quota_arg_vtable()}},
    };
    const grpc_channel_args channel_args = {.num_args = sizeof args / sizeof args[0], .args = args};
    return grpc_server_create(&channel_args, NULL);
}

static void on_over(struct loop_task *task)
{
    struct rpc_server *server = (struct rpc_server *)((char *)task - offsetof(struct rpc_server, over));
    server->on_drained(server->options.context);
}

/* gRPC says a peer has stopped when its connections are closed, which may be before the last of its calls is freed. */
static void stop_if_over(struct rpc_server *server)
{
    if (!server->shut || server->n_peers_running || server->n_calls || server->drained)
        return;
    server->drained = true;
    loop_timer_stop(server->grace);
    server->over.run = on_over;
    loop_post(server->options.loop, &server->over);
}

static void on_peer_stopped(struct loop_task *task)
{
    struct rpc_peer *peer = ((struct rpc_tag *)task)->owner;
    struct rpc_server *server = peer->server;
    grpc_server_destroy(peer->grpc);
    peer->grpc = NULL;
    server->n_peers_running--;
    stop_if_over(server);
}

static void on_stopped_event(struct rpc_tag *tag, bool ok)
{
    (void)ok;
    rpc_post(((struct rpc_peer *)tag->owner)->server, tag);
}

void rpc_arm(struct rpc_peer *peer)
{
    struct rpc_call *call = rpc_call_create(peer);
    rpc_hand_over(&call->arrived);
    if (grpc_server_request_call(peer->grpc, &call->grpc, &call->details, &call->metadata, peer->server->queue,
                                 peer->server->queue, &call->arrived) != GRPC_CALL_OK)
        rpc_call_discard(call);
}

static struct rpc_peer *get_peer(struct rpc_server *server, uid_t uid)
{
    for (struct rpc_peer *peer = server->peers; peer; peer = peer->next)
        if (peer->uid == uid)
            return peer;
    struct rpc_peer *peer = memory_alloc(sizeof *peer);
    *peer = (struct rpc_peer){.server = server, .next = server->peers, .uid = uid};
    peer->stopped = (struct rpc_tag){.task.run = on_peer_stopped, .on_event = on_stopped_event, .owner = peer};
    peer->grpc = create_grpc_server(server);
    grpc_server_register_completion_queue(peer->grpc, server->queue, NULL);
    grpc_server_start(peer->grpc);
    server->peers = peer;
    server->n_peers_running++;
    for (int i = 0; i < SLOTS_PER_PEER; i++)
        rpc_arm(peer);
    return peer;
}

static void warn_of_descriptors(struct rpc_server *server, uid_t uid)
{
    uint64_t now = clock_now_ns();
    if (server->warned_ns && now - server->warned_ns < WARNING_INTERVAL_NS)
        return;
    server->warned_ns = now;
    log_warn("connection_refused", LOG_U64("uid", uid), LOG_TEXT("error", "too many open files"));
}

static void on_shed(void *context, int errno_value)
{
    const struct rpc_server *server = context;
    log_warn("accept_failed", LOG_TEXT("error", strerror(errno_value)), LOG_TEXT("socket", server->options.socket_path));
}

static void on_accept(void *context, int fd, const struct ucred *credentials)
{
    struct rpc_server *server = context;
    uid_t uid = credentials->uid;
    struct rpc_peer *peer = get_peer(server, uid);
    if (peer->n_connections >= server->options.max_connections_per_uid) {
        log_debug("connection_refused", LOG_U64("uid", uid), LOG_U64("connections", peer->n_connections));
        close(fd);
        return;
    }
    int number = rpc_connections_add(server->connections, fd, peer);
    if (number < 0) {
        warn_of_descriptors(server, uid);
        return;
    }
    peer->n_connections++;
    grpc_server_add_channel_from_fd(peer->grpc, number, server->credentials);
}

static void on_hangup(void *context, uint64_t id, void *owner)
{
    struct rpc_server *server = context;
    struct rpc_peer *peer = owner;
    peer->n_connections--;
    if (server->options.on_disconnect)
        server->options.on_disconnect(server->options.context, id);
}

/* --- giving memory back ------------------------------------------------------------------------------------------ */

static void trim_work(struct loop_work *work)
{
    (void)work;
    malloc_trim(0);
}

static void trim_done(struct loop_work *work)
{
    (void)work;
}

static struct loop_work trimming = {.do_work = trim_work, .done = trim_done}; /* stateless: any number may be under way */

static void on_trim_timer(void *data)
{
    struct rpc_server *server = data;
    server->trim_waits = false;
    loop_submit(server->options.loop, &trimming);
}

void rpc_trim_later(struct rpc_server *server)
{
    if (server->trim_waits)
        return;
    server->trim_waits = true;
    loop_timer_start(server->trim, TRIM_DELAY_MS, 0);
}

/* --- life -------------------------------------------------------------------------------------------------------- */

static void on_grpc_log(gpr_log_func_args *args)
{
    log_debug("grpc", LOG_TEXT("file", args->file), LOG_U64("line", (uint64_t)args->line),
              LOG_TEXT("message", args->message));
}

/* Left alone, malloc raises its thresholds with every large request it sees and then keeps up to 64 MB per arena, which
 * malloc_trim() does not return. To be called before there are threads. */
static void tame_malloc(void)
{
    mallopt(M_MMAP_THRESHOLD, KEPT_BYTES);
    mallopt(M_TRIM_THRESHOLD, KEPT_BYTES);
    mallopt(M_ARENA_MAX, MAX_ARENAS);
}

/* gRPC's threads and ours must never take a signal that is meant for the loop. */
static int start_grpc(struct rpc_server *server, struct error *error)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    tame_malloc();
    gpr_set_log_function(on_grpc_log);
    grpc_init();
    server->queue = grpc_completion_queue_create_for_next(NULL);
    server->credentials = grpc_insecure_server_credentials_create();
    server->quota = grpc_resource_quota_create("rpc");
    grpc_resource_quota_resize(server->quota, QUOTA_BYTES);
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
    server->trim = loop_timer_create(options->loop, on_trim_timer, server);
    const struct unix_listener_options listen = {.loop = options->loop,
                                                 .key = "server.socket_path",
                                                 .type = SOCK_STREAM,
                                                 .path = options->socket_path,
                                                 .mode = options->socket_mode,
                                                 .group = options->socket_group,
                                                 .listen_fd = options->listen_fd,
                                                 .on_accept = on_accept,
                                                 .on_shed = on_shed,
                                                 .context = server};
    if (build_routes(server, error) || check_routes(server, error) || start_grpc(server, error) ||
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

static void on_last_wait(void *data)
{
    struct rpc_server *server = data;
    log_warn("drain_incomplete", LOG_U64("calls", server->n_calls), LOG_U64("users", server->n_peers_running));
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
    for (struct rpc_peer *peer = server->peers; peer; peer = peer->next) {
        rpc_hand_over(&peer->stopped);
        grpc_server_shutdown_and_notify(peer->grpc, server->queue, &peer->stopped);
        grpc_server_cancel_all_calls(peer->grpc);
    }
    stop_if_over(server);
}

static void on_grace_over(void *data)
{
    shut_down(data);
}

void rpc_call_gone(struct rpc_server *server)
{
    if (server->state == RPC_DRAINING && !server->calls && !server->shut)
        loop_timer_start(server->grace, 0, 0);
    stop_if_over(server);
}

void rpc_server_drain(struct rpc_server *server, uint64_t grace_ms, void (*drained)(void *context))
{
    server->state = RPC_DRAINING;
    server->on_drained = drained;
    unix_listener_close(server->listener);
    server->listener = NULL;
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
    pthread_mutex_lock(&server->post_lock);
    server->closed = true;
    pthread_mutex_unlock(&server->post_lock);
    rpc_connections_end_all(server->connections);
    if (server->n_peers_running || server->n_calls)
        return; /* abandoned: its thread may still look at it */
    stop_grpc(server);
    rpc_connections_destroy(server->connections);
    while (server->peers) {
        struct rpc_peer *next = server->peers->next;
        free(server->peers);
        server->peers = next;
    }
    for (size_t i = 0; i < server->n_routes; i++)
        free(server->routes[i].path);
    free(server->routes);
    map_fini(&server->paths);
    rpc_symbols_destroy(server->symbols);
    pthread_mutex_destroy(&server->post_lock);
    free(server);
}

uint64_t rpc_server_connections(const struct rpc_server *server)
{
    return rpc_connections_count(server->connections);
}

void rpc_server_set_limits(struct rpc_server *server, uint64_t max_connections_per_uid)
{
    server->options.max_connections_per_uid = max_connections_per_uid;
}
