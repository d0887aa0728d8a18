/* One queue, and at most one thread for each owner, which ends when nothing is left to close. What waits is open here, so the limit
 * of open files bounds the queue. A close that hangs keeps its owner's thread until the kernel lets it go, or the process ends. */
#include "base/foreign_fd.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/memory.h"

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

enum { MAX_THREADS = 16 };

struct foreign {
    STAILQ_ENTRY(foreign) link;
    int fd;
    uid_t owner;
};

static struct {
    pthread_mutex_t lock; /* for everything here */
    STAILQ_HEAD(, foreign) waiting;
    struct foreign *closing[MAX_THREADS]; /* of each thread; NULL = there is no such thread */
} queue = {.lock = PTHREAD_MUTEX_INITIALIZER, .waiting = STAILQ_HEAD_INITIALIZER(queue.waiting)};

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

/* Under the lock, for the thread of `slot`: the first one whose owner has no thread yet. */
static struct foreign *take_next(size_t slot)
{
    struct foreign *foreign;
    queue.closing[slot] = NULL;
    STAILQ_FOREACH (foreign, &queue.waiting, link) {
        size_t i = 0;
        while (i < MAX_THREADS && !(queue.closing[i] && queue.closing[i]->owner == foreign->owner))
            i++;
        if (i == MAX_THREADS)
            break;
    }
    if (foreign)
        STAILQ_REMOVE(&queue.waiting, foreign, foreign, link);
    return queue.closing[slot] = foreign;
}

static void *close_them(void *closing)
{
    size_t slot = (size_t)((struct foreign **)closing - queue.closing);
    struct foreign *foreign = queue.closing[slot];
    while (foreign) {
        close(foreign->fd);
        pthread_mutex_lock(&queue.lock);
        free(foreign);
        foreign = take_next(slot);
        pthread_mutex_unlock(&queue.lock);
    }
    return NULL;
}

/* Under the lock. The next descriptor asks again for a thread that does not start. */
static void start_thread(void)
{
    pthread_attr_t detached;
    pthread_t thread;
    sigset_t all, old;
    size_t slot = 0;
    while (slot < MAX_THREADS && queue.closing[slot])
        slot++;
    struct foreign *first = slot < MAX_THREADS ? take_next(slot) : NULL;
    if (!first)
        return;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    if (pthread_create(&thread, &detached, close_them, &queue.closing[slot])) {
        STAILQ_INSERT_HEAD(&queue.waiting, first, link);
        queue.closing[slot] = NULL;
    }
    pthread_attr_destroy(&detached);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

void foreign_fd_close(int fd, uid_t owner)
{
    int callers_errno = errno;
    struct foreign *foreign = memory_alloc(sizeof *foreign);
    *foreign = (struct foreign){.fd = fd, .owner = owner};
    pthread_mutex_lock(&queue.lock);
    STAILQ_INSERT_TAIL(&queue.waiting, foreign, link);
    start_thread();
    pthread_mutex_unlock(&queue.lock);
    errno = callers_errno;
}

/* The shutdown tells the client now, also where a child of it has the socket. */
void foreign_fd_close_socket(int socket, uid_t owner, bool brings_none)
{
    shutdown(socket, SHUT_RDWR);
    if (brings_none)
        close(socket);
    else
        foreign_fd_close(socket, owner);
}

size_t foreign_fd_open(uid_t uid)
{
    const struct foreign *foreign;
    size_t count = 0;
    pthread_mutex_lock(&queue.lock);
    STAILQ_FOREACH (foreign, &queue.waiting, link)
        count += foreign->owner == uid;
    for (size_t i = 0; i < MAX_THREADS; i++)
        count += queue.closing[i] && queue.closing[i]->owner == uid;
    pthread_mutex_unlock(&queue.lock);
    return count;
}
