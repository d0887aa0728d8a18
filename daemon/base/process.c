#include "base/process.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* The beginning of /proc/PID/NAME as text. */
static void read_start(pid_t pid, const char *name, char *out, size_t room)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    int fd = pid > 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    ssize_t got = fd < 0 ? 0 : read(fd, out, room - 1);
    if (fd >= 0)
        close(fd);
    out[got > 0 ? got : 0] = '\0';
}

char *process_command(pid_t pid, char out[PROCESS_COMMAND_CHARS])
{
    read_start(pid, "comm", out, PROCESS_COMMAND_CHARS);
    out[strcspn(out, "\n")] = '\0';
    return out;
}

char *process_cgroup(pid_t pid, char out[PROCESS_CGROUP_CHARS])
{
    char text[8 * PROCESS_CGROUP_CHARS];
    read_start(pid, "cgroup", text, sizeof text);
    const char *line = strncmp(text, "0::", 3) == 0 ? text : strstr(text, "\n0::");
    size_t length = 0;
    if (line) {
        line = strstr(line, "0::") + 3;
        length = strcspn(line, "\n");
        length = length < PROCESS_CGROUP_CHARS ? length : 0; /* half a path names nothing */
    }
    memcpy(out, line ? line : "", length);
    out[length] = '\0';
    return out;
}

/* Field 22 of /proc/PID/stat, in ticks since the host was started; 0 = not known. The second field may hold anything. */
static uint64_t began_ns(pid_t pid)
{
    char text[1024], *end = NULL;
    uint64_t ticks = 0;
    read_start(pid, "stat", text, sizeof text);
    const char *at = strrchr(text, ')');
    for (int field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    if (at)
        ticks = strtoull(at, &end, 10);
    return at && end != at ? ticks * (1000000000 / (uint64_t)sysconf(_SC_CLK_TCK)) : 0;
}

bool process_is_younger(pid_t pid, uint64_t age_ns)
{
    const uint64_t tick_ns = 1000000000 / (uint64_t)sysconf(_SC_CLK_TCK);
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    uint64_t now_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec, began = began_ns(pid);
    return began && began + age_ns > now_ns + tick_ns;
}

void process_reserve_standard_fds(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) >= 0)
            continue;
        int flags = fd == STDIN_FILENO ? O_WRONLY : O_RDONLY; /* reads and writes get EBADF, as if it were closed */
        if (open("/dev/null", flags) != fd)
            abort(); /* the lowest free number is what open() returns */
    }
}

void process_allow_descriptors(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}
