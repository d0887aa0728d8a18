/* A library to be preloaded: what a command asks of the kernel about the files of an export is counted, and the n-th of it
 * goes wrong. Built by tests/e2e/test_export_faults.py.
 *
 *   EXPORT_FAULT_FOLDER  calls about what lies below count
 *   EXPORT_FAULT_AT      which of them goes wrong, from 1; 0 = none
 *   EXPORT_FAULT_KIND    EIO, ENOSPC, short (a write of half of it), flip (a write of a wrong byte), kill, stop (SIGSTOP)
 *   EXPORT_FAULT_CALLS   a file for how many there were */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int n_calls;

#define REAL(name) ((__typeof__(name) *)dlsym(RTLD_NEXT, #name))

static int is_below(const char *path)
{
    const char *folder = getenv("EXPORT_FAULT_FOLDER");
    return folder && strncmp(path, folder, strlen(folder)) == 0;
}

static int is_ours(int fd)
{
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return 0;
    path[length] = '\0';
    return is_below(path);
}

enum fault { FAULT_NONE, FAULT_ERRNO, FAULT_SHORT, FAULT_FLIP };

static void write_count(void)
{
    const char *path = getenv("EXPORT_FAULT_CALLS");
    FILE *file = path ? fopen(path, "w") : NULL;
    if (!file)
        return;
    fprintf(file, "%d\n", n_calls);
    fclose(file);
}

__attribute__((destructor)) static void at_end(void)
{
    write_count();
}

/* Counts one call about `fd`, and says how it is to go wrong. */
static enum fault count_call(int fd)
{
    const char *at = getenv("EXPORT_FAULT_AT"), *kind = getenv("EXPORT_FAULT_KIND");
    if (!is_ours(fd) || __atomic_add_fetch(&n_calls, 1, __ATOMIC_SEQ_CST) != (at ? atoi(at) : 0) || !kind)
        return FAULT_NONE;
    if (strcmp(kind, "kill") == 0)
        kill(getpid(), SIGKILL);
    if (strcmp(kind, "stop") == 0) {
        raise(SIGSTOP);
        return FAULT_NONE;
    }
    if (strcmp(kind, "short") == 0)
        return FAULT_SHORT;
    if (strcmp(kind, "flip") == 0)
        return FAULT_FLIP;
    errno = strcmp(kind, "ENOSPC") == 0 ? ENOSPC : EIO;
    return FAULT_ERRNO;
}

ssize_t write(int fd, const void *bytes, size_t count)
{
    enum fault fault = count_call(fd);
    if (fault == FAULT_ERRNO)
        return -1;
    return REAL(write)(fd, bytes, fault == FAULT_SHORT && count > 1 ? count / 2 : count);
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t offset)
{
    enum fault fault = count_call(fd);
    if (fault == FAULT_ERRNO)
        return -1;
    if (fault == FAULT_FLIP && count) {
        unsigned char *wrong = aligned_alloc(4096, (count + 4095) / 4096 * 4096);
        memcpy(wrong, bytes, count);
        wrong[count / 2] ^= 1;
        ssize_t written = REAL(pwrite)(fd, wrong, count, offset);
        free(wrong);
        return written;
    }
    return REAL(pwrite)(fd, bytes, fault == FAULT_SHORT && count > 1 ? count / 2 : count, offset);
}

#define FAIL_FD(name, fd, arguments, call)                                                                                  \
    int name arguments                                                                                                      \
    {                                                                                                                       \
        return count_call(fd) == FAULT_ERRNO ? -1 : REAL(name) call;                                                        \
    }

FAIL_FD(fsync, fd, (int fd), (fd))
FAIL_FD(fdatasync, fd, (int fd), (fd))
FAIL_FD(ftruncate, fd, (int fd, off_t length), (fd, length))
FAIL_FD(fallocate, fd, (int fd, int mode, off_t offset, off_t length), (fd, mode, offset, length))
FAIL_FD(mkdirat, fd, (int fd, const char *path, mode_t mode), (fd, path, mode))
FAIL_FD(unlinkat, fd, (int fd, const char *path, int flags), (fd, path, flags))
FAIL_FD(renameat, to, (int from, const char *old, int to, const char *new), (from, old, to, new))
FAIL_FD(renameat2, to, (int from, const char *old, int to, const char *new, unsigned flags), (from, old, to, new, flags))

int openat(int fd, const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    return count_call(fd) == FAULT_ERRNO ? -1 : REAL(openat)(fd, path, flags, mode);
}
