/* Descriptors whose last close takes as long as their owner likes: TCP sockets with SO_LINGER and bytes that no process reads,
 * and such as hear no signal. */
#include "tests/support/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/foreign_fd.h"
#include "tests/support/hanging_close.h"
#include "tests/support/lingering.h"

enum { MALLORY = 1001, ALICE = 1002, MANY = 20, WAIT_MS = 60000 };

static void assert_all_get_closed(uid_t owner)
{
    for (int i = 0; i < WAIT_MS && foreign_fd_open(owner); i++)
        usleep(1000);
    assert_int_equal(foreign_fd_open(owner), 0);
}

/* A pipe's reader is told when the last writer is closed. */
static void assert_pipe_gets_closed_for(uid_t owner)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    foreign_fd_close(ends[1], owner);
    assert_int_equal(poll(&(struct pollfd){.fd = ends[0]}, 1, WAIT_MS), 1);
    close(ends[0]);
}

TEST(a_descriptor_that_will_not_close_stops_neither_its_giver_nor_another_user)
{
    int fds[MANY];
    for (int i = 0; i < MANY; i++)
        foreign_fd_close(fds[i] = hanging_fd(), MALLORY);
    assert_int_equal(foreign_fd_open(MALLORY), MANY);
    assert_pipe_gets_closed_for(ALICE);
    assert_all_get_closed(ALICE);
    assert_int_equal(foreign_fd_open(MALLORY), MANY);
    for (int i = 0; i < MANY; i++)
        release_fd(fds[i]);
    assert_all_get_closed(MALLORY);
}

TEST(errno_is_left_alone)
{
    errno = E2BIG;
    foreign_fd_close(dup(1), ALICE);
    assert_int_equal(errno, E2BIG);
    assert_all_get_closed(ALICE);
}

/* --- sockets ----------------------------------------------------------------------------------------------------------- */

static ssize_t send_with_fd(int socket, int fd, const char *text, size_t bytes)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    struct iovec iov = {(void *)text, bytes};
    struct msghdr message = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    *header = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    return sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Until its other side is reset, the socket in the queue lingers for an hour. */
TEST(a_socket_with_descriptors_in_its_queue_stops_no_other_and_its_client_is_told)
{
    int pair[2], other_side, fd = lingering(&other_side);
    char byte;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
    assert_int_equal(send_with_fd(pair[1], fd, "x", 1), 1);
    close(fd); /* not the last one: that is in the queue */
    foreign_fd_close_socket(pair[0], MALLORY, false);
    assert_int_equal(foreign_fd_open(MALLORY), 1);
    assert_true(recv(pair[1], &byte, 1, 0) == 0 || errno == ECONNRESET); /* by the shutdown, or by the close behind it */
    reset(other_side);
    assert_all_get_closed(MALLORY);
    close(pair[1]);
}

TEST(a_socket_that_refuses_descriptors_gets_none)
{
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
    assert_false(foreign_fd_is_refused(pair[0]));
    if (!foreign_fd_refuse(pair[0])) {
        close(pair[0]);
        close(pair[1]);
        skip(); /* Linux before 6.16 */
    }
    assert_true(foreign_fd_is_refused(pair[0]));
    assert_int_equal(send_with_fd(pair[1], pair[1], "x", 1), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(send(pair[1], "x", 1, 0), 1);
    close(pair[0]);
    close(pair[1]);
}

/* A load into 4096 regions ends with 8192. */
TEST(with_all_threads_hanging_descriptors_wait_and_none_is_left_open)
{
    enum { THREADS = 16, WAITING = 8192 };
    int hanging[THREADS], ends[2];
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    rlim_t before = limit.rlim_cur;
    limit.rlim_cur = WAITING + 1000 < limit.rlim_max ? WAITING + 1000 : limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    for (int i = 0; i < THREADS; i++)
        foreign_fd_close(hanging[i] = hanging_fd(), 2000 + (uid_t)i);
    assert_int_equal(pipe(ends), 0);
    for (int i = 0; i < WAITING; i++) {
        int fd = fcntl(ends[1], F_DUPFD_CLOEXEC, 0);
        assert_true(fd >= 0);
        foreign_fd_close(fd, MALLORY); /* waits for a thread, and comes back at once */
    }
    assert_int_equal(foreign_fd_open(MALLORY), WAITING);
    foreign_fd_close(fcntl(ends[1], F_DUPFD_CLOEXEC, 0), ALICE);
    assert_int_equal(foreign_fd_open(ALICE), 1);
    release_fd(hanging[0]);
    for (int i = 0; i < WAIT_MS && foreign_fd_open(ALICE); i++) /* her turn, before most of the other's */
        usleep(1000);
    assert_int_equal(foreign_fd_open(ALICE), 0);
    for (int i = 1; i < THREADS; i++)
        release_fd(hanging[i]);
    assert_all_get_closed(MALLORY);
    for (int i = 0; i < THREADS; i++)
        assert_all_get_closed(2000 + (uid_t)i);
    assert_int_equal(poll(&(struct pollfd){.fd = ends[0]}, 1, 0), 0);
    close(ends[1]);
    assert_int_equal(poll(&(struct pollfd){.fd = ends[0]}, 1, 0), 1); /* the last one */
    close(ends[0]);
    limit.rlim_cur = before;
    setrlimit(RLIMIT_NOFILE, &limit);
}
