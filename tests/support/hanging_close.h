/* Descriptors whose close lasts until the test lets it end, and that hear no signal: as files of a server that is hung. */
#ifndef TESTS_SUPPORT_HANGING_CLOSE_H
#define TESTS_SUPPORT_HANGING_CLOSE_H

#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MAX_HANGING_FD = 1 << 16 };

static struct {
    pthread_mutex_t lock;
    pthread_cond_t released;
    bool is_hanging[MAX_HANGING_FD];
} hanging_close = {.lock = PTHREAD_MUTEX_INITIALIZER, .released = PTHREAD_COND_INITIALIZER};

/* Instead of libc's, in all of the test's program. */
int close(int fd)
{
    if (fd >= 0 && fd < MAX_HANGING_FD) {
        pthread_mutex_lock(&hanging_close.lock);
        while (hanging_close.is_hanging[fd])
            pthread_cond_wait(&hanging_close.released, &hanging_close.lock);
        pthread_mutex_unlock(&hanging_close.lock);
    }
    return (int)syscall(SYS_close, fd);
}

static inline int hanging_fd(void)
{
    int fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
    if (fd >= 0 && fd < MAX_HANGING_FD)
        hanging_close.is_hanging[fd] = true;
    return fd;
}

static inline void release_fd(int fd)
{
    pthread_mutex_lock(&hanging_close.lock);
    hanging_close.is_hanging[fd] = false;
    pthread_cond_broadcast(&hanging_close.released);
    pthread_mutex_unlock(&hanging_close.lock);
}

#endif
