/* What waits is a queue for each owner, and owners take turns, so that nobody's descriptors wait for a place or a thread behind
 * another's. All that waits is open here, so the queues are bounded by the limit of open files, and of one owner by his own:
 * what lies in a socket's queue stays in flight, and of these the kernel gives a user no more than RLIMIT_NOFILE. Threads are
 * started as they are needed and end when nothing is left to close.
 *
 * A close that lasts is told to come back, by a signal to its thread: a socket that lingers, or a terminal that drains, goes
 * on without whoever waits for it, and nothing is lost. With each that had to be told the patience with its owner halves,
 * until all his are closed, so that he cannot bring them faster than they go. What waits for a FUSE or NFS server alone hears
 * no signal: such a thread keeps its place until the kernel lets it go, or the process ends. */
#include "base/foreign_fd.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

#define COME_BACK_SIGNAL (SIGRTMIN + 3) /* any that nobody else has would do: only the thread gets it */

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid /* glibc before 2.35 has no name for it */
#endif

enum {
    FIRST_PATIENCE_US = 1000 * 1000,
    LEAST_PATIENCE_US = 50,
    FREE_THREADS = 16, /* with more, only who has none gets one: a few users whose descriptors hang do not take all */
    MAX_THREADS = 64,
    MAX_THREADS_PER_OWNER = 4,
    PEEK_BYTES = 64 << 10,
    MAX_PEEKS = 512 /* more messages than a socket holds with the usual net.core.wmem_max */
};

struct foreign {
    struct foreign *next;
    int fd;
};

struct owner { /* who has anything here */
    struct owner *next;
    uid_t uid;
    struct foreign *first, **end; /* that wait */
    size_t n_waiting, n_closing;
    long patience_us; /* how long a close may last */
};

struct task { /* of a thread */
    struct foreign *foreign;
    uid_t uid;
    long patience_us;
};

static struct {
    pthread_mutex_t lock; /* for everything here */
    struct owner *owners; /* whose turn it is first */
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

/* --- owners: with the lock held ------------------------------------------------------------------------------------- */

static struct owner **find_owner(uid_t uid)
{
    struct owner **at = &queue.owners;
    while (*at && (*at)->uid != uid)
        at = &(*at)->next;
    return at;
}

static void put_last(struct foreign *foreign, uid_t uid)
{
    struct owner **at = find_owner(uid), *owner = *at;
    if (!owner) {
        owner = *at = memory_alloc(sizeof *owner);
        owner->uid = uid;
        owner->end = &owner->first;
        owner->patience_us = FIRST_PATIENCE_US;
    }
    *owner->end = foreign;
    owner->end = &foreign->next;
    owner->n_waiting++;
}

static bool may_take(const struct owner *owner)
{
    return owner->n_waiting && owner->n_closing < (queue.n_closing < FREE_THREADS ? MAX_THREADS_PER_OWNER : 1);
}

/* The first one of the owner who has not got his share of the threads yet; he is the last then. */
static bool take_next(struct task *next)
{
    struct owner **at = &queue.owners;
    while (*at && !may_take(*at))
        at = &(*at)->next;
    struct owner *owner = *at;
    if (!owner || queue.n_closing == MAX_THREADS)
        return false;
    *next = (struct task){owner->first, owner->uid, owner->patience_us};
    owner->first = next->foreign->next;
    owner->end = owner->first ? owner->end : &owner->first;
    next->foreign->next = NULL;
    owner->n_waiting--;
    owner->n_closing++;
    queue.n_closing++;
    *at = owner->next;
    while (*at)
        at = &(*at)->next;
    *at = owner;
    owner->next = NULL;
    return true;
}

static void note_end(uid_t uid, bool was_told)
{
    struct owner **at = find_owner(uid), *owner = *at;
    queue.n_closing--;
    if (was_told && owner->patience_us > LEAST_PATIENCE_US)
        owner->patience_us /= 2;
    if (--owner->n_closing + owner->n_waiting > 0)
        return;
    *at = owner->next;
    free(owner);
}

/* --- threads -------------------------------------------------------------------------------------------------------- */

static _Thread_local volatile sig_atomic_t was_told;

static void on_come_back(int signal)
{
    (void)signal;
    was_told = 1;
}

/* A timer that signals the calling thread. False: there is none to be had, and a close lasts as long as it does. */
static bool make_timer(timer_t *timer)
{
    struct sigaction action = {.sa_handler = on_come_back}; /* without SA_RESTART: to interrupt is what it is for */
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = COME_BACK_SIGNAL};
    sigset_t signals;
    event.sigev_notify_thread_id = gettid();
    sigemptyset(&signals);
    sigaddset(&signals, COME_BACK_SIGNAL);
    return sigaction(COME_BACK_SIGNAL, &action, NULL) == 0 && pthread_sigmask(SIG_UNBLOCK, &signals, NULL) == 0 &&
           timer_create(CLOCK_MONOTONIC, &event, timer) == 0;
}

/* Again and again: a signal may come just before close() waits, and what lies in a socket's queue may be many. */
static void set_timer(const timer_t *timer, long us)
{
    struct timespec time = {us / 1000000, us % 1000000 * 1000};
    if (timer)
        timer_settime(*timer, 0, &(struct itimerspec){.it_interval = time, .it_value = time}, NULL);
}

static void *close_them(void *first)
{
    struct task task = *(struct task *)first;
    bool has_next = true;
    timer_t made, *timer = make_timer(&made) ? &made : NULL;
    free(first);
    while (has_next) {
        was_told = 0;
        set_timer(timer, task.patience_us);
        close(task.foreign->fd);
        set_timer(timer, 0);
        free(task.foreign);
        pthread_mutex_lock(&queue.lock);
        note_end(task.uid, was_told);
        has_next = take_next(&task);
        pthread_mutex_unlock(&queue.lock);
    }
    if (timer)
        timer_delete(*timer);
    return NULL;
}

/* With the lock held. A thread that cannot be had is asked for again with the next descriptor. */
static void start_thread(void)
{
    struct task next;
    pthread_attr_t detached;
    pthread_t thread;
    sigset_t all, old;
    if (!take_next(&next))
        return;
    struct task *first = memory_copy(&next, sizeof next);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    if (pthread_create(&thread, &detached, close_them, first)) {
        put_last(next.foreign, next.uid);
        note_end(next.uid, false);
        free(first);
    }
    pthread_attr_destroy(&detached);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

void foreign_fd_close(int fd, uid_t owner)
{
    int callers_errno = errno;
    struct foreign *foreign = memory_alloc(sizeof *foreign);
    foreign->fd = fd;
    pthread_mutex_lock(&queue.lock);
    put_last(foreign, owner);
    start_thread();
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

size_t foreign_fd_open(uid_t uid)
{
    pthread_mutex_lock(&queue.lock);
    const struct owner *owner = *find_owner(uid);
    size_t count = owner ? owner->n_waiting + owner->n_closing : 0;
    pthread_mutex_unlock(&queue.lock);
    return count;
}
