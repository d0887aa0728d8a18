/* Whose a socket path is, who may connect, and what is left behind. */
#include "tests/support/unit.h"

#undef fail /* ours is in base/error.h */

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/foreign_fd.h"
#include "base/unix_listener.h"
#include "tests/support/lingering.h"

static char folder[64], path[96], lock[112];
static struct loop *loop;
static struct error error;
static int accepted;
static uid_t accepted_uid;

static void on_accept(void *context, int fd, const struct ucred *peer)
{
    assert_ptr_equal(context, &accepted);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
    accepted_uid = peer->uid;
    accepted++;
    close(fd);
    loop_stop(loop);
}

static int start(void **state)
{
    (void)state;
    accepted = 0;
    snprintf(folder, sizeof folder, "/tmp/listener-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/a.sock", folder);
    snprintf(lock, sizeof lock, "%s.lock", path);
    loop = loop_create();
    return 0;
}

static int stop(void **state)
{
    (void)state;
    loop_destroy(loop);
    unlink(path);
    unlink(lock);
    return rmdir(folder); /* nothing else was left in it */
}

static struct unix_listener_options options(void)
{
    return (struct unix_listener_options){.loop = loop,
                                          .key = "server.socket_path",
                                          .type = SOCK_STREAM,
                                          .path = path,
                                          .mode = 0600,
                                          .group = "",
                                          .listen_fd = -1,
                                          .on_accept = on_accept,
                                          .context = &accepted};
}

static struct unix_listener *open_it(void)
{
    const struct unix_listener_options plain = options();
    return unix_listener_open(&plain, &error);
}

static void assert_refused(const struct unix_listener_options *refused, const char *reason, const char *named)
{
    assert_null(unix_listener_open(refused, &error));
    assert_string_equal(error.reason, reason);
    assert_non_null(strstr(error.message, named));
}

static int bound_socket(int type)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

static void connect_and_accept(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int before = accepted, fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    loop_run(loop);
    assert_int_equal(accepted, before + 1);
    close(fd);
}

static mode_t mode_of(const char *file)
{
    struct stat info;
    assert_int_equal(stat(file, &info), 0);
    return info.st_mode & 07777;
}

TEST_IN(it_accepts_with_the_peers_uid_and_leaves_nothing_behind, start, stop)
{
    struct unix_listener *listener = open_it();
    assert_non_null(listener);
    assert_int_equal(mode_of(path), 0600);
    connect_and_accept();
    connect_and_accept();
    assert_int_equal(accepted_uid, getuid());
    unix_listener_close(listener);
    unix_listener_close(NULL);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(access(lock, F_OK), -1);
}

TEST_IN(mode_and_group_are_as_configured, start, stop)
{
    struct stat info;
    struct unix_listener_options given = options();
    char number[24];
    snprintf(number, sizeof number, "%u", (unsigned)getgid());
    given.mode = 0660;
    given.group = number;
    struct unix_listener *listener = unix_listener_open(&given, &error);
    assert_non_null(listener);
    assert_int_equal(mode_of(path), 0660);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_gid, getgid());
    unix_listener_close(listener);
    given.group = "no-such-group";
    assert_refused(&given, "UNKNOWN_GROUP", "no-such-group");
    assert_int_equal(access(path, F_OK), -1); /* no client can connect to what was never set up */
}

TEST_IN(a_path_that_is_served_is_refused_and_stays_served, start, stop)
{
    const struct unix_listener_options second = options();
    struct unix_listener *listener = open_it();
    assert_refused(&second, "SOCKET_IN_USE", path);
    connect_and_accept();
    unix_listener_close(listener);
    listener = open_it(); /* and is free again afterwards */
    assert_non_null(listener);
    unix_listener_close(listener);
}

TEST_IN(a_socket_that_another_program_serves_is_refused, start, stop)
{
    static const int types[] = {SOCK_STREAM, SOCK_SEQPACKET};
    const struct unix_listener_options ours = options();
    for (size_t i = 0; i < 2; i++) {
        int fd = bound_socket(types[i]);
        assert_int_equal(listen(fd, 1), 0);
        assert_refused(&ours, "SOCKET_IN_USE", path);
        assert_int_equal(access(path, F_OK), 0);
        close(fd);
        unlink(path);
    }
}

TEST_IN(a_stale_socket_and_a_stale_lock_are_replaced, start, stop)
{
    close(bound_socket(SOCK_STREAM));
    close(open(lock, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    struct unix_listener *listener = open_it();
    assert_non_null(listener);
    connect_and_accept();
    unix_listener_close(listener);
}

TEST_IN(a_file_that_is_no_socket_is_left_alone, start, stop)
{
    const struct unix_listener_options ours = options();
    char text[8] = "";
    int fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, "theirs", 6), 6);
    assert_refused(&ours, "NOT_A_SOCKET", path);
    assert_int_equal(pread(fd, text, 6, 0), 6);
    assert_string_equal(text, "theirs");
    close(fd);
    unlink(path);
    assert_int_equal(symlink("/nowhere", path), 0);
    assert_refused(&ours, "NOT_A_SOCKET", path);
}

TEST_IN(a_path_may_have_107_bytes_and_needs_its_folder, start, stop)
{
    char given[128];
    struct unix_listener_options at = options();
    at.path = given;
    memset(given, 0, sizeof given);
    snprintf(given, sizeof given, "%s/", folder);
    memset(given + strlen(given), 'x', 107 - strlen(given));
    struct unix_listener *listener = unix_listener_open(&at, &error);
    assert_non_null(listener);
    unix_listener_close(listener);
    given[107] = 'x';
    assert_refused(&at, "PATH_TOO_LONG", given);
    snprintf(given, sizeof given, "%s/missing/a.sock", folder);
    assert_refused(&at, "NO_SUCH_FILE", given);
}

TEST_IN(a_socket_from_systemd_is_used_and_left_as_it_is, start, stop)
{
    struct unix_listener_options given = options();
    given.listen_fd = bound_socket(SOCK_STREAM);
    assert_refused(&given, "NOT_LISTENING", "not a listening socket");
    assert_int_equal(listen(given.listen_fd, 8), 0); /* a refused one stays the caller's */
    assert_int_equal(chmod(path, 0666), 0);
    struct unix_listener *listener = unix_listener_open(&given, &error);
    assert_non_null(listener);
    assert_int_equal(fcntl(given.listen_fd, F_SETFL, 0), 0); /* as systemd does when it starts another unit with it */
    connect_and_accept();
    assert_int_equal(access(lock, F_OK), -1);
    unix_listener_close(listener);
    assert_int_equal(mode_of(path), 0666);
    for (int i = 0; i < 10000 && fcntl(given.listen_fd, F_GETFD) >= 0; i++) /* another thread does that */
        usleep(1000);
    assert_int_equal(fcntl(given.listen_fd, F_GETFD), -1);
}

static void on_turn(void *context)
{
    assert_ptr_equal(context, &accepted);
    loop_stop(loop);
}

/* A process that accepts from a socket until it is told to end by the other end of *pipe. */
static pid_t another_that_accepts(int fd, int *pipe_end)
{
    int told[2], ready[2];
    char byte;
    assert_true(pipe(told) == 0 && pipe(ready) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        close(told[1]);
        byte = unix_listener_take_turn(fd) ? 'y' : 'n';
        (void)!write(ready[1], &byte, 1);
        (void)!read(told[0], &byte, 1);
        _exit(0);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(byte, 'y');
    close(told[0]), close(ready[0]), close(ready[1]);
    *pipe_end = told[1];
    return pid;
}

TEST_IN(of_several_processes_with_a_socket_one_accepts_and_the_next_one_when_it_has_ended, start, stop)
{
    struct unix_listener_options given = options();
    int pipe_end;
    given.on_turn = on_turn;
    given.listen_fd = bound_socket(SOCK_STREAM);
    assert_int_equal(listen(given.listen_fd, 8), 0);
    int ours = dup(given.listen_fd);
    pid_t other = another_that_accepts(given.listen_fd, &pipe_end);
    struct unix_listener *listener = unix_listener_open(&given, &error);
    assert_non_null(listener);
    assert_true(unix_listener_waits(listener));
    assert_false(unix_listener_take_turn(given.listen_fd));
    close(pipe_end);
    loop_run(loop); /* until it is its turn */
    assert_false(unix_listener_waits(listener));
    connect_and_accept();
    assert_int_equal(waitpid(other, NULL, 0), other);
    unix_listener_close(listener);
    other = another_that_accepts(ours, &pipe_end); /* a closed listener has given its turn up */
    close(pipe_end);
    assert_int_equal(waitpid(other, NULL, 0), other);
    close(ours);
}

static ssize_t send_fd(int socket, int fd)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    struct iovec iov = {(void *)"x", 1};
    struct msghdr message = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    *header = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    return sendmsg(socket, &message, MSG_NOSIGNAL);
}

static int connect_only(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

TEST_IN(descriptors_are_refused_from_before_the_connection_is_accepted, start, stop)
{
    struct unix_listener_options given = options();
    given.refuse_descriptors = true;
    struct unix_listener *listener = unix_listener_open(&given, &error);
    assert_non_null(listener);
    int fd = connect_only();
    if (!foreign_fd_refuse(fd)) { /* which is about what the client gets */
        close(fd);
        unix_listener_close(listener);
        skip(); /* Linux before 6.16 */
    }
    assert_int_equal(send_fd(fd, fd), -1);
    assert_int_equal(errno, EPERM);
    loop_run(loop);
    assert_int_equal(accepted, 1);
    close(fd);
    unix_listener_close(listener);
}

static void on_shed(void *context, int errno_value)
{
    (void)context;
    assert_int_equal(errno_value, EMFILE);
    loop_stop(loop);
}

/* What its client has sent along is closed with it, and may take an hour for that. */
TEST_IN(who_is_turned_away_for_want_of_descriptors_holds_nobody_up, start, stop)
{
    struct unix_listener_options given = options();
    struct rlimit before, tight;
    int other_side, fd;
    given.on_shed = on_shed;
    struct unix_listener *listener = unix_listener_open(&given, &error);
    assert_non_null(listener);
    int client = connect_only(), sent = lingering(&other_side);
    assert_int_equal(send_fd(client, sent), 1);
    close(sent); /* which is not the last one: that is in the queue */
    getrlimit(RLIMIT_NOFILE, &before);
    tight = before;
    fd = fcntl(client, F_DUPFD_CLOEXEC, 0);
    tight.rlim_cur = (rlim_t)fd;
    close(fd);
    setrlimit(RLIMIT_NOFILE, &tight);
    loop_run(loop);
    setrlimit(RLIMIT_NOFILE, &before);
    assert_int_equal(accepted, 0);
    unix_listener_close(listener);
    reset(other_side);
    close(client);
}
