/* One grpc_server for every uid that connects, so that the server a call came in on says who sent it, and the limits that
 * keep one user from taking what is meant for all.
 *
 * A connection that the quota refuses is accepted all the same, as a surplus one, if there are not many of these: on it
 * every call is told why, and root and the daemon's own user are given what they need to end the crowding. A surplus
 * connection becomes an ordinary one by the next call that finds room for it, and is ended after a few seconds otherwise.
 * gRPC gets it with the first byte that the client sends; one that is silent for a second is closed.
 *
 *     running --no connection and no call for a moment--> stopping --gRPC says so--> stopped --every slot is back--> freed
 */
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
    DESCRIPTORS_PER_CONNECTION = 3, /* ours, and both ends of the pair to gRPC */
    SURPLUS_PER_USER = 2,
    SURPLUS_PER_PRIVILEGED_USER = 8,
    MOST_SURPLUS = 32, /* of all users who are not privileged: their descriptors are in no quota */
    SURPLUS_MS = 5000,
    SWEEP_MS = 250,
    EMPTY_MS = 500,           /* a peer lives so long without anybody, since commands come one after the other */
    PRESSED_IDLE_MS = 10000,  /* idle for so long, as no token lives, a connection goes when others are refused */
    PRESSED_SILENT_MS = 1000, /* the same for one that has never had a call */
    EVICTION_INTERVAL_MS = 100,
    EVICTED_AT_ONCE = 64,
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

static void destroy_grpc(struct rpc_peer *peer)
{
    if (peer->grpc)
        grpc_server_destroy(peer->grpc);
    peer->grpc = NULL;
}

static void on_peer_stopped(struct loop_task *task)
{
    struct rpc_peer *peer = ((struct rpc_tag *)task)->owner;
    struct rpc_server *server = peer->server;
    peer->has_stopped = true;
    if (server->shut)
        destroy_grpc(peer);
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
    peer->n_slots++;
    if (grpc_server_request_call(peer->grpc, &call->grpc, &call->details, &call->metadata, peer->server->queue,
                                 peer->server->queue, &call->arrived) == GRPC_CALL_OK)
        return;
    peer->n_slots--;
    rpc_call_discard(call);
}

static struct rpc_peer *get_peer(struct rpc_server *server, uid_t uid)
{
    for (struct rpc_peer *peer = server->peers; peer; peer = peer->next)
        if (peer->uid == uid && !peer->is_stopping)
            return peer;
    struct rpc_peer *peer = memory_alloc(sizeof *peer);
    *peer = (struct rpc_peer){.server = server, .next = server->peers, .uid = uid};
    peer->connections = (struct quota_charge){.quota = server->options.quota, .kind = QUOTA_CONNECTIONS, .uid = uid};
    peer->descriptors = (struct quota_charge){.quota = server->options.quota, .kind = QUOTA_DESCRIPTORS, .uid = uid};
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

/* --- connections that are too many ---------------------------------------------------------------------------------- */

static void warn_of_refusal(struct rpc_server *server, const struct rpc_peer *peer, const char *message)
{
    uint64_t now_ns = clock_now_ns();
    server->n_refused++;
    if (server->warned_ns && now_ns - server->warned_ns < WARNING_INTERVAL_NS)
        return;
    log_warn("connection_refused", LOG_U64("uid", peer->uid), LOG_U64("connections", peer->n_connections),
             LOG_U64("refused", server->n_refused), LOG_TEXT("message", message));
    server->warned_ns = now_ns;
    server->n_refused = 0;
}

static int charge(struct rpc_peer *peer, struct error *error)
{
    if (quota_charge_add(&peer->connections, 1, error) != 0)
        return -1;
    if (quota_charge_add(&peer->descriptors, DESCRIPTORS_PER_CONNECTION, error) == 0)
        return 0;
    quota_charge_subtract(&peer->connections, 1);
    return -1;
}

static bool may_be_told(const struct rpc_peer *peer)
{
    if (quota_is_privileged(peer->uid))
        return peer->n_surplus < SURPLUS_PER_PRIVILEGED_USER;
    return peer->n_surplus < SURPLUS_PER_USER && peer->server->n_surplus < MOST_SURPLUS;
}

static void count_surplus(struct rpc_peer *peer, int change)
{
    peer->n_surplus += (uint64_t)change;
    if (!quota_is_privileged(peer->uid))
        peer->server->n_surplus += (uint64_t)change;
}

static bool has_more(const void *data, const void *owner)
{
    return ((const struct rpc_peer *)owner)->n_connections > ((const struct rpc_peer *)data)->n_connections;
}

/* Users who have more may have some that they do not use. They are made again when they are. */
static void make_room(struct rpc_server *server, const struct rpc_peer *peer)
{
    const struct rpc_idle_rule rule = {.idle_ns = (uint64_t)PRESSED_IDLE_MS * NS_PER_MS,
                                       .silent_ns = (uint64_t)PRESSED_SILENT_MS * NS_PER_MS,
                                       .most = EVICTED_AT_ONCE,
                                       .may_end = has_more,
                                       .data = peer};
    uint64_t now_ns = clock_now_ns();
    if (server->evicted_ns && now_ns - server->evicted_ns < (uint64_t)EVICTION_INTERVAL_MS * NS_PER_MS)
        return;
    server->evicted_ns = now_ns;
    rpc_connections_end_idle(server->connections, &rule);
}

bool rpc_peer_owes(const struct rpc_call *call)
{
    return call->route && call->route->is_essential && quota_is_privileged(call->peer->uid);
}

bool rpc_peer_admits(struct rpc_call *call, struct error *error)
{
    struct rpc_peer *peer = call->peer;
    struct rpc_connections *connections = call->server->connections;
    if (call->is_refused) {
        *error = call->decode_error;
        return false;
    }
    if (!rpc_connections_is_surplus(connections, call->number, peer))
        return true;
    if (charge(peer, &peer->refusal) != 0) {
        *error = peer->refusal;
        return rpc_peer_owes(call);
    }
    rpc_connections_promote(connections, call->number, peer);
    peer->n_connections++;
    count_surplus(peer, -1);
    return true;
}

static void start_sweep(struct rpc_server *server);

/* Takes fd. */
static void hand_to_grpc(struct rpc_peer *peer, int fd, bool is_surplus)
{
    struct rpc_server *server = peer->server;
    const struct metadata_account account = {.quota = server->options.quota, .uid = peer->uid};
    int number = rpc_connections_add(server->connections, fd, peer, account, is_surplus);
    if (number >= 0) {
        grpc_server_add_channel_from_fd(peer->grpc, number, server->credentials);
        return;
    }
    rpc_peer_connection_ended(server, peer, is_surplus);
    warn_of_refusal(server, peer, "too many open files");
}

struct rpc_surplus {
    struct rpc_surplus *next, **link;
    struct rpc_peer *peer;
    int fd;
    struct loop_watch *watch;
    uint64_t made_ns;
};

/* Returns the descriptor. */
static int forget_surplus(struct rpc_surplus *surplus)
{
    int fd = surplus->fd;
    loop_watch_destroy(surplus->watch);
    *surplus->link = surplus->next;
    if (surplus->next)
        surplus->next->link = surplus->link;
    free(surplus);
    return fd;
}

static void close_surplus(struct rpc_surplus *surplus)
{
    struct rpc_peer *peer = surplus->peer;
    close(forget_surplus(surplus));
    rpc_peer_connection_ended(peer->server, peer, true);
}

static void on_surplus(void *data, int events)
{
    struct rpc_surplus *surplus = data;
    struct rpc_peer *peer = surplus->peer;
    sigset_t all, old;
    if (events & LOOP_HANGUP) {
        close_surplus(surplus);
        return;
    }
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    hand_to_grpc(peer, forget_surplus(surplus), true);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

/* Takes fd. */
static void wait_for_first_byte(struct rpc_peer *peer, int fd)
{
    struct rpc_server *server = peer->server;
    struct rpc_surplus *surplus = memory_alloc(sizeof *surplus);
    *surplus = (struct rpc_surplus){
        .next = server->surplus, .link = &server->surplus, .peer = peer, .fd = fd, .made_ns = clock_now_ns()};
    surplus->watch = loop_watch_create(server->options.loop, fd, LOOP_READABLE | LOOP_HANGUP, on_surplus, surplus);
    if (surplus->next)
        surplus->next->link = &surplus->next;
    server->surplus = surplus;
    if (!surplus->watch)
        close_surplus(surplus);
}

static void close_silent_surplus(struct rpc_server *server, uint64_t age_ns)
{
    uint64_t now_ns = clock_now_ns();
    struct rpc_surplus *next;
    for (struct rpc_surplus *surplus = server->surplus; surplus; surplus = next) {
        next = surplus->next;
        if (now_ns - surplus->made_ns >= age_ns)
            close_surplus(surplus);
    }
}

static void start_sweep(struct rpc_server *server)
{
    if (!server->is_sweeping)
        loop_timer_start(server->sweep, SWEEP_MS, SWEEP_MS);
    server->is_sweeping = true;
}

static void accept_one(struct rpc_server *server, int fd, uid_t uid)
{
    struct rpc_peer *peer = get_peer(server, uid);
    bool is_surplus = charge(peer, &peer->refusal) != 0;
    start_sweep(server);
    if (is_surplus) {
        warn_of_refusal(server, peer, peer->refusal.message);
        make_room(server, peer);
        if (!may_be_told(peer)) {
            close(fd);
            return;
        }
        count_surplus(peer, 1);
        wait_for_first_byte(peer, fd);
    } else {
        peer->n_connections++;
        hand_to_grpc(peer, fd, false);
    }
}

void rpc_peer_connection_ended(struct rpc_server *server, struct rpc_peer *peer, bool is_surplus)
{
    start_sweep(server);
    if (is_surplus) {
        count_surplus(peer, -1);
        return;
    }
    peer->n_connections--;
    quota_charge_subtract(&peer->connections, 1);
    quota_charge_subtract(&peer->descriptors, DESCRIPTORS_PER_CONNECTION);
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

/* --- the end of a peer ---------------------------------------------------------------------------------------------- */

static void stop(struct rpc_peer *peer)
{
    peer->is_stopping = true;
    rpc_hand_over(&peer->stopped);
    grpc_server_shutdown_and_notify(peer->grpc, peer->server->queue, &peer->stopped);
    grpc_server_cancel_all_calls(peer->grpc);
}

static bool is_empty_for_long(struct rpc_peer *peer, uint64_t now_ns)
{
    bool is_empty = peer->n_connections == 0 && peer->n_surplus == 0 && peer->n_calls == 0;
    if (!is_empty)
        peer->empty_since_ns = 0;
    else if (!peer->empty_since_ns)
        peer->empty_since_ns = now_ns;
    return is_empty && now_ns - peer->empty_since_ns >= (uint64_t)EMPTY_MS * NS_PER_MS;
}

/* True: it is gone. */
static bool free_if_stopped(struct rpc_peer **link)
{
    struct rpc_peer *peer = *link;
    if (!peer->has_stopped || peer->n_slots > 0 || peer->n_calls > 0)
        return false;
    *link = peer->next;
    rpc_memory_trim_later(peer->server);
    destroy_grpc(peer);
    free(peer);
    return true;
}

/* Runs while there is something to wait for: surplus connections, peers without anybody, peers that stop. */
void rpc_peer_on_sweep(void *data)
{
    struct rpc_server *server = data;
    uint64_t now_ns = clock_now_ns();
    bool is_needed = false;
    if (server->shut)
        return;
    close_silent_surplus(server, (uint64_t)PRESSED_SILENT_MS * NS_PER_MS);
    rpc_connections_end_surplus(server->connections, (uint64_t)SURPLUS_MS * NS_PER_MS,
                                (uint64_t)PRESSED_SILENT_MS * NS_PER_MS);
    for (struct rpc_peer **link = &server->peers; *link;) {
        struct rpc_peer *peer = *link;
        if (free_if_stopped(link))
            continue;
        if (!peer->is_stopping && is_empty_for_long(peer, now_ns))
            stop(peer);
        is_needed = is_needed || peer->is_stopping || peer->empty_since_ns || peer->n_surplus || peer->n_connections == 0;
        link = &peer->next;
    }
    server->is_sweeping = is_needed;
    if (!is_needed)
        loop_timer_stop(server->sweep);
}

void rpc_peer_stop_all(struct rpc_server *server)
{
    close_silent_surplus(server, 0);
    for (struct rpc_peer *peer = server->peers; peer; peer = peer->next) {
        if (peer->has_stopped)
            destroy_grpc(peer);
        else if (!peer->is_stopping)
            stop(peer);
    }
}

void rpc_peer_free_all(struct rpc_server *server)
{
    while (server->peers) {
        struct rpc_peer *next = server->peers->next;
        quota_charge_end(&server->peers->connections);
        quota_charge_end(&server->peers->descriptors);
        free(server->peers);
        server->peers = next;
    }
}
