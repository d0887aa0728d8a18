/* The protocols of sd_notify(3) and sd_listen_fds(3) are a datagram and two environment variables. */
#include "supervisor.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { FIRST_PASSED_FD = 3, MAX_PASSED_FDS = 16 };

void supervisor_notify(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (!path || (path[0] != '/' && path[0] != '@') || strlen(path) >= sizeof address.sun_path)
        return;
    strcpy(address.sun_path, path);
    if (path[0] == '@')
        address.sun_path[0] = '\0';
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
    (void)!sendto(fd, state, strlen(state), MSG_NOSIGNAL | MSG_DONTWAIT, (struct sockaddr *)&address, length);
    close(fd);
}

uint64_t supervisor_watchdog_ns(void)
{
    const char *pid = getenv("WATCHDOG_PID"), *usec = getenv("WATCHDOG_USEC");
    bool is_ours = usec && usec[0] >= '0' && usec[0] <= '9' && (!pid || atol(pid) == (long)getpid());
    uint64_t timeout_us = is_ours ? strtoull(usec, NULL, 10) : 0;
    return timeout_us > UINT64_MAX / 1000 ? 0 : timeout_us * 1000;
}

static int socket_type(int fd)
{
    int type = -1, listening = 0;
    socklen_t length = sizeof type;
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) != 0)
        return -1;
    length = sizeof listening;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &length) != 0 || !listening)
        return -1;
    return type;
}

struct supervisor_sockets supervisor_take_sockets(void)
{
    struct supervisor_sockets sockets = {-1, -1};
    const char *pid = getenv("LISTEN_PID"), *count = getenv("LISTEN_FDS");
    int n_fds = count ? atoi(count) : 0;
    if (!pid || atol(pid) != (long)getpid() || n_fds < 1 || n_fds > MAX_PASSED_FDS)
        return sockets;
    for (int fd = FIRST_PASSED_FD; fd < FIRST_PASSED_FD + n_fds; fd++) {
        fcntl(fd, F_SETFD, FD_CLOEXEC);
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
        int type = socket_type(fd);
        if (type == SOCK_STREAM && sockets.rpc_fd < 0)
            sockets.rpc_fd = fd;
        else if (type == SOCK_SEQPACKET && sockets.handoff_fd < 0)
            sockets.handoff_fd = fd;
    }
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDS");
    unsetenv("LISTEN_FDNAMES");
    return sockets;
}
