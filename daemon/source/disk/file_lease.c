/* The kernel tells by a signal that another process waits for a lease. It is a real-time signal with the descriptor in it,
 * sent to one thread, which has all signals blocked and waits for that one. When the queue of signals is full, the kernel
 * sends a plain SIGIO instead, which does not say for which: then every lease is looked at.
 *
 * Who reads a mapping of a leased file is counted in the lease. To give one up is to mark it as broken, so that no reader
 * begins to read, to wait for those who do, and only then to tell the kernel. That wait has an end, long before the kernel
 * loses its patience (fs.lease-break-time, 45 s): a reader may be stuck in a page that has to be read from a slow device
 * again. base/bus_guard.h protects the reader when the file is truncated meanwhile.
 *
 * A descriptor's number may be another file's by the time its signal is read; so a signal is only a reason to ask the kernel
 * (F_GETLEASE). The lock is never held while a lease is being taken, since that may block on a file system that hangs. */
#include "source/disk/file_lease.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/condition.h"
#include "base/memory.h"

enum { N_BUCKETS = 4096 };          /* a host has tens of thousands of leases at most: a bucket holds a few */
#define BREAK_SIGNAL (SIGRTMIN + 2) /* any real-time signal would do: only our thread gets it */

struct file_lease {
    int fd;
    bool is_set;    /* the kernel has granted it */
    bool is_broken; /* atomic: it was given up, or is about to be */
    int n_readers;  /* atomic: of a mapping of the file */
    bool has_span;
    uint64_t device, inode, span;
    struct file_lease *next; /* in its bucket, once it has a span */
};

static struct {
    pthread_once_t once;
    pid_t tid; /* of the thread that answers; 0 = there is none */
    sem_t is_ready;
    pthread_mutex_t lock;
    struct file_lease **by_fd;
    size_t n_fds;
    struct file_lease *buckets[N_BUCKETS];
    uint64_t n_spans;
    pthread_mutex_t readers_lock; /* inside the other: for waiting until readers have left */
    pthread_cond_t reader_left;
} leases = {.once = PTHREAD_ONCE_INIT, .lock = PTHREAD_MUTEX_INITIALIZER, .readers_lock = PTHREAD_MUTEX_INITIALIZER};

static bool kernel_has(const struct file_lease *lease)
{
    return fcntl(lease->fd, F_GETLEASE) == F_RDLCK; /* F_UNLCK also while another process waits for it */
}

static struct file_lease **bucket_of(uint64_t device, uint64_t inode)
{
    return &leases.buckets[(device * 31 + inode) % N_BUCKETS];
}

static bool is_on(const struct file_lease *lease, uint64_t device, uint64_t inode)
{
    return lease->device == device && lease->inode == inode;
}

/* --- giving up: under the lock ------------------------------------------------------------------------------------- */

static void give_up_lease(struct file_lease *lease, uint64_t until_ns)
{
    pthread_mutex_lock(&leases.readers_lock);
    while (__atomic_load_n(&lease->n_readers, __ATOMIC_SEQ_CST) > 0 && clock_now_ns() < until_ns)
        condition_wait_until(&leases.reader_left, &leases.readers_lock, until_ns);
    pthread_mutex_unlock(&leases.readers_lock);
    fcntl(lease->fd, F_SETLEASE, F_UNLCK);
    lease->is_set = false;
}

/* Who waits for one lease on a file waits for all of them. */
static void look_at_lease(struct file_lease *lease)
{
    if (!lease->is_set || lease->is_broken || kernel_has(lease))
        return;
    uint64_t until_ns = clock_now_ns() + FILE_LEASE_USE_NS;
    struct file_lease *first = lease->has_span ? *bucket_of(lease->device, lease->inode) : NULL;
    __atomic_store_n(&lease->is_broken, true, __ATOMIC_SEQ_CST);
    for (struct file_lease *other = first; other; other = other->next)
        if (is_on(other, lease->device, lease->inode))
            __atomic_store_n(&other->is_broken, true, __ATOMIC_SEQ_CST);
    give_up_lease(lease, until_ns);
    for (struct file_lease *other = first; other; other = other->next)
        if (is_on(other, lease->device, lease->inode) && other->is_set)
            give_up_lease(other, until_ns);
}

/* Whether one of our own leases on the file was in the way of another one: the kernel grants none while another process waits
 * for one. Gives them up, without waiting for the thread. */
static bool give_up_those_on(int fd)
{
    struct stat now;
    if (fstat(fd, &now) < 0)
        return false;
    pthread_mutex_lock(&leases.lock);
    bool were_any = false;
    for (struct file_lease *other = *bucket_of(now.st_dev, now.st_ino); other; other = other->next) {
        if (is_on(other, now.st_dev, now.st_ino)) {
            look_at_lease(other);
            were_any |= other->is_broken;
        }
    }
    pthread_mutex_unlock(&leases.lock);
    return were_any;
}

/* --- the thread ---------------------------------------------------------------------------------------------------- */

static void *answer_signals(void *unused)
{
    sigset_t signals;
    siginfo_t info;
    sigemptyset(&signals);
    sigaddset(&signals, BREAK_SIGNAL);
    sigaddset(&signals, SIGIO);
    leases.tid = gettid();
    sem_post(&leases.is_ready);
    for (;;) {
        int signal = sigwaitinfo(&signals, &info);
        pthread_mutex_lock(&leases.lock);
        if (signal == SIGIO) {
            for (size_t i = 0; i < leases.n_fds; i++) {
                if (leases.by_fd[i])
                    look_at_lease(leases.by_fd[i]);
            }
        } else if (signal == BREAK_SIGNAL && info.si_fd >= 0 && (size_t)info.si_fd < leases.n_fds &&
                   leases.by_fd[info.si_fd])
            look_at_lease(leases.by_fd[info.si_fd]);
        pthread_mutex_unlock(&leases.lock);
    }
    return unused;
}

static void start_thread(void)
{
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    sem_init(&leases.is_ready, 0, 0);
    condition_init(&leases.reader_left);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* the thread inherits it, so no signal finds it unprepared */
    int failed = pthread_create(&thread, &attributes, answer_signals, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    while (!failed && sem_wait(&leases.is_ready) < 0 && errno == EINTR)
        ;
}

/* --- taking and dropping ------------------------------------------------------------------------------------------- */

void file_lease_drop(struct file_lease *lease)
{
    if (!lease)
        return;
    pthread_mutex_lock(&leases.lock);
    leases.by_fd[lease->fd] = NULL;
    if (lease->has_span) {
        struct file_lease **link = bucket_of(lease->device, lease->inode);
        while (*link != lease)
            link = &(*link)->next;
        *link = lease->next;
    }
    pthread_mutex_unlock(&leases.lock);
    if (lease->is_set)
        fcntl(lease->fd, F_SETLEASE, F_UNLCK); /* at once: a child that was forked just now may hold the file open */
    free(lease);
}

struct file_lease *file_lease_take(int fd)
{
    pthread_once(&leases.once, start_thread);
    if (!leases.tid) {
        errno = ENOLCK;
        return NULL;
    }
    struct file_lease *lease = memory_alloc(sizeof *lease);
    lease->fd = fd;
    pthread_mutex_lock(&leases.lock); /* before it is granted: the signal may come at once */
    if ((size_t)fd >= leases.n_fds) {
        size_t n_fds = 2 * (size_t)fd + 64;
        leases.by_fd = memory_grow(leases.by_fd, n_fds, sizeof(struct file_lease *));
        memset(leases.by_fd + leases.n_fds, 0, (n_fds - leases.n_fds) * sizeof(struct file_lease *));
        leases.n_fds = n_fds;
    }
    leases.by_fd[fd] = lease;
    pthread_mutex_unlock(&leases.lock);
    /* the owner is set before the lease, which would otherwise make it the whole process */
    struct f_owner_ex owner = {F_OWNER_TID, leases.tid};
    if (fcntl(fd, F_SETOWN_EX, &owner) < 0 || fcntl(fd, F_SETSIG, BREAK_SIGNAL) < 0 ||
        (fcntl(fd, F_SETLEASE, F_RDLCK) < 0 &&
         (errno != EAGAIN || !give_up_those_on(fd) || fcntl(fd, F_SETLEASE, F_RDLCK) < 0))) {
        int why = errno;
        file_lease_drop(lease);
        errno = why;
        return NULL;
    }
    pthread_mutex_lock(&leases.lock);
    lease->is_set = true;
    look_at_lease(lease); /* signals until now were not answered */
    pthread_mutex_unlock(&leases.lock);
    return lease;
}

bool file_lease_is_held(const struct file_lease *lease)
{
    return !__atomic_load_n(&lease->is_broken, __ATOMIC_ACQUIRE) && kernel_has(lease);
}

/* Counted before the lease is looked at: a thread that gives it up either sees the reader or is seen by it. */
bool file_lease_enter(struct file_lease *lease)
{
    __atomic_add_fetch(&lease->n_readers, 1, __ATOMIC_SEQ_CST);
    if (!__atomic_load_n(&lease->is_broken, __ATOMIC_SEQ_CST) && kernel_has(lease))
        return true;
    file_lease_leave(lease);
    return false;
}

void file_lease_leave(struct file_lease *lease)
{
    bool is_last = __atomic_sub_fetch(&lease->n_readers, 1, __ATOMIC_SEQ_CST) == 0;
    if (!is_last || !__atomic_load_n(&lease->is_broken, __ATOMIC_SEQ_CST))
        return;
    pthread_mutex_lock(&leases.readers_lock);
    pthread_cond_broadcast(&leases.reader_left);
    pthread_mutex_unlock(&leases.readers_lock);
}

/* --- spans --------------------------------------------------------------------------------------------------------- */

uint64_t file_lease_span(struct file_lease *lease, uint64_t device, uint64_t inode, bool times_tell)
{
    pthread_mutex_lock(&leases.lock);
    struct file_lease **bucket = bucket_of(device, inode);
    const struct file_lease *same = NULL;
    for (const struct file_lease *other = *bucket; other && !same; other = other->next) {
        if (!is_on(other, device, inode))
            continue;
        if (!other->is_broken && kernel_has(other))
            same = other;
        times_tell = false; /* a broken one that is still around may belong to bytes of before under the same times */
    }
    lease->device = device;
    lease->inode = inode;
    lease->span = same ? same->span : times_tell ? 0 : ++leases.n_spans;
    lease->has_span = true;
    lease->next = *bucket;
    *bucket = lease;
    pthread_mutex_unlock(&leases.lock);
    return lease->span;
}
