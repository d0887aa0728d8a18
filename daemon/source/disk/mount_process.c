/* Happy path: get -> spawn, once -> connections -> unref. Death shows as the end of the control socket; the process is then
 * waited for here and there, since it may hang in the kernel until its mount lets it go. */
#include "source/disk/mount_process.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/condition.h"
#include "base/memory.h"
#include "source/disk/mount_child.h"
#include "source/disk/mount_connection.h"
#include "source/disk/mounts.h"

enum {
    MAX_STARTS_IN_A_ROW = 5, /* of one mount's process, each within START_WINDOW_NS of the one before */
};
static const uint64_t START_WINDOW_NS = (uint64_t)10 * 1000000000;

static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;   /* held longer, by who changes the table; taken first */
static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER; /* of what follows, and of references */
static struct mount_process *table;
static size_t n_processes;
/* Not waited for yet. None is started while there are MOUNT_MAX_LEFT, and all that run then may still be left. */
static pid_t left[MOUNT_MAX_LEFT + MOUNT_MAX_PROCESSES];
static size_t n_left;
static uint64_t n_sources; /* atomic */

/* --- starting ----------------------------------------------------------------------------------------------------- */

/* Of our environment, in which secrets may be, what decides about how the program is loaded and checked. */
static char **choose_environment(void)
{
    size_t n = 0;
    while (environ[n])
        n++;
    char **chosen = memory_alloc_array(n + 1, sizeof *chosen);
    n = 0;
    for (char **entry = environ; *entry; entry++) {
        const char *sanitizer = strstr(*entry, "SAN_OPTIONS=");
        if (strncmp(*entry, "LD_", 3) == 0 || (sanitizer && sanitizer - *entry < 6))
            chosen[n++] = *entry;
    }
    return chosen;
}

/* Nothing of ours but one socket: files, signals and environment as if somebody else had started it. Returns errno. */
static int spawn(pid_t *pid, int control, char *mounts, char *name)
{
    char program[] = "tensorcastd", argument[] = MOUNT_CHILD_ARGUMENT;
    char *const words[] = {program, argument, mounts, name, NULL};
    char **environment = choose_environment();
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDWR, 0);
    posix_spawn_file_actions_adddup2(&actions, STDIN_FILENO, STDOUT_FILENO); /* who reads ours must see its end */
    posix_spawn_file_actions_adddup2(&actions, STDIN_FILENO, STDERR_FILENO);
    posix_spawn_file_actions_adddup2(&actions, control, MOUNT_CHILD_SOCKET);
    posix_spawn_file_actions_addclosefrom_np(&actions, MOUNT_CHILD_SOCKET + 1);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    int failed = posix_spawn(pid, "/proc/self/exe", &actions, &attributes, words, environment);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    free(environment);
    return failed;
}

/* --- the table: under its lock -------------------------------------------------------------------------------------- */

static void wait_for_left(void)
{
    for (size_t i = 0; i < n_left;)
        if (waitpid(left[i], NULL, WNOHANG) != 0)
            left[i] = left[--n_left];
        else
            i++;
}

static void destroy_process(struct mount_process *process)
{
    mount_connection_close_all(process);
    if (process->control >= 0)
        close(process->control);
    if (process->pid > 0 && waitpid(process->pid, NULL, WNOHANG) == 0)
        left[n_left++] = process->pid;
    pthread_mutex_destroy(&process->lock);
    pthread_cond_destroy(&process->returned);
    free(process->closed);
    free(process->name);
    free(process);
}

static struct mount_process *start_process(uint64_t mounts, struct error *error)
{
    struct mount_process *process = memory_alloc(sizeof *process);
    char *bits = memory_print("%" PRIx64, mounts);
    int ends[2] = {-1, -1};
    process->mounts = mounts;
    process->name = mounts_describe(mounts);
    process->references = 1; /* the table's */
    process->started_ns = clock_now_ns();
    process->n_started = 1;
    pthread_mutex_init(&process->lock, NULL);
    condition_init(&process->returned);
    int failed = socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0 ? errno : 0;
    process->control = ends[0];
    failed = failed ? failed : spawn(&process->pid, ends[1], bits, process->name);
    if (ends[1] >= 0)
        close(ends[1]);
    free(bits);
    if (!failed)
        return process;
    fail_errno(error, failed, "starting the process that reads the FUSE mount %s", process->name);
    process->pid = 0;
    destroy_process(process);
    return NULL;
}

static void unref_locked(struct mount_process *process)
{
    if (--process->references == 0)
        destroy_process(process);
}

static struct mount_process **find_process(uint64_t mounts)
{
    struct mount_process **link = &table;
    while (*link && (*link)->mounts != mounts)
        link = &(*link)->next;
    return link;
}

static void drop_process(struct mount_process **link)
{
    struct mount_process *process = *link;
    *link = process->next;
    n_processes--;
    unref_locked(process);
}

/* The one that was started first of those that nobody uses. */
static bool drop_an_unused_one(void)
{
    struct mount_process **oldest = NULL;
    for (struct mount_process **link = &table; *link; link = &(*link)->next)
        if ((*link)->references == 1 && (!oldest || (*link)->started_ns < (*oldest)->started_ns))
            oldest = link;
    if (oldest)
        drop_process(oldest);
    return oldest;
}

static int check_room(const struct mount_process *before, struct error *error)
{
    wait_for_left();
    if (before && before->n_started >= MAX_STARTS_IN_A_ROW && clock_now_ns() - before->started_ns < START_WINDOW_NS)
        return fail(
            error, ERROR_UNAVAILABLE, "MOUNT_PROCESS_ENDED",
            "the process that reads the FUSE mount %s has ended %u times in a row; see the kernel's log for why, and "
            "try again in 10 s",
            before->name, before->n_started);
    if (n_left >= MOUNT_MAX_LEFT || (!before && n_processes == MOUNT_MAX_PROCESSES && !drop_an_unused_one()))
        return fail(error, ERROR_RESOURCE_EXHAUSTED, "TOO_MANY_MOUNTS",
                    "%d FUSE mounts are in use at once, and %zu more do not answer; load from fewer", MOUNT_MAX_PROCESSES,
                    n_left);
    return 0;
}

/* In place of the one at `link`, which is dead, or NULL. The lock is given up meanwhile: the loop takes it, too, to give a
 * reference back, and a start reads a program from disk. */
static struct mount_process *replace_process(struct mount_process **link, uint64_t mounts, struct error *error)
{
    struct mount_process *before = *link;
    if (check_room(before, error) < 0)
        return NULL;
    pthread_mutex_unlock(&table_lock);
    struct mount_process *process = start_process(mounts, error);
    pthread_mutex_lock(&table_lock);
    if (process && before && process->started_ns - before->started_ns < START_WINDOW_NS)
        process->n_started += before->n_started;
    if (process && before)
        drop_process(link);
    if (!process)
        return NULL;
    process->next = table;
    table = process;
    n_processes++;
    return process;
}

static struct mount_process *get_process(uint64_t mounts, bool may_start, struct error *error)
{
    pthread_mutex_lock(&table_lock);
    struct mount_process **link = find_process(mounts), *process = *link;
    if (!process || mount_process_has_ended(process))
        process = may_start ? replace_process(link, mounts, error) : NULL;
    if (process)
        process->references++;
    pthread_mutex_unlock(&table_lock);
    return process;
}

struct mount_process *mount_process_get(uint64_t mounts, struct error *error)
{
    struct mount_process *process = get_process(mounts, false, error);
    if (process)
        return process;
    pthread_mutex_lock(&starting);
    process = get_process(mounts, true, error);
    pthread_mutex_unlock(&starting);
    return process;
}

void mount_process_unref(struct mount_process *process)
{
    if (!process)
        return;
    pthread_mutex_lock(&table_lock);
    if (process->references == 2) /* nobody's but the table's from now on */
        mount_connection_close_idle(process);
    unref_locked(process);
    pthread_mutex_unlock(&table_lock);
}

/* --- talking ------------------------------------------------------------------------------------------------------ */

static void note_death(struct mount_process *process)
{
    __atomic_store_n(&process->is_dead, true, __ATOMIC_RELAXED);
}

bool mount_process_has_ended(struct mount_process *process)
{
    struct pollfd asked = {.fd = process->control};
    if (poll(&asked, 1, 0) > 0 && asked.revents & (POLLHUP | POLLERR))
        note_death(process);
    return __atomic_load_n(&process->is_dead, __ATOMIC_RELAXED);
}

void mount_process_kill(struct mount_process *process)
{
    kill(process->pid, SIGKILL);
    note_death(process);
}

int mount_process_fail(const struct mount_process *process, struct error *error)
{
    return fail(error, ERROR_UNAVAILABLE, "MOUNT_PROCESS_ENDED",
                "the process that reads the FUSE mount %s has ended, perhaps for want of memory; load again", process->name);
}

int mount_process_tell(struct mount_process *process, const struct mount_control *message, const int *fds, int n_fds)
{
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(2 * sizeof(int))];
    } rights = {.room = {0}};
    struct iovec iov = memory_iovec(message, sizeof *message);
    struct msghdr packet = {.msg_iov = &iov, .msg_iovlen = 1};
    size_t fd_bytes = (size_t)n_fds * sizeof *fds;
    if (n_fds > 0) {
        packet.msg_control = rights.room;
        packet.msg_controllen = CMSG_SPACE(fd_bytes);
        rights.header = (struct cmsghdr){.cmsg_len = CMSG_LEN(fd_bytes), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(&rights.header), fds, fd_bytes);
    }
    ssize_t sent;
    do
        sent = sendmsg(process->control, &packet, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    if (sent < 0 && (errno == EPIPE || errno == ECONNRESET))
        note_death(process);
    return sent < 0 ? -1 : 0;
}

uint64_t mount_process_new_source(void)
{
    return __atomic_add_fetch(&n_sources, 1, __ATOMIC_RELAXED);
}

void mount_process_close_source(struct mount_process *process, uint64_t source)
{
    pthread_mutex_lock(&process->lock);
    ARRAY_RESERVE(process->closed, process->n_closed, process->closed_room);
    process->closed[process->n_closed++] = source;
    mount_process_tell_closed(process);
    pthread_mutex_unlock(&process->lock);
}

void mount_process_tell_closed(struct mount_process *process)
{
    while (process->n_closed > 0) {
        const struct mount_control message = {.kind = MOUNT_CLOSE, .source = process->closed[process->n_closed - 1]};
        if (mount_process_tell(process, &message, NULL, 0) < 0)
            break;
        process->n_closed--;
    }
}
