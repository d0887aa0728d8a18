/* Descriptors whose last close takes as long as their owner likes: TCP sockets with SO_LINGER and bytes that nobody reads, and
 * such as hear no signal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/foreign_fd.h"
#include "tests/support/hanging_close.h"
#include "tests/support/lingering.h"

enum { MALLORY = 1001, ALICE = 1002, MANY = 20, WAIT_MS = 10000 };

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

static void a_descriptor_that_will_not_close_does_not_stop_who_gives_it_away(void **state)
{
    int fd = hanging_fd();
    (void)state;
    foreign_fd_close(fd, MALLORY);
    assert_int_equal(foreign_fd_open(MALLORY), 1);
    assert_pipe_gets_closed_for(MALLORY); /* others of the same user do not wait for it */
    release_fd(fd);
    assert_all_get_closed(MALLORY);
}

static void one_users_slow_descriptors_leave_threads_for_others(void **state)
{
    int fds[MANY];
    (void)state;
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

static void four_users_slow_descriptors_leave_a_thread_to_a_fifth(void **state)
{
    enum { HANGING = 16 };
    int fds[HANGING];
    (void)state;
    for (int i = 0; i < HANGING; i++)
        foreign_fd_close(fds[i] = hanging_fd(), 2000 + (uid_t)i / 4);
    assert_pipe_gets_closed_for(ALICE);
    assert_all_get_closed(ALICE);
    for (int i = 0; i < HANGING; i++)
        release_fd(fds[i]);
    for (int i = 0; i < HANGING; i += 4)
        assert_all_get_closed(2000 + (uid_t)i / 4);
}

/* Each would last an hour. That many at a second each would last minutes: the patience with their owner ends. */
static void sockets_that_linger_are_closed_however_many_one_user_brings(void **state)
{
    enum { LINGERING = 400 };
    int other_sides[LINGERING];
    (void)state;
    for (int i = 0; i < LINGERING; i++)
        foreign_fd_close(lingering(&other_sides[i]), MALLORY);
    assert_all_get_closed(MALLORY);
    for (int i = 0; i < LINGERING; i++)
        close(other_sides[i]);
}

static void errno_is_left_alone(void **state)
{
    (void)state;
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

static void descriptors_in_a_queue_are_seen_and_stay_there(void **state)
{
    static const int types[] = {SOCK_STREAM, SOCK_SEQPACKET};
    static char bytes[100 << 10];
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        int pair[2];
        assert_int_equal(socketpair(AF_UNIX, types[i], 0, pair), 0);
        assert_false(foreign_fd_is_queued(pair[0]));
        assert_int_equal(send(pair[1], bytes, sizeof bytes, 0), sizeof bytes);
        assert_int_equal(send(pair[1], "more", 4, 0), 4);
        assert_false(foreign_fd_is_queued(pair[0]));
        assert_int_equal(send_with_fd(pair[1], pair[1], "x", 1), 1); /* behind the others */
        assert_true(foreign_fd_is_queued(pair[0]));
        assert_true(foreign_fd_is_queued(pair[0]));
        assert_int_equal(recv(pair[0], bytes, sizeof bytes, MSG_WAITALL), sizeof bytes); /* and nothing was taken out */
        close(pair[0]);
        close(pair[1]);
    }
}

static void what_lingers_in_a_sockets_queue_keeps_the_socket_open_for_a_moment_only(void **state)
{
    enum { QUEUED = 50 };
    int pair[2], other_sides[QUEUED];
    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
    for (int i = 0; i < QUEUED; i++) {
        int fd = lingering(&other_sides[i]);
        assert_int_equal(send_with_fd(pair[1], fd, "x", 1), 1);
        close(fd); /* not the last one: that is in the queue */
    }
    foreign_fd_close_socket(pair[0], MALLORY, false);
    assert_all_get_closed(MALLORY);
    close(pair[1]);
    for (int i = 0; i < QUEUED; i++)
        close(other_sides[i]);
}

/* Or who sends many needs none in flight to have the socket wait behind others that hang. */
static void a_socket_full_of_small_messages_has_no_descriptors(void **state)
{
    int pair[2];
    size_t n = 0;
    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
    while (send(pair[1], "x", 1, MSG_DONTWAIT) == 1)
        n++;
    assert_true(n > 64);
    assert_false(foreign_fd_is_queued(pair[0]));
    close(pair[0]);
    close(pair[1]);
}

static void a_socket_that_refuses_descriptors_gets_none(void **state)
{
    int pair[2];
    (void)state;
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

/* More than the 4096 places that there once were for all users: a load into 4096 regions ends with 8192. */
static void with_all_threads_hanging_descriptors_wait_and_none_is_left_open(void **state)
{
    enum { THREADS = 64, WAITING = 8192 };
    int hanging[THREADS], ends[2];
    struct rlimit limit;
    (void)state;
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
        usleep(100);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_descriptor_that_will_not_close_does_not_stop_who_gives_it_away),
        cmocka_unit_test(one_users_slow_descriptors_leave_threads_for_others),
        cmocka_unit_test(four_users_slow_descriptors_leave_a_thread_to_a_fifth),
        cmocka_unit_test(sockets_that_linger_are_closed_however_many_one_user_brings),
        cmocka_unit_test(what_lingers_in_a_sockets_queue_keeps_the_socket_open_for_a_moment_only),
        cmocka_unit_test(with_all_threads_hanging_descriptors_wait_and_none_is_left_open),
        cmocka_unit_test(errno_is_left_alone),
        cmocka_unit_test(descriptors_in_a_queue_are_seen_and_stay_there),
        cmocka_unit_test(a_socket_full_of_small_messages_has_no_descriptors),
        cmocka_unit_test(a_socket_that_refuses_descriptors_gets_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
