/* sd_notify and socket activation, against sockets of our own. */
#include "tests/support/unit.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "supervisor.h"

TEST(notify_reaches_a_path_socket)
{
    char folder[] = "/tmp/tc-notify-XXXXXX", got[64] = "";
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    assert_non_null(mkdtemp(folder));
    snprintf(address.sun_path, sizeof address.sun_path, "%s/n", folder);
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    setenv("NOTIFY_SOCKET", address.sun_path, 1);
    supervisor_notify("READY=1");
    unsetenv("NOTIFY_SOCKET");
    assert_int_equal(recv(fd, got, sizeof got - 1, MSG_DONTWAIT), 7);
    assert_string_equal(got, "READY=1");
    close(fd);
    unlink(address.sun_path);
    rmdir(folder);
}

TEST(notify_reaches_an_abstract_socket)
{
    char name[40], got[64] = "";
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(name, sizeof name, "@tc-notify-%d", (int)getpid());
    memcpy(address.sun_path, name, strlen(name));
    address.sun_path[0] = '\0';
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name));
    assert_int_equal(bind(fd, (struct sockaddr *)&address, length), 0);
    setenv("NOTIFY_SOCKET", name, 1);
    supervisor_notify("STOPPING=1");
    unsetenv("NOTIFY_SOCKET");
    assert_int_equal(recv(fd, got, sizeof got - 1, MSG_DONTWAIT), 10);
    close(fd);
}

TEST(a_notify_socket_that_makes_no_sense_is_ignored)
{
    setenv("NOTIFY_SOCKET", "relative/path", 1);
    supervisor_notify("READY=1");
    setenv("NOTIFY_SOCKET", "/nowhere/at/all", 1);
    supervisor_notify("READY=1");
    unsetenv("NOTIFY_SOCKET");
    assert_null(getenv("NOTIFY_SOCKET"));
}

/* In a child: puts a stream and a seqpacket listener at descriptors 3 and 4 and asks who is who. */
static int child_with_sockets(int claim_own_pid)
{
    char pid[32];
    int types[] = {SOCK_SEQPACKET, SOCK_STREAM};
    for (int i = 0; i < 2; i++) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        int fd = socket(AF_UNIX, types[i], 0);
        if (bind(fd, (struct sockaddr *)&address, sizeof(sa_family_t)) != 0 || listen(fd, 1) != 0 || dup2(fd, 3 + i) < 0)
            return 10;
    }
    snprintf(pid, sizeof pid, "%d", (int)getpid() + (claim_own_pid ? 0 : 1));
    setenv("LISTEN_PID", pid, 1);
    setenv("LISTEN_FDS", "2", 1);
    struct supervisor_sockets sockets = supervisor_take_sockets();
    if (!claim_own_pid)
        return sockets.rpc_fd == -1 && sockets.handoff_fd == -1 ? 0 : 11;
    if (sockets.rpc_fd != 4 || sockets.handoff_fd != 3)
        return 12;
    if (!(fcntl(3, F_GETFD) & FD_CLOEXEC) || !(fcntl(4, F_GETFL) & O_NONBLOCK))
        return 13;
    return getenv("LISTEN_FDS") ? 14 : 0;
}

/* The sockets are the last of so many descriptors. */
static int child_with_many(int n_fds)
{
    char number[32];
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    for (int i = 0; i < n_fds; i++)
        if (dup2(socket(AF_UNIX, i < n_fds - 1 ? SOCK_DGRAM : SOCK_STREAM, 0), 3 + i) < 0)
            return 10;
    if (bind(2 + n_fds, (struct sockaddr *)&address, sizeof(sa_family_t)) != 0 || listen(2 + n_fds, 1) != 0)
        return 10;
    snprintf(number, sizeof number, "%d", (int)getpid());
    setenv("LISTEN_PID", number, 1);
    snprintf(number, sizeof number, "%d", n_fds);
    setenv("LISTEN_FDS", number, 1);
    struct supervisor_sockets sockets = supervisor_take_sockets();
    return sockets.handoff_fd == -1 && sockets.rpc_fd == (n_fds <= 16 ? 2 + n_fds : -1) ? 0 : 11;
}

static void run_in_a_child(int (*child)(int), int what)
{
    int status = 0;
    pid_t pid = fork();
    if (pid == 0)
        _exit(child(what));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

TEST(passed_sockets_are_told_apart_by_type)
{
    run_in_a_child(child_with_sockets, 1);
}

TEST(sockets_passed_to_another_process_are_left_alone)
{
    run_in_a_child(child_with_sockets, 0);
}

TEST(sixteen_descriptors_are_looked_at_and_seventeen_are_left_alone)
{
    run_in_a_child(child_with_many, 16);
    run_in_a_child(child_with_many, 17);
}
