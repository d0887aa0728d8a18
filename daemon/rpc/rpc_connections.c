/* Numbers and watches connections; see rpc_connections.h. */
#include "rpc/rpc_connections.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/memory.h"

/* The kernel's table of descriptors grows with the largest number: 8 bytes each. */
enum { MOST_NUMBERS = 16384, FIRST_NUMBER = 64 };

struct connection {
    struct rpc_connections *table;
    uint64_t id;
    void *owner;
    int number; /* gRPC's descriptor */
    int fd;     /* ours */
    pid_t pid;
    struct loop_watch *watch;
    struct connection *next, **link;
};

struct rpc_connections {
    struct loop *loop;
    void (*on_end)(void *context, uint64_t id, void *owner);
    void *context;
    uint64_t last_id, count;
    int first, cursor, end;
    struct connection *all;
    pthread_mutex_t lock; /* for by_number */
    struct connection **by_number;
};

struct rpc_connections *rpc_connections_create(struct loop *loop, void (*on_end)(void *context, uint64_t id, void *owner),
                                               void *context)
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
    return connections;
}

static void forget(struct connection *connection)
{
    struct rpc_connections *table = connection->table;
    pthread_mutex_lock(&table->lock);
    table->by_number[connection->number] = NULL;
    pthread_mutex_unlock(&table->lock);
    loop_watch_destroy(connection->watch);
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
    (void)events;
    forget(connection);
    table->on_end(table->context, id, owner);
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

int rpc_connections_add(struct rpc_connections *connections, int fd, void *owner)
{
    int number = next_number(connections, fd);
    if (number < 0) {
        close(fd);
        return -1;
    }
    struct connection *connection = memory_alloc(sizeof *connection);
    *connection = (struct connection){.table = connections,
                                      .id = ++connections->last_id,
                                      .owner = owner,
                                      .number = number,
                                      .fd = fd,
                                      .pid = pid_of(fd),
                                      .next = connections->all,
                                      .link = &connections->all};
    connection->watch = loop_watch_create(connections->loop, fd, LOOP_HANGUP, on_hangup, connection);
    if (!connection->watch) {
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

uint64_t rpc_connections_find(struct rpc_connections *connections, int number, const void *owner)
{
    uint64_t id = 0;
    if (number < 0 || number >= connections->end)
        return 0;
    pthread_mutex_lock(&connections->lock);
    const struct connection *connection = connections->by_number[number];
    if (connection && connection->owner == owner)
        id = connection->id;
    pthread_mutex_unlock(&connections->lock);
    return id;
}

pid_t rpc_connections_pid(struct rpc_connections *connections, int number, const void *owner)
{
    pid_t pid = 0;
    if (number < 0 || number >= connections->end)
        return 0;
    pthread_mutex_lock(&connections->lock);
    const struct connection *connection = connections->by_number[number];
    if (connection && connection->owner == owner)
        pid = connection->pid;
    pthread_mutex_unlock(&connections->lock);
    return pid;
}

uint64_t rpc_connections_count(const struct rpc_connections *connections)
{
    return connections->count;
}
