/* Preloaded: stops, kills or refuses a process at a step that a test has named, before the step is made. What is asked for lies in
 * the file that $STOP_AT_STEP names, shared with the test: a call, the end of the path that it is about, how many are let go first,
 * and what happens then: a signal, once, or the calls fail from then on. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static struct control { /* activation_steps.py writes it */
    int action;         /* a signal; 0 = nothing; negative: the calls fail with this errno */
    int n_before;       /* let go first */
    int n_done;
    char call[20], suffix[96];
} * control;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

__attribute__((constructor)) static void map_control(void)
{
    const char *path = getenv("STOP_AT_STEP");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *memory = fd >= 0 ? mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    control = memory == MAP_FAILED ? NULL : memory;
    if (fd >= 0)
        close(fd);
}

static int ends_with(const char *path, const char *suffix)
{
    size_t n = strlen(path), m = strlen(suffix);
    return n >= m && strcmp(path + n - m, suffix) == 0;
}

/* -1 with errno: the call is not made. */
static int step(const char *call, const char *path)
{
    int action = 0;
    if (!control || !control->action)
        return 0;
    pthread_mutex_lock(&lock);
    if (control->action && strcmp(call, control->call) == 0 && ends_with(path, control->suffix) &&
        control->n_before-- <= 0) {
        action = control->action;
        control->action = action < 0 ? action : 0;
    }
    pthread_mutex_unlock(&lock);
    if (!action)
        return 0;
    __atomic_add_fetch(&control->n_done, 1, __ATOMIC_SEQ_CST);
    if (action < 0) {
        errno = -action;
        return -1;
    }
    kill(getpid(), action);
    return 0;
}

static int step_of_fd(const char *call, int fd)
{
    char link[40], path[4096];
    if (!control || !control->action)
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length > 0 ? length : 0] = 0;
    return step(call, path);
}

#define REAL(name)                                                                                                          \
    static __typeof__(&name) real;                                                                                          \
    if (!real)                                                                                                              \
    *(void **)&real = dlsym(RTLD_NEXT, #name)

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t offset)
{
    REAL(pwrite);
    return step_of_fd("pwrite", fd) < 0 ? -1 : real(fd, bytes, count, offset);
}

ssize_t write(int fd, const void *bytes, size_t count)
{
    REAL(write);
    return step_of_fd("write", fd) < 0 ? -1 : real(fd, bytes, count);
}

int fsync(int fd)
{
    REAL(fsync);
    return step_of_fd("fsync", fd) < 0 ? -1 : real(fd);
}

int fdatasync(int fd)
{
    REAL(fdatasync);
    return step_of_fd("fdatasync", fd) < 0 ? -1 : real(fd);
}

int ftruncate(int fd, off_t size)
{
    REAL(ftruncate);
    return step_of_fd("ftruncate", fd) < 0 ? -1 : real(fd, size);
}

int fallocate(int fd, int mode, off_t offset, off_t size)
{
    REAL(fallocate);
    return step_of_fd("fallocate", fd) < 0 ? -1 : real(fd, mode, offset, size);
}

ssize_t copy_file_range(int in, off_t *in_at, int out, off_t *out_at, size_t count, unsigned flags)
{
    REAL(copy_file_range);
    return step_of_fd("copy_file_range", out) < 0 ? -1 : real(in, in_at, out, out_at, count, flags);
}

int renameat(int from_fd, const char *from, int to_fd, const char *to)
{
    REAL(renameat);
    return step("rename", to) < 0 ? -1 : real(from_fd, from, to_fd, to);
}

int renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags)
{
    REAL(renameat2);
    return step("rename", to) < 0 ? -1 : real(from_fd, from, to_fd, to, flags);
}

int rename(const char *from, const char *to)
{
    REAL(rename);
    return step("rename", to) < 0 ? -1 : real(from, to);
}

int unlinkat(int fd, const char *path, int flags)
{
    REAL(unlinkat);
    return step("unlink", path) < 0 ? -1 : real(fd, path, flags);
}
