/* How the gRPC server ends, and that it has no thread that could take the signal that says so. */
#include "tests/support/unit.h"

#undef fail /* ours is in base/error.h */

#include <dirent.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/support/http2_client.h"

static void count_connections(struct rpc_fixture *of, void *count)
{
    *(uint64_t *)count = rpc_server_connections(of->server);
}

static bool has_connections(void *data)
{
    uint64_t count;
    rpc_fixture_on_loop(&rpc_scene.fixture, count_connections, &count);
    return count == *(uint64_t *)data;
}

static void finish_held(struct rpc_fixture *of, void *data)
{
    (void)of, (void)data;
    rpc_call_end(rpc_scene.held);
    rpc_scene.held = NULL;
}

static size_t count_threads(void)
{
    size_t n = 0;
    DIR *tasks = opendir("/proc/self/task");
    while (readdir(tasks))
        n++;
    closedir(tasks);
    return n;
}

/* First, before a client has started gRPC. So none of them takes a signal that is meant for the loop. */
TEST(the_server_has_no_threads_of_its_own)
{
    struct error error;
    uint64_t one = 1;
    rpc_scene_prepare(); /* and no client in this process, whose threads would be there, too */
    size_t before = count_threads();
    assert_int_equal(rpc_fixture_start(&rpc_scene.fixture, &error), 0);
    int peer = rpc_scene_connect(rpc_scene.fixture.socket);
    rpc_fixture_await(has_connections, &one, "the connection");
    assert_int_equal(count_threads(), before + 1); /* the loop's */
    close(peer);
    rpc_fixture_stop(&rpc_scene.fixture);
}

TEST(a_drain_lets_running_calls_finish_and_takes_no_new_ones)
{
    struct raw_bytes bytes;
    int drained;
    rpc_scene_start(NULL);
    struct raw_call *call = rpc_scene_start_load("hang", 0);
    rpc_scene_receive(call);
    int silent = rpc_scene_connect(rpc_scene.fixture.socket);
    rpc_fixture_drain(&rpc_scene.fixture, 600000);
    assert_int_equal(raw_unary(rpc_scene.channel, SERVICE "Resolve", "", 0, NULL, NULL), ERROR_UNAVAILABLE);
    sem_getvalue(&rpc_scene.fixture.drained, &drained);
    assert_int_equal(drained, 0);
    rpc_fixture_on_loop(&rpc_scene.fixture, finish_held, NULL);
    assert_false(raw_receive(call, &bytes));
    assert_int_equal(raw_finish(call, NULL, NULL), 0);
    rpc_fixture_wait_drained(&rpc_scene.fixture); /* long before the grace, although a silent connection is open */
    rpc_fixture_finish(&rpc_scene.fixture);
    close(silent);
    grpc_channel_destroy(rpc_scene.channel);
    grpc_shutdown_blocking();
}

static int check_health(grpc_channel *channel)
{
    struct raw_bytes reply = {0};
    int code = raw_unary(channel, "/grpc.health.v1.Health/Check", "", 0, &reply, NULL);
    int status = code ? -code : ((const char *)reply.data)[1];
    free(reply.data);
    return status;
}

TEST(a_drain_answers_health_and_status_also_to_who_comes_then)
{
    rpc_scene_start(NULL);
    struct raw_call *call = rpc_scene_start_load("hang", 0);
    rpc_scene_receive(call);
    assert_int_equal(check_health(rpc_scene.channel), 1);
    rpc_fixture_drain(&rpc_scene.fixture, 600000);
    grpc_channel *newcomer = raw_channel(rpc_scene.fixture.socket, NULL, 0);
    assert_int_equal(check_health(newcomer), 2);
    assert_int_equal(raw_unary(newcomer, SERVICE "Status", "", 0, NULL, NULL), 0);
    struct raw_call *half = raw_open(newcomer, SERVICE "Status", 0);
    rpc_fixture_on_loop(&rpc_scene.fixture, finish_held, NULL);
    rpc_fixture_wait_drained(&rpc_scene.fixture); /* which half a call that came late does not hold up */
    assert_int_equal(access(rpc_scene.fixture.socket, F_OK), -1);
    raw_finish(half, NULL, NULL);
    raw_finish(call, NULL, NULL);
    rpc_fixture_finish(&rpc_scene.fixture);
    grpc_channel_destroy(newcomer);
    grpc_channel_destroy(rpc_scene.channel);
    grpc_shutdown_blocking();
}

TEST(the_grace_ends_calls_that_do_not)
{
    rpc_scene_start(NULL);
    struct raw_call *call = rpc_scene_start_load("hang", 0);
    rpc_scene_receive(call);
    rpc_fixture_drain(&rpc_scene.fixture, 1);
    assert_int_equal(raw_finish(call, NULL, NULL), ERROR_UNAVAILABLE);
    rpc_fixture_wait_drained(&rpc_scene.fixture);
    assert_int_equal(rpc_scene.cancels, 1);
    rpc_fixture_finish(&rpc_scene.fixture);
    grpc_channel_destroy(rpc_scene.channel);
    grpc_shutdown_blocking();
}

static void count_cancel(void *data)
{
    (void)data;
    rpc_scene.cancels++;
}

static void be_stubborn(struct rpc_fixture *of, void *data)
{
    (void)of, (void)data;
    rpc_call_on_cancel(rpc_scene.held, count_cancel, NULL);
}

static void destroy_and_end_late(struct rpc_fixture *of, void *data)
{
    (void)data;
    rpc_server_destroy(of->server);
    rpc_call_end(rpc_scene.held);
    loop_stop(of->loop);
}

TEST(a_handler_that_does_not_end_its_call_cannot_hold_up_the_exit)
{
    rpc_scene_start(NULL);
    struct raw_call *call = rpc_scene_start_load("hang", 0);
    rpc_scene_receive(call);
    rpc_fixture_on_loop(&rpc_scene.fixture, be_stubborn, NULL);
    rpc_fixture_drain(&rpc_scene.fixture, 1);
    assert_int_equal(raw_finish(call, NULL, NULL), ERROR_UNAVAILABLE);
    rpc_fixture_wait_drained(&rpc_scene.fixture);
    assert_int_equal(rpc_scene.cancels, 1);
    rpc_fixture_on_loop(&rpc_scene.fixture, destroy_and_end_late, NULL);
    pthread_join(rpc_scene.fixture.thread, NULL);
    rpc_scene.fixture.server = NULL;
    rpc_fixture_finish(&rpc_scene.fixture);
    grpc_channel_destroy(rpc_scene.channel);
}

static int listen_at(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(fd, 8), 0);
    return fd;
}

/* In one turn of the loop, so that the request comes in while the server drains. */
static void ask_and_drain(struct rpc_fixture *of, void *drained)
{
    (void)drained;
    http2_client_ask((struct http2_request){HTTP2_EMPTY});
    rpc_fixture_drain_here(of, 600000);
}

static bool is_sent_away(void)
{
    return nghttp2_session_check_request_allowed(http2_client.session) == 0;
}

TEST(at_a_passed_socket_a_drain_sends_clients_away_and_answers_what_they_have_sent)
{
    struct raw_bytes bytes;
    grpc_init();
    rpc_scene_prepare();
    int listening = listen_at(rpc_scene.fixture.socket), others = dup(listening);
    rpc_scene.fixture.options.listen_fd = listening;
    rpc_scene_launch();
    struct raw_call *call = rpc_scene_start_load("hang", 0);
    rpc_scene_receive(call);
    http2_client_begin();
    http2_client_is_served();
    rpc_fixture_on_loop(&rpc_scene.fixture, ask_and_drain, NULL);
    http2_client_await(http2_client_last_is_over);
    assert_string_equal(http2_client_answer(http2_client.last_stream)->grpc_status, "0");
    http2_client_await(is_sent_away);
    http2_client_end();
    assert_int_equal(access(rpc_scene.fixture.socket, F_OK), 0);
    int next = rpc_scene_connect(rpc_scene.fixture.socket), accepted = accept(others, NULL, NULL);
    assert_true(next >= 0 && accepted >= 0);
    rpc_fixture_on_loop(&rpc_scene.fixture, finish_held, NULL);
    assert_false(raw_receive(call, &bytes));
    assert_int_equal(raw_finish(call, NULL, NULL), 0);
    rpc_fixture_wait_drained(&rpc_scene.fixture);
    rpc_fixture_finish(&rpc_scene.fixture);
    close(next), close(accepted), close(others);
    grpc_channel_destroy(rpc_scene.channel);
    grpc_shutdown_blocking();
}
