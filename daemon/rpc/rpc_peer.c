/* One grpc_server for every uid that connects, so that the server a call came in on says who sent it, and the limits that
 * keep one user from taking what is meant for all. */
#include <grpc/grpc_posix.h>
#include <grpc/grpc_security.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "observe/log.h"
#include "rpc/rpc_internal.h"

enum {
    SLOTS_PER_PEER = 4,
    MAX_STREAMS_PER_CONNECTION = 128,
    MAX_METADATA_BYTES = 16 << 10,
    KEEPALIVE_MS = 10000, /* only while calls are running: a stopped client's calls are cancelled in 20 s */
    KEEPALIVE_TIMEOUT_MS = 10000,
    MIN_PING_INTERVAL_MS = 1000,
    MAX_IDLE_MS = 10 * 60 * 1000, /* from_fd has no handshake time-out: this ends connections that never say anything */
    WARNING_INTERVAL_NS = 1000000000,
    ONLY_IDENTITY = 1, /* compression: 500 KB of gzip become 500 MB before the size is checked */
};

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

static void on_peer_stopped(struct loop_task *task)
{
    struct rpc_peer *peer = ((struct rpc_tag *)task)->owner;
    struct rpc_server *server = peer->server;
    grpc_server_destroy(peer->grpc);
    peer->grpc = NULL;
    server->n_peers_running--;
    rpc_peer_gone(server);
}

static void on_stopped_event(struct rpc_tag *tag, bool ok)
{
    (void)ok;
    rpc_post(((struct rpc_peer *)tag->owner)->server, tag);
}

void rpc_peer_arm(struct rpc_peer *peer)
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
        rpc_peer_arm(peer);
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

static void accept_one(struct rpc_server *server, int fd, uid_t uid)
{
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

/* gRPC makes threads when it feels like it; none may take a signal that is meant for the loop. */
void rpc_peer_accept(struct rpc_server *server, int fd, uid_t uid)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    accept_one(server, fd, uid);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

void rpc_peer_stop_all(struct rpc_server *server)
{
    for (struct rpc_peer *peer = server->peers; peer; peer = peer->next) {
        rpc_hand_over(&peer->stopped);
        grpc_server_shutdown_and_notify(peer->grpc, server->queue, &peer->stopped);
        grpc_server_cancel_all_calls(peer->grpc);
    }
}

void rpc_peer_free_all(struct rpc_server *server)
{
    while (server->peers) {
        struct rpc_peer *next = server->peers->next;
        free(server->peers);
        server->peers = next;
    }
}
