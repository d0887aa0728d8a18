/* Whose a socket path is, who may connect, and what is left behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#undef fail /* ours is in base/error.h */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
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

static void it_accepts_with_the_peers_uid_and_leaves_nothing_behind(void **state)
{
    (void)state;
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

static void mode_and_group_are_as_configured(void **state)
{
    struct stat info;
    struct unix_listener_options given = options();
    char number[24];
    (void)state;
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
    assert_int_equal(access(path, F_OK), -1); /* nobody can connect to what was never set up */
}

static void a_path_that_is_served_is_refused_and_stays_served(void **state)
{
    const struct unix_listener_options second = options();
    (void)state;
    struct unix_listener *listener = open_it();
    assert_refused(&second, "SOCKET_IN_USE", path);
    connect_and_accept();
    unix_listener_close(listener);
    listener = open_it(); /* and is free again afterwards */
    assert_non_null(listener);
    unix_listener_close(listener);
}

static void a_socket_that_another_program_serves_is_refused(void **state)
{
    static const int types[] = {SOCK_STREAM, SOCK_SEQPACKET};
    const struct unix_listener_options ours = options();
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        int fd = bound_socket(types[i]);
        assert_int_equal(listen(fd, 1), 0);
        assert_refused(&ours, "SOCKET_IN_USE", path);
        assert_int_equal(access(path, F_OK), 0);
        close(fd);
        unlink(path);
    }
}

static void a_stale_socket_and_a_stale_lock_are_replaced(void **state)
{
    (void)state;
    close(bound_socket(SOCK_STREAM));
    close(open(lock, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    struct unix_listener *listener = open_it();
    assert_non_null(listener);
    connect_and_accept();
    unix_listener_close(listener);
}

static void a_file_that_is_no_socket_is_left_alone(void **state)
{
    const struct unix_listener_options ours = options();
    char text[8] = "";
    (void)state;
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

static void a_path_may_have_107_bytes_and_needs_its_folder(void **state)
{
    char given[128];
    struct unix_listener_options at = options();
    (void)state;
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

static void a_socket_from_systemd_is_used_and_left_as_it_is(void **state)
{
    struct unix_listener_options given = options();
    (void)state;
    given.listen_fd = bound_socket(SOCK_STREAM);
    assert_refused(&given, "NOT_LISTENING", "not a listening socket");
    assert_int_equal(listen(given.listen_fd, 8), 0); /* a refused one stays the caller's */
    assert_int_equal(chmod(path, 0666), 0);
    struct unix_listener *listener = unix_listener_open(&given, &error);
    assert_non_null(listener);
    connect_and_accept();
    assert_int_equal(access(lock, F_OK), -1);
    unix_listener_close(listener);
    assert_int_equal(mode_of(path), 0666);
    for (int i = 0; i < 10000 && fcntl(given.listen_fd, F_GETFD) >= 0; i++) /* another thread does that */
        usleep(1000);
    assert_int_equal(fcntl(given.listen_fd, F_GETFD), -1);
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

static void send_descriptor(int socket, bool arrives)
{
    assert_int_equal(send_fd(socket, socket), arrives ? 1 : -1);
    if (!arrives)
        assert_int_equal(errno, EPERM);
}

static int connect_only(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

static void skip_unless_descriptors_can_be_refused(void)
{
    int probe = socket(AF_UNIX, SOCK_STREAM, 0);
    bool can = foreign_fd_refuse(probe);
    close(probe);
    if (!can)
        skip(); /* Linux before 6.16 */
}

static void descriptors_are_refused_from_before_the_connection_is_accepted(void **state)
{
    struct unix_listener_options given = options();
    (void)state;
    skip_unless_descriptors_can_be_refused();
    given.refuse_descriptors = true;
    struct unix_listener *listener = unix_listener_open(&given, &error);
    assert_non_null(listener);
    int fd = connect_only();
    send_descriptor(fd, false);
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
static void who_is_turned_away_for_want_of_descriptors_holds_nobody_up(void **state)
{
    struct unix_listener_options given = options();
    struct rlimit before, tight;
    int other_side, fd;
    (void)state;
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

static void who_sent_descriptors_to_systemds_socket_is_not_accepted_but_others_are(void **state)
{
    struct unix_listener_options given = options();
    (void)state;
    skip_unless_descriptors_can_be_refused();
    given.refuse_descriptors = true;
    given.listen_fd = bound_socket(SOCK_STREAM);
    assert_int_equal(listen(given.listen_fd, 8), 0);
    int hostile = connect_only(), honest = connect_only();
    send_descriptor(hostile, true); /* it waits in the queue of a connection that nobody has accepted */
    assert_int_equal(send(honest, "x", 1, 0), 1);
    struct unix_listener *listener = unix_listener_open(&given, &error);
    assert_non_null(listener);
    loop_run(loop);
    assert_int_equal(accepted, 1);
    char end;
    assert_true(recv(hostile, &end, 1, 0) <= 0); /* closed */
    close(hostile);
    close(honest);
    unix_listener_close(listener);
}

int main(void)
{
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, start, stop)
    const struct CMUnitTest tests[] = {
        IN_FOLDER(it_accepts_with_the_peers_uid_and_leaves_nothing_behind),
        IN_FOLDER(mode_and_group_are_as_configured),
        IN_FOLDER(a_path_that_is_served_is_refused_and_stays_served),
        IN_FOLDER(a_socket_that_another_program_serves_is_refused),
        IN_FOLDER(a_stale_socket_and_a_stale_lock_are_replaced),
        IN_FOLDER(a_file_that_is_no_socket_is_left_alone),
        IN_FOLDER(a_path_may_have_107_bytes_and_needs_its_folder),
        IN_FOLDER(a_socket_from_systemd_is_used_and_left_as_it_is),
        IN_FOLDER(descriptors_are_refused_from_before_the_connection_is_accepted),
        IN_FOLDER(who_is_turned_away_for_want_of_descriptors_holds_nobody_up),
        IN_FOLDER(who_sent_descriptors_to_systemds_socket_is_not_accepted_but_others_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
