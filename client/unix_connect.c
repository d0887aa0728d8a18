/* A full backlog is EAGAIN on a Unix socket, and poll() does not tell when it has room. */
#include "unix_connect.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { AGAIN_NS = 1000000 };

int unix_connect(const char *path, int type, const struct wait *wait)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct error over;
    if (strlen(path) >= sizeof address.sun_path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(address.sun_path, path, strlen(path));
    int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    while (connect(fd, (const struct sockaddr *)&address, sizeof address)) {
        int failed = errno;
        if ((failed == EAGAIN || failed == EINTR) && wait_check(wait, &over) == 0) {
            nanosleep(&(struct timespec){.tv_nsec = AGAIN_NS}, NULL);
            continue;
        }
        close(fd);
        errno = failed == EINTR ? EAGAIN : failed;
        return -1;
    }
    return fd;
}
