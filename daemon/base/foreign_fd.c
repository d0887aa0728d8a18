/* Threads are started as they are needed and end when nothing is left to close; a hung one keeps its place until the kernel
 * lets it go, or the process ends. Beyond MAX_WAITING a descriptor stays open for good: the limit of open files is the bound
 * then, and hand-off connections of a user with that many are refused long before. */
#include "base/foreign_fd.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/memory.h"

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

enum {
    FREE_THREADS = 16, /* with more, only who has none gets one: a few users whose descriptors hang do not take all */
    MAX_THREADS = 64,
    MAX_THREADS_PER_OWNER = 4,
    MAX_WAITING = 4096,
    PEEK_BYTES = 64 << 10,
    MAX_PEEKS = 64
};

struct foreign {
    int fd;
    uid_t owner;
};

static struct {
    pthread_mutex_t lock; /* for everything here */
    struct foreign waiting[MAX_WAITING];
    size_t n_waiting;
    uid_t closing[MAX_THREADS]; /* whose descriptors the threads are at */
    size_t n_closing;
} queue = {.lock = PTHREAD_MUTEX_INITIALIZER};

bool foreign_fd_refuse(int socket)
{
    int off = 0;
    return setsockopt(socket, SOL_SOCKET, SO_PASSRIGHTS, &off, sizeof off) == 0;
}

bool foreign_fd_is_refused(int socket)
{
    int passes = 1;
    socklen_t size = sizeof passes;
    return getsockopt(socket, SOL_SOCKET, SO_PASSRIGHTS, &passes, &size) == 0 && !passes;
}

/* A look without room for descriptors leaves them where they are and tells of them by MSG_CTRUNC. */
bool foreign_fd_is_queued(int socket)
{
    int from_start = 0, off = -1;
    bool is_queued = true;
    char *bytes = memory_alloc(PEEK_BYTES);
    if (setsockopt(socket, SOL_SOCKET, SO_PEEK_OFF, &from_start, sizeof from_start) == 0) {
        for (int i = 0; i < MAX_PEEKS; i++) {
            struct iovec place = {bytes, PEEK_BYTES};
            struct msghdr message = {.msg_iov = &place, .msg_iovlen = 1};
            ssize_t n = recvmsg(socket, &message, MSG_PEEK | MSG_DONTWAIT);
            is_queued = n >= 0 && message.msg_flags & MSG_CTRUNC;
            if (n <= 0 || is_queued)
                break;
            is_queued = true; /* until everything was seen */
        }
        setsockopt(socket, SOL_SOCKET, SO_PEEK_OFF, &off, sizeof off);
    }
    free(bytes);
    return is_queued;
}

static size_t count_closing(uid_t owner)
{
    size_t count = 0;
    for (size_t i = 0; i < queue.n_closing; i++)
        count += queue.closing[i] == owner;
    return count;
}

static bool may_have_thread(uid_t owner)
{
    size_t n = count_closing(owner);
    return n < (queue.n_closing < FREE_THREADS ? MAX_THREADS_PER_OWNER : 1);
}

/* With the lock held: the first one whose owner has not got his share of the threads yet. */
static bool take_next(struct foreign *next)
{
    for (size_t i = 0; queue.n_closing < MAX_THREADS && i < queue.n_waiting; i++) {
        if (!may_have_thread(queue.waiting[i].owner))
            continue;
        *next = queue.waiting[i];
        memmove(&queue.waiting[i], &queue.waiting[i + 1], (--queue.n_waiting - i) * sizeof *queue.waiting);
        queue.closing[queue.n_closing++] = next->owner;
        return true;
    }
    return false;
}

static void forget_owner(uid_t owner)
{
    size_t i = 0;
    while (queue.closing[i] != owner)
        i++;
    queue.closing[i] = queue.closing[--queue.n_closing];
}

static void *close_them(void *first)
{
    struct foreign foreign = *(struct foreign *)first;
    bool has_next = true;
    free(first);
    while (has_next) {
        close(foreign.fd);
        pthread_mutex_lock(&queue.lock);
        forget_owner(foreign.owner);
        has_next = take_next(&foreign);
        pthread_mutex_unlock(&queue.lock);
    }
    return NULL;
}

/* With the lock held. A thread that cannot be had is asked for again with the next descriptor. */
static void start_thread(void)
{
    struct foreign next;
    pthread_attr_t detached;
    pthread_t thread;
    sigset_t all, old;
    if (!take_next(&next))
        return;
    struct foreign *first = memory_copy(&next, sizeof next);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    if (pthread_create(&thread, &detached, close_them, first)) {
        queue.waiting[queue.n_waiting++] = next;
        forget_owner(next.owner);
        free(first);
    }
    pthread_attr_destroy(&detached);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

void foreign_fd_close(int fd, uid_t owner)
{
    int callers_errno = errno;
    pthread_mutex_lock(&queue.lock);
    if (queue.n_waiting < MAX_WAITING) {
        queue.waiting[queue.n_waiting++] = (struct foreign){fd, owner};
        start_thread();
    }
    pthread_mutex_unlock(&queue.lock);
    errno = callers_errno;
}

/* Nothing is added to the queue after the shutdown, which tells the client now, also where a child of it has the socket. */
void foreign_fd_close_socket(int socket, uid_t owner, bool brings_none)
{
    shutdown(socket, SHUT_RDWR);
    if (brings_none || !foreign_fd_is_queued(socket))
        close(socket);
    else
        foreign_fd_close(socket, owner);
}

size_t foreign_fd_open(uid_t owner)
{
    pthread_mutex_lock(&queue.lock);
    size_t count = count_closing(owner);
    for (size_t i = 0; i < queue.n_waiting; i++)
        count += queue.waiting[i].owner == owner;
    pthread_mutex_unlock(&queue.lock);
    return count;
}
