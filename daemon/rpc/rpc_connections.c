/* Numbers and watches connections; see rpc_connections.h. */
#include "rpc/rpc_connections.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/user_group.h"
#include "rpc/rpc_relay.h"

/* The kernel's table of descriptors grows with the largest number: 8 bytes each. */
enum { MOST_NUMBERS = 1 << 18, FIRST_NUMBER = 64 };

struct connection {
    struct rpc_connections *table;
    uint64_t id;
    void *owner;
    int number; /* gRPC's descriptor */
    int fd;     /* ours */
    pid_t pid;
    bool is_surplus;
    bool was_used; /* a call came in on it; under the lock */
    uint64_t made_ns;
    uint64_t n_calls, used_ns; /* used: when it was made, or a call began or ended; under the lock */
    struct loop_watch *watch;
    struct connection *next, **link;
};

struct rpc_connections {
    struct loop *loop;
    rpc_connection_end *on_end;
    void *context;
    uint64_t last_id, count;
    int first, cursor, end;
    struct connection *all;
    pthread_mutex_t lock; /* for by_number, and the calls of connections */
    struct connection **by_number;
    struct rpc_relay *relay;
};

struct rpc_connections *rpc_connections_create(struct loop *loop, rpc_connection_end *on_end, void *context)
{
    struct rpc_connections *connections = memory_alloc(sizeof *connections);
    struct rlimit limit;
    connections->end = MOST_NUMBERS;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < MOST_NUMBERS)
        connections->end = (int)limit.rlim_cur;
    connections->loop = loop;
    connections->on_end = on_end;
    connections->context = context;
    connections->first = connections->end > 2 * FIRST_NUMBER ? FIRST_NUMBER : 0;
    connections->cursor = connections->first;
    connections->by_number = memory_alloc_array((size_t)connections->end + 1, sizeof *connections->by_number);
    pthread_mutex_init(&connections->lock, NULL);
    connections->relay = rpc_relay_create(connections->end + 1);
    return connections;
}

static void forget(struct connection *connection)
{
    struct rpc_connections *table = connection->table;
    pthread_mutex_lock(&table->lock);
    table->by_number[connection->number] = NULL;
    pthread_mutex_unlock(&table->lock);
    loop_watch_destroy(connection->watch);
    rpc_relay_remove(table->relay, connection->number);
    shutdown(connection->fd, SHUT_RDWR); /* what a client still has of it */
    close(connection->fd);
    *connection->link = connection->next;
    if (connection->next)
        connection->next->link = connection->link;
    table->count--;
    free(connection);
}

void rpc_connections_end_all(struct rpc_connections *connections)
{
    while (connections->all)
        forget(connections->all);
}

void rpc_connections_destroy(struct rpc_connections *connections)
{
    if (!connections)
        return;
    rpc_connections_end_all(connections);
    rpc_relay_destroy(connections->relay);
    pthread_mutex_destroy(&connections->lock);
    free(connections->by_number);
    free(connections);
}

static void on_hangup(void *data, int events)
{
    struct connection *connection = data;
    struct rpc_connections *table = connection->table;
    uint64_t id = connection->id;
    void *owner = connection->owner;
    bool is_surplus = connection->is_surplus;
    (void)events;
    forget(connection);
    table->on_end(table->context, id, owner, is_surplus);
}

/* A free descriptor number from the circle, duplicating `fd`; -1 with errno. */
static int next_number(struct rpc_connections *table, int fd)
{
    for (int turns = 0; turns < 2;) {
        int number = table->cursor < table->end ? fcntl(fd, F_DUPFD_CLOEXEC, table->cursor) : -1;
        if (number < 0 || number >= table->end) {
            if (number >= 0)
                close(number);
            turns++;
            table->cursor = table->first;
            continue;
        }
        table->cursor = number + 1;
        if (!table->by_number[number])
            return number;
        close(number); /* gRPC has closed it, we have yet to see the hang-up */
    }
    errno = EMFILE;
    return -1;
}

static pid_t pid_of(int fd)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) ? 0 : peer.pid;
}

/* gRPC's descriptor, with a relay between it and `fd`; -1 with errno. */
static int connect_grpc(struct rpc_connections *connections, int fd, struct metadata_account account)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
        return -1;
    int number = next_number(connections, pair[1]);
    close(pair[1]);
    if (number < 0) {
        close(pair[0]);
        return -1;
    }
    const struct rpc_link link = {.number = number, .client = fd, .server = pair[0], .pid = pid_of(fd), .account = account};
    if (rpc_relay_add(connections->relay, &link) == 0)
        return number;
    close(number);
    return -1;
}

int rpc_connections_add(struct rpc_connections *connections, int fd, void *owner, struct metadata_account account,
                        bool is_surplus)
{
    int number = connect_grpc(connections, fd, account);
    if (number < 0) {
        close(fd);
        return -1;
    }
    struct connection *connection = memory_alloc(sizeof *connection);
    uint64_t now_ns = clock_now_ns();
    *connection = (struct connection){.table = connections,
                                      .id = ++connections->last_id,
                                      .owner = owner,
                                      .number = number,
                                      .fd = fd,
                                      .pid = pid_of(fd),
                                      .is_surplus = is_surplus,
                                      .made_ns = now_ns,
                                      .used_ns = now_ns,
                                      .next = connections->all,
                                      .link = &connections->all};
    connection->watch = loop_watch_create(connections->loop, fd, LOOP_HANGUP, on_hangup, connection);
    if (!connection->watch) {
        rpc_relay_remove(connections->relay, number);
        close(number);
        close(fd);
        free(connection);
        return -1;
    }
    if (connection->next)
        connection->next->link = &connection->next;
    connections->all = connection;
    connections->count++;
    pthread_mutex_lock(&connections->lock);
    connections->by_number[number] = connection;
    pthread_mutex_unlock(&connections->lock);
    return number;
}

/* Under the lock. */
static struct connection *find(const struct rpc_connections *connections, int number, const void *owner)
{
    struct connection *connection = number >= 0 && number < connections->end ? connections->by_number[number] : NULL;
    return connection && connection->owner == owner ? connection : NULL;
}

uint64_t rpc_connections_find(struct rpc_connections *connections, int number, const void *owner)
{
    pthread_mutex_lock(&connections->lock);
    const struct connection *connection = find(connections, number, owner);
    uint64_t id = connection ? connection->id : 0;
    pthread_mutex_unlock(&connections->lock);
    return id;
}

void rpc_connections_taken(struct rpc_connections *connections, int number, uint64_t message_bytes)
{
    rpc_relay_taken(connections->relay, number, message_bytes);
}

pid_t rpc_connections_pid(struct rpc_connections *connections, int number, const void *owner)
{
    pthread_mutex_lock(&connections->lock);
    const struct connection *connection = find(connections, number, owner);
    pid_t pid = connection ? connection->pid : 0;
    pthread_mutex_unlock(&connections->lock);
    return pid;
}

bool rpc_connections_is_of_group(struct rpc_connections *connections, int number, const void *owner, gid_t gid)
{
    pthread_mutex_lock(&connections->lock);
    const struct connection *connection = find(connections, number, owner);
    pthread_mutex_unlock(&connections->lock);
    return connection && user_group_has_peer(gid, connection->fd); /* which only this thread closes */
}

uint64_t rpc_connections_call_begins(struct rpc_connections *connections, int number, const void *owner)
{
    pthread_mutex_lock(&connections->lock);
    struct connection *connection = find(connections, number, owner);
    uint64_t id = connection ? connection->id : 0;
    if (connection) {
        connection->n_calls++;
        connection->was_used = true;
        connection->used_ns = clock_now_ns();
    }
    pthread_mutex_unlock(&connections->lock);
    return id;
}

void rpc_connections_call_ends(struct rpc_connections *connections, int number, uint64_t id)
{
    if (id == 0)
        return;
    pthread_mutex_lock(&connections->lock);
    struct connection *connection = connections->by_number[number];
    if (connection && connection->id == id) {
        connection->n_calls--;
        connection->used_ns = clock_now_ns();
    }
    pthread_mutex_unlock(&connections->lock);
}

/* --- connections that are too many ---------------------------------------------------------------------------------- */

bool rpc_connections_is_surplus(struct rpc_connections *connections, int number, const void *owner)
{
    pthread_mutex_lock(&connections->lock);
    const struct connection *connection = find(connections, number, owner);
    bool is_surplus = connection && connection->is_surplus;
    pthread_mutex_unlock(&connections->lock);
    return is_surplus;
}

void rpc_connections_promote(struct rpc_connections *connections, int number, const void *owner)
{
    pthread_mutex_lock(&connections->lock);
    struct connection *connection = find(connections, number, owner);
    if (connection)
        connection->is_surplus = false;
    pthread_mutex_unlock(&connections->lock);
}

static bool is_idle(struct rpc_connections *connections, const struct connection *connection,
                    const struct rpc_idle_rule *rule)
{
    pthread_mutex_lock(&connections->lock);
    uint64_t least_ns = connection->was_used ? rule->idle_ns : rule->silent_ns;
    bool is_idle = connection->n_calls == 0 && clock_now_ns() - connection->used_ns >= least_ns;
    pthread_mutex_unlock(&connections->lock);
    return is_idle && !connection->is_surplus && (!rule->may_end || rule->may_end(rule->data, connection->owner));
}

/* gRPC sees the end of its descriptor, too, which is of the same socket. */
void rpc_connections_end_idle(struct rpc_connections *connections, const struct rpc_idle_rule *rule)
{
    size_t n = 0;
    for (const struct connection *connection = connections->all; connection && n < rule->most; connection = connection->next)
        if (is_idle(connections, connection, rule)) {
            shutdown(connection->fd, SHUT_RDWR);
            n++;
        }
}

static bool was_used(struct rpc_connections *connections, const struct connection *connection)
{
    pthread_mutex_lock(&connections->lock);
    bool was_used = connection->was_used;
    pthread_mutex_unlock(&connections->lock);
    return was_used;
}

void rpc_connections_end_surplus(struct rpc_connections *connections, uint64_t age_ns, uint64_t silent_ns)
{
    uint64_t now_ns = clock_now_ns();
    for (const struct connection *connection = connections->all; connection; connection = connection->next)
        if (connection->is_surplus &&
            now_ns - connection->made_ns >= (was_used(connections, connection) ? age_ns : silent_ns))
            shutdown(connection->fd, SHUT_RDWR);
}

uint64_t rpc_connections_count(const struct rpc_connections *connections)
{
    return connections->count;
}
