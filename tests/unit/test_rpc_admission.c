/* Who connects to the gRPC server: limits per user, garbage, silence, descriptors that run out. */
#include "tests/support/unit.h"

#undef fail /* ours is in base/error.h */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memory.h"
#include "rpc/rpc_internal.h"
#include "tests/support/rpc_scene.h"

static bool disconnected(void *data)
{
    return rpc_scene.disconnects == *(int *)data;
}

TEST_IN(calls_know_their_connection_and_its_end_is_reported, rpc_scene_start, rpc_scene_stop)
{
    int one = 1;
    grpc_channel *other = raw_channel(rpc_scene.fixture.socket, NULL, 0);
    uint64_t mine = rpc_scene_connection(rpc_scene.channel), theirs = rpc_scene_connection(other);
    assert_true(mine && theirs && mine != theirs);
    assert_int_equal(rpc_scene_connection(rpc_scene.channel), mine);
    assert_int_equal(rpc_scene_connection(other), theirs);
    grpc_channel_destroy(other);
    rpc_fixture_await(disconnected, &one, "the end of a connection");
    assert_int_equal(rpc_scene.last_disconnect, theirs);
    assert_int_equal(rpc_scene_connection(rpc_scene.channel), mine);
}

TEST_IN(a_lost_connection_cancels_its_calls, rpc_scene_start, rpc_scene_stop)
{
    struct raw_bytes message = rpc_scene_load_message("hang", NULL);
    fflush(NULL);
    grpc_channel *other = raw_channel(rpc_scene.fixture.socket, NULL, 0);
    struct raw_call *call = raw_start(other, SERVICE "Materialize", message.data, message.count, 0);
    rpc_scene_receive(call);
    assert_true(rpc_scene.held != NULL);
    raw_cancel(call);
    raw_finish(call, NULL, NULL);
    grpc_channel_destroy(other);
    rpc_fixture_await(rpc_scene_has_one_cancel, NULL, "on_cancel runs");
    free(message.data);
}

static bool is_closed(int fd)
{
    char byte;
    ssize_t n = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno != EAGAIN);
}

struct crowd {
    int fds[40];
    size_t closed;
};

static bool surplus_is_closed(void *data)
{
    struct crowd *crowd = data;
    size_t closed = 0;
    for (size_t i = 0; i < 40; i++)
        closed += is_closed(crowd->fds[i]);
    return closed == crowd->closed;
}

static void no_disconnect(struct rpc_fixture *of, void *count)
{
    (void)of;
    *(uint64_t *)count = rpc_server_connections(rpc_scene.fixture.server);
}

static bool has_connections(void *data)
{
    uint64_t count;
    rpc_fixture_on_loop(&rpc_scene.fixture, no_disconnect, &count);
    return count == *(uint64_t *)data;
}

static bool nobody_is_connected(void *data)
{
    uint64_t count;
    (void)data;
    rpc_fixture_on_loop(&rpc_scene.fixture, no_disconnect, &count);
    return count == 0;
}

TEST_IN(one_uid_has_no_more_connections_than_allowed, rpc_scene_start, rpc_scene_stop)
{
    struct crowd crowd = {.closed = 32};
    quota_set_limits(rpc_scene.fixture.quota, QUOTA_CONNECTIONS, 1000, 8);
    for (size_t i = 0; i < 40; i++)
        crowd.fds[i] = rpc_scene_connect(rpc_scene.fixture.socket);
    rpc_fixture_await(surplus_is_closed, &crowd, "exactly the surplus is closed");
    assert_int_equal(raw_unary(rpc_scene.channel, SERVICE "Explain", "", 0, NULL, NULL), ERROR_RESOURCE_EXHAUSTED);
    for (size_t i = 0; i < 40; i++)
        close(crowd.fds[i]);
    rpc_fixture_await(nobody_is_connected, NULL, "hang-ups are counted");
    grpc_channel *later = raw_channel(rpc_scene.fixture.socket, NULL, 0);
    assert_true(rpc_scene_connection(later) > 0);
    grpc_channel_destroy(later);
}

static int ask(grpc_channel *channel, const char *path, char **text)
{
    struct raw_bytes message = rpc_scene_resolve_message("x");
    bool is_resolve = strstr(path, "Resolve") != NULL;
    int code = raw_unary(channel, path, message.data, is_resolve ? message.count : 0, NULL, text);
    free(message.data);
    return code;
}

/* The user of this process is the server's own. */
TEST_IN(a_surplus_connection_is_told_so_and_serves_what_is_essential, rpc_scene_start, rpc_scene_stop)
{
    int fds[4];
    char *text;
    uint64_t four = 4;
    quota_set_limits(rpc_scene.fixture.quota, QUOTA_CONNECTIONS, 1000, four);
    for (uint64_t i = 0; i < four; i++)
        fds[i] = rpc_scene_connect(rpc_scene.fixture.socket);
    rpc_fixture_await(has_connections, &four, "four connections");
    grpc_channel *channel = raw_channel(rpc_scene.fixture.socket, NULL, 0);
    assert_int_equal(ask(channel, SERVICE "Resolve", &text), ERROR_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(text, "has 4 connections and asks for 1 more"));
    free(text);
    assert_int_equal(ask(channel, SERVICE "Status", NULL), ERROR_OK);
    assert_int_equal(ask(channel, SERVICE "Release", NULL), ERROR_OK);
    assert_int_equal(ask(channel, "/grpc.health.v1.Health/Check", NULL), ERROR_OK);
    close(fds[0]);
    rpc_fixture_await(has_connections, &four, "one connection less, the surplus one counted");
    assert_int_equal(ask(channel, SERVICE "Resolve", NULL), ERROR_OK); /* the same connection, which has a place now */
    for (uint64_t i = 1; i < four; i++)
        close(fds[i]);
    grpc_channel_destroy(channel);
    rpc_fixture_await(nobody_is_connected, NULL, "hang-ups are counted");
    assert_int_equal(quota_taken(rpc_scene.fixture.quota, QUOTA_CONNECTIONS), 0);
    assert_int_equal(quota_taken(rpc_scene.fixture.quota, QUOTA_DESCRIPTORS), 0);
}

static void turn_back(struct rpc_fixture *of, void *seconds)
{
    struct rpc_connection *connection;
    LIST_FOREACH (connection, &of->server->connections, in_server)
        connection->made_ns -= *(uint64_t *)seconds * UINT64_C(1000000000);
}

TEST_IN(a_surplus_connection_that_stays_one_is_ended, rpc_scene_start, rpc_scene_stop)
{
    uint64_t one = 1, seconds = 6;
    int ended = 1;
    quota_set_limits(rpc_scene.fixture.quota, QUOTA_CONNECTIONS, 1000, one);
    int first = rpc_scene_connect(rpc_scene.fixture.socket);
    rpc_fixture_await(has_connections, &one, "one connection");
    grpc_channel *channel = raw_channel(rpc_scene.fixture.socket, NULL, 0);
    assert_int_equal(ask(channel, SERVICE "Status", NULL), ERROR_OK);
    rpc_fixture_on_loop(&rpc_scene.fixture, turn_back, &seconds);
    rpc_fixture_await(disconnected, &ended, "the surplus connection is ended");
    assert_false(is_closed(first)); /* which is as old */
    close(first);
    grpc_channel_destroy(channel);
}

static bool holds_calls(void *data)
{
    return quota_taken(rpc_scene.fixture.quota, QUOTA_CALLS) == *(uint64_t *)data;
}

TEST_IN(a_user_with_too_many_calls_is_refused_but_what_is_essential_is_served, rpc_scene_start, rpc_scene_stop)
{
    struct raw_bytes message = rpc_scene_load_message("hang", NULL);
    struct raw_call *calls[3];
    uint64_t none = 0;
    char *text;
    fflush(NULL);
    quota_set_limits(rpc_scene.fixture.quota, QUOTA_CALLS, 100, 3);
    for (int i = 0; i < 3; i++) {
        calls[i] = raw_start(rpc_scene.channel, SERVICE "Materialize", message.data, message.count, 0);
        rpc_scene_receive(calls[i]);
    }
    int handled = rpc_scene.handled;
    assert_int_equal(raw_unary(rpc_scene.channel, SERVICE "Prewarm", message.data, message.count, NULL, &text),
                     ERROR_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(text, "has 3 calls"));
    free(text);
    assert_int_equal(rpc_scene.handled, handled);
    assert_int_equal(raw_unary(rpc_scene.channel, SERVICE "Status", "", 0, NULL, NULL), ERROR_OK);
    assert_int_equal(raw_unary(rpc_scene.channel, "/grpc.health.v1.Health/Check", "", 0, NULL, NULL), ERROR_OK);
    assert_int_equal(
        raw_unary(rpc_scene.channel, "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", "", 0, NULL, NULL),
        ERROR_RESOURCE_EXHAUSTED); /* a stream from both sides, too */
    for (int i = 0; i < 3; i++) {
        raw_cancel(calls[i]);
        raw_finish(calls[i], NULL, NULL);
    }
    rpc_fixture_await(holds_calls, &none, "calls are given back");
    assert_int_equal(ask(rpc_scene.channel, SERVICE "Resolve", NULL), ERROR_OK);
    free(message.data);
}

static void count_users(struct rpc_fixture *of, void *count)
{
    uint64_t n = 0;
    for (const struct rpc_user *user = of->server->admission.users; user; user = user->next)
        n++;
    *(uint64_t *)count = n;
}

static bool has_no_users(void *data)
{
    uint64_t count;
    (void)data;
    rpc_fixture_on_loop(&rpc_scene.fixture, count_users, &count);
    return count == 0;
}

TEST_IN(a_user_without_connections_is_forgotten_and_may_come_back, rpc_scene_start, rpc_scene_stop)
{
    for (int i = 0; i < 3; i++) {
        grpc_channel *channel = raw_channel(rpc_scene.fixture.socket, NULL, 0);
        assert_true(rpc_scene_connection(channel) > 0);
        grpc_channel_destroy(channel);
        if (i == 0) {
            grpc_channel_destroy(rpc_scene.channel);
            rpc_scene.channel = NULL;
        }
        rpc_fixture_await(has_no_users, NULL, "the user is forgotten");
    }
    rpc_scene.channel = raw_channel(rpc_scene.fixture.socket, NULL, 0);
    rpc_scene_assert_serves();
}

TEST_IN(garbage_and_silence_harm_nobody, rpc_scene_start, rpc_scene_stop)
{
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff";
    char zeros[70000] = {0};
    int silent = rpc_scene_connect(rpc_scene.fixture.socket), noisy = rpc_scene_connect(rpc_scene.fixture.socket),
        torn = rpc_scene_connect(rpc_scene.fixture.socket);
    assert_true(send(noisy, zeros, sizeof zeros, MSG_NOSIGNAL) > 0);
    assert_true(send(torn, preface, sizeof preface, MSG_NOSIGNAL) > 0);
    rpc_scene_assert_serves();
    close(silent);
    close(noisy);
    close(torn);
    rpc_scene_assert_serves();
}

TEST_IN(a_client_that_has_a_connection_sees_settings_before_it_speaks, rpc_scene_start, rpc_scene_stop)
{
    enum { FRAME_HEAD_BYTES = 9, TYPE_AT = 3, SETTINGS = 4 };
    unsigned char head[FRAME_HEAD_BYTES];
    int silent = rpc_scene_connect(rpc_scene.fixture.socket);
    assert_int_equal(recv(silent, head, sizeof head, MSG_WAITALL), sizeof head);
    assert_int_equal(head[TYPE_AT], SETTINGS);
    close(silent);
}

static size_t open_descriptors(void)
{
    size_t n = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (readdir(folder))
        n++;
    closedir(folder);
    return n;
}

static bool descriptors_are_back(void *data)
{
    return open_descriptors() <= *(size_t *)data;
}

TEST_IN(connections_that_come_and_go_leave_no_descriptor_behind, rpc_scene_start, rpc_scene_stop)
{
    rpc_scene_assert_serves();
    size_t before = open_descriptors();
    for (int i = 0; i < 200; i++) {
        int fd = rpc_scene_connect(rpc_scene.fixture.socket);
        assert_true(fd >= 0);
        close(fd);
    }
    rpc_fixture_await(descriptors_are_back, &before, "descriptors are closed");
    rpc_scene_assert_serves();
}

/* Connects from a process of its own, whose descriptors do not count. */
static pid_t crowd_of(int n, const char *path, int ready[2])
{
    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    pid_t child = fork();
    if (child)
        return child;
    char done = 1;
    for (int i = 0; i < n; i++)
        rpc_scene_connect(path);
    if (write(ready[1], &done, 1) != 1)
        _exit(1);
    pause();
    _exit(0);
}

TEST_IN(running_out_of_descriptors_is_survived, rpc_scene_start, rpc_scene_stop)
{
    struct rlimit old, tight;
    int ready[2];
    char done;
    rpc_scene_assert_serves();
    getrlimit(RLIMIT_NOFILE, &old);
    tight = old;
    tight.rlim_cur = open_descriptors() + 24;
    setrlimit(RLIMIT_NOFILE, &tight);
    pid_t child = crowd_of(60, rpc_scene.fixture.socket, ready);
    assert_int_equal(read(ready[0], &done, 1), 1);
    rpc_scene_assert_serves(); /* on the connection that exists */
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    close(ready[0]);
    close(ready[1]);
    setrlimit(RLIMIT_NOFILE, &old);
    rpc_scene_assert_serves();
    grpc_channel *fresh = raw_channel(rpc_scene.fixture.socket, NULL, 0);
    uint64_t id = 0;
    for (int i = 0; i < 100 && !id; i++) { /* the accept loop may be resting */
        Tensorcast__Daemon__V1__ResolveResponse *response;
        if (rpc_scene_resolve(fresh, "x", &response) == 0) {
            id = response->total_bytes;
            tensorcast__daemon__v1__resolve_response__free_unpacked(response, NULL);
        }
    }
    assert_true(id > 0);
    grpc_channel_destroy(fresh);
}
