/* A library to be preloaded into the daemon: what it asks of the kernel about memfds of clients is counted, and the n-th of
 * it goes wrong. Built by tests/e2e/test_region_faults.py.
 *
 *   REGION_FAULTS   a file with two numbers: of the round, and which call of it goes wrong. The library makes FILE.hit when
 *                   it comes to that. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(name) *)dlsym(RTLD_NEXT, #name))

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *range; /* of addresses, that was reserved last */
static size_t range_bytes;

static int is_clients(int fd)
{
    char link[64], path[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length > 0 ? length : 0] = '\0';
    return strncmp(path, "/memfd:client", 13) == 0;
}

/* Whether this call is to go wrong. */
static int count_call(void)
{
    static long round, n_calls;
    const char *path = getenv("REGION_FAULTS");
    char hit[4096];
    long now = 0, at = 0;
    pthread_mutex_lock(&lock);
    FILE *file = path ? fopen(path, "r") : NULL;
    if (file && fscanf(file, "%ld %ld", &now, &at) == 2 && now != round)
        round = now, n_calls = 0;
    if (file)
        fclose(file);
    int fails = ++n_calls == at;
    if (fails) {
        snprintf(hit, sizeof hit, "%s.hit", path);
        file = fopen(hit, "w");
        if (file)
            fclose(file);
    }
    pthread_mutex_unlock(&lock);
    return fails;
}

int fstat(int fd, struct stat *status)
{
    if (is_clients(fd) && count_call())
        return errno = EIO, -1;
    return REAL(fstat)(fd, status);
}

int fstatfs(int fd, struct statfs *status)
{
    if (is_clients(fd) && count_call())
        return errno = EIO, -1;
    return REAL(fstatfs)(fd, status);
}

int fcntl(int fd, int command, ...)
{
    va_list arguments;
    va_start(arguments, command);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    if ((command == F_GET_SEALS || command == F_GETFL) && is_clients(fd) && count_call())
        return errno = EINVAL, -1;
    return REAL(fcntl)(fd, command, argument);
}

void *mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    int reserves = fd < 0 && protection == PROT_NONE && flags & MAP_NORESERVE && bytes > 9 << 20;
    if ((reserves || (fd >= 0 && is_clients(fd))) && count_call())
        return errno = ENOMEM, MAP_FAILED;
    void *made = REAL(mmap)(address, bytes, protection, flags, fd, offset);
    if (reserves)
        range = made, range_bytes = bytes;
    return made;
}

int madvise(void *address, size_t bytes, int advice)
{
    int is_ours = range && (char *)address >= range && (char *)address < range + range_bytes;
    if (is_ours && count_call())
        return errno = ENOMEM, -1;
    return REAL(madvise)(address, bytes, advice);
}
