#include "base/process.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
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

void process_allow_descriptors(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}
