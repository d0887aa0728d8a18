/* Idle ones are kept for the next request. One that was given up keeps its socket, without memory, until the thread at the
 * other end has noticed that nobody listens: that is how those are counted that hang. */
#include "source/disk/mount_connection.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/condition.h"
#include "base/memory.h"
#include "base/state.h"

enum {
    MAX_CONNECTIONS = 64, /* of one process; a user has at most as many as are left for others */
    MAX_GIVEN_UP = 32,    /* of these; likewise */
    MAX_IDLE = 16,
    LOOK_MS = 50,         /* between two looks at what may end a wait */
    PING_AFTER_MS = 2000, /* without an answer, and again */
    PONG_WITHIN_MS = 10000,
};
static const uint64_t PATIENCE_NS = 1000 * (uint64_t)NS_PER_MS;

enum connection_state { IDLE, BUSY, GIVEN_UP };

struct mount_connection {
    struct mount_connection *next;
    struct mount_process *process;
    enum connection_state state;
    uid_t uid; /* unless idle */
    int fd;
    unsigned char *memory;         /* NULL once given up */
    const struct mount_wait *wait; /* while busy */
    uint32_t n_sent, n_answered;
    bool is_broken;
};

static void set_state(struct mount_connection *connection, enum connection_state state)
{
    static const struct state_row states[] = {[IDLE] = {"idle", STATE_BIT(BUSY)},
                                              [BUSY] = {"busy", STATE_BIT(IDLE) | STATE_BIT(GIVEN_UP)},
                                              [GIVEN_UP] = {"given up", 0}};
    static const struct state_machine machine = {"connection of a mount", states, 3};
    state_check(&machine, connection->state, state);
    connection->state = state;
}

/* --- making and closing: under the process's lock ------------------------------------------------------------------- */

/* Both ends: `ends[1]` and the memory go to the process. Returns errno. */
static int make_ends(int ends[2], int *memory)
{
    ends[0] = ends[1] = -1;
    *memory = memfd_create("tensorcast-mount", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    bool is_made = *memory >= 0 && ftruncate(*memory, MOUNT_MEMORY_BYTES) == 0 &&
                   fcntl(*memory, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0 &&
                   socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0;
    return is_made ? 0 : errno;
}

static struct mount_connection *connect_process(struct mount_process *process, struct error *error)
{
    const struct mount_control message = {.kind = MOUNT_CONNECT};
    int ends[2], memory_fd, failed = make_ends(ends, &memory_fd);
    void *memory = failed ? MAP_FAILED : mmap(NULL, MOUNT_MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, memory_fd, 0);
    failed = !failed && memory == MAP_FAILED ? errno : failed;
    bool is_told = !failed && mount_process_tell(process, &message, (int[]){ends[1], memory_fd}, 2) == 0;
    if (ends[1] >= 0)
        close(ends[1]);
    if (memory_fd >= 0)
        close(memory_fd);
    if (is_told) {
        struct mount_connection *connection = memory_alloc(sizeof *connection);
        connection->process = process;
        connection->fd = ends[0];
        connection->memory = memory;
        connection->next = process->connections;
        process->connections = connection;
        process->n_connections++;
        return connection;
    }
    if (memory != MAP_FAILED)
        munmap(memory, MOUNT_MEMORY_BYTES);
    if (ends[0] >= 0)
        close(ends[0]);
    if (failed)
        fail_errno(error, failed, "a connection to the process that reads the FUSE mount %s", process->name);
    else
        mount_process_fail(process, error);
    return NULL;
}

static void close_connection(struct mount_connection **link)
{
    struct mount_connection *connection = *link;
    *link = connection->next;
    connection->process->n_connections--;
    close(connection->fd);
    if (connection->memory)
        munmap(connection->memory, MOUNT_MEMORY_BYTES);
    free(connection);
}

void mount_connection_close_all(struct mount_process *process)
{
    while (process->connections)
        close_connection(&process->connections);
}

static bool has_other_end(const struct mount_connection *connection)
{
    struct pollfd asked = {.fd = connection->fd};
    return poll(&asked, 1, 0) <= 0 || !(asked.revents & (POLLHUP | POLLERR));
}

/* Those of which at most `n_kept` may stay idle, and those given up whose thread has come back. */
static void sweep_connections(struct mount_process *process, size_t n_kept)
{
    struct mount_connection **link = &process->connections;
    while (*link) {
        bool is_over = (*link)->state == GIVEN_UP ? !has_other_end(*link) : (*link)->state == IDLE && n_kept == 0;
        n_kept -= (*link)->state == IDLE && !is_over;
        if (is_over)
            close_connection(link);
        else
            link = &(*link)->next;
    }
}

void mount_connection_close_idle(struct mount_process *process)
{
    pthread_mutex_lock(&process->lock);
    sweep_connections(process, 0);
    pthread_mutex_unlock(&process->lock);
}

/* --- taking ------------------------------------------------------------------------------------------------------- */

struct counts {
    size_t taken, own, given_up, own_given_up;
};

static struct counts count(const struct mount_process *process, uid_t uid)
{
    struct counts counts = {0};
    for (const struct mount_connection *it = process->connections; it; it = it->next) {
        size_t is_taken = it->state != IDLE, is_own = is_taken && it->uid == uid, is_given_up = it->state == GIVEN_UP;
        counts.taken += is_taken;
        counts.own += is_own;
        counts.given_up += is_given_up;
        counts.own_given_up += is_own && is_given_up;
    }
    return counts;
}

/* As for helpers (base/helpers.h): one user has no more than are left for the others. */
static bool has_share(size_t own, size_t taken, size_t limit)
{
    return taken < limit && own < limit - taken;
}

/* Under the lock. NULL without an error: there is none just now. */
static struct mount_connection *find_free(struct mount_process *process, const struct counts *counts, struct error *error)
{
    error->code = ERROR_OK;
    if (!has_share(counts->own, counts->taken, MAX_CONNECTIONS) ||
        !has_share(counts->own_given_up, counts->given_up, MAX_GIVEN_UP))
        return NULL;
    struct mount_connection *found = process->connections;
    while (found && found->state != IDLE)
        found = found->next;
    return found ? found : connect_process(process, error);
}

static int fail_no_answer(const struct mount_process *process, size_t n_waiting, struct error *error)
{
    return fail(error, ERROR_UNAVAILABLE, "NO_ANSWER",
                "the server of the FUSE mount %s has not answered %zu requests; see whether it is still there",
                process->name, n_waiting);
}

/* 0 while a wait may go on. */
static int check_wait(const struct mount_process *process, const struct mount_wait *wait, struct error *error)
{
    if (cancel_is_set(wait->cancel))
        return fail(error, ERROR_CANCELLED, "CANCELLED", "cancelled while the FUSE mount %s was waited for", process->name);
    if (cancel_is_set(wait->stop))
        return fail(error, ERROR_UNAVAILABLE, "DAEMON_STOPPING",
                    "the daemon is stopping; the FUSE mount %s has not answered yet", process->name);
    return wait->deadline_ns && clock_now_ns() >= wait->deadline_ns ? fail_no_answer(process, 1, error) : 0;
}

struct mount_connection *mount_connection_take(struct mount_process *process, const struct mount_wait *wait,
                                               struct error *error)
{
    struct mount_connection *taken = NULL;
    uint64_t patient_until_ns = clock_now_ns() + PATIENCE_NS;
    int failed = 0;
    pthread_mutex_lock(&process->lock);
    while (!taken && !failed) {
        mount_process_tell_closed(process);
        sweep_connections(process, MAX_IDLE);
        struct counts counts = count(process, wait->uid);
        taken = mount_process_has_ended(process) ? NULL : find_free(process, &counts, error);
        bool is_stuck = counts.own_given_up > 0 && counts.own == counts.own_given_up && clock_now_ns() > patient_until_ns;
        if (taken)
            break;
        if (mount_process_has_ended(process))
            failed = mount_process_fail(process, error);
        else if (error->code != ERROR_OK)
            failed = -1;
        else if (is_stuck)
            failed = fail_no_answer(process, counts.given_up, error);
        else
            failed = check_wait(process, wait, error);
        if (!failed)
            condition_wait_until(&process->returned, &process->lock, clock_now_ns() + LOOK_MS * (uint64_t)NS_PER_MS);
    }
    if (taken) {
        set_state(taken, BUSY);
        taken->uid = wait->uid;
        taken->wait = wait;
    }
    pthread_mutex_unlock(&process->lock);
    return taken;
}

void mount_connection_give(struct mount_connection *connection)
{
    struct mount_process *process = connection->process;
    bool is_in_order = !connection->is_broken && connection->n_sent == connection->n_answered;
    unsigned char *memory = is_in_order ? NULL : connection->memory;
    pthread_mutex_lock(&process->lock);
    set_state(connection, is_in_order ? IDLE : GIVEN_UP);
    connection->wait = NULL;
    if (!is_in_order) {
        connection->memory = NULL;
        shutdown(connection->fd, SHUT_WR); /* its thread ends when it comes back, and closes the other end */
    }
    sweep_connections(process, MAX_IDLE);
    pthread_cond_signal(&process->returned);
    pthread_mutex_unlock(&process->lock);
    if (memory)
        munmap(memory, MOUNT_MEMORY_BYTES);
}

/* --- requests and replies ------------------------------------------------------------------------------------------- */

unsigned char *mount_connection_memory(const struct mount_connection *connection)
{
    return connection->memory;
}

static int fail_broken(struct mount_connection *connection, struct error *error)
{
    connection->is_broken = true;
    return mount_process_fail(connection->process, error);
}

int mount_connection_send_with(struct mount_connection *connection, struct mount_request *request, int fd,
                               struct error *error)
{
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof fd)];
    } rights = {.header = {.cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
    struct iovec iov = {request, sizeof *request};
    struct msghdr packet = {.msg_iov = &iov, .msg_iovlen = 1};
    ssize_t sent;
    request->number = connection->n_sent;
    if (fd >= 0) {
        memcpy(CMSG_DATA(&rights.header), &fd, sizeof fd);
        packet.msg_control = rights.room;
        packet.msg_controllen = sizeof rights.room;
    }
    do
        sent = sendmsg(connection->fd, &packet, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    if (sent != sizeof *request)
        return fail_broken(connection, error);
    connection->n_sent++;
    return 0;
}

int mount_connection_send(struct mount_connection *connection, struct mount_request *request, struct error *error)
{
    return mount_connection_send_with(connection, request, -1, error);
}

struct ping {
    int fd; /* -1 = none is on its way */
    uint64_t next_ns, until_ns;
};

/* The main thread there does nothing that could hang. If it does not answer, it is gone, and only a thread that the kernel
 * cannot end keeps its sockets open. */
static void look_after(struct mount_process *process, struct ping *ping)
{
    const struct mount_control message = {.kind = MOUNT_PING};
    uint64_t now_ns = clock_now_ns();
    int ends[2];
    char answer;
    if (ping->fd >= 0 && recv(ping->fd, &answer, sizeof answer, MSG_DONTWAIT) >= 0) {
        close(ping->fd);
        *ping = (struct ping){.fd = -1, .next_ns = now_ns + PONG_WITHIN_MS * (uint64_t)NS_PER_MS};
    } else if (ping->fd >= 0 && now_ns > ping->until_ns) {
        mount_process_kill(process);
    } else if (ping->fd < 0 && now_ns > ping->next_ns && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0) {
        mount_process_tell(process, &message, &ends[1], 1);
        close(ends[1]);
        *ping = (struct ping){.fd = ends[0], .until_ns = now_ns + PONG_WITHIN_MS * (uint64_t)NS_PER_MS};
    }
}

/* Until something is to be received. */
static int wait_for_reply(struct mount_connection *connection, struct error *error)
{
    struct mount_process *process = connection->process;
    struct pollfd asked = {.fd = connection->fd, .events = POLLIN};
    struct ping ping = {.fd = -1, .next_ns = clock_now_ns() + PING_AFTER_MS * (uint64_t)NS_PER_MS};
    int failed = 0;
    while (!failed && poll(&asked, 1, LOOK_MS) <= 0) {
        failed = check_wait(process, connection->wait, error);
        look_after(process, &ping);
        if (!failed && mount_process_has_ended(process))
            failed = mount_process_fail(process, error);
    }
    if (ping.fd >= 0)
        close(ping.fd);
    return failed;
}

int mount_connection_receive(struct mount_connection *connection, struct mount_reply *reply, struct error *error)
{
    ssize_t n_bytes;
    if (wait_for_reply(connection, error) < 0) {
        connection->is_broken = true;
        return -1;
    }
    do
        n_bytes = recv(connection->fd, reply, sizeof *reply, 0);
    while (n_bytes < 0 && errno == EINTR);
    if (n_bytes <= 0)
        return fail_broken(connection, error);
    if (mount_message_check_reply(reply, (size_t)n_bytes) < 0 || reply->number != connection->n_answered) {
        connection->is_broken = true;
        return fail(error, ERROR_INTERNAL, "BAD_REPLY", "the process that reads the FUSE mount %s has sent nonsense",
                    connection->process->name);
    }
    connection->n_answered++;
    return reply->has_failed ? mount_message_get_error(reply, error) : 0;
}

int mount_connection_ask(struct mount_connection *connection, struct mount_request *request, struct mount_reply *reply,
                         struct error *error)
{
    return mount_connection_send(connection, request, error) < 0 ? -1 : mount_connection_receive(connection, reply, error);
}
