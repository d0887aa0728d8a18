/* How the gRPC server ends, and that it has no thread that could take the signal that says so. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#undef fail /* ours is in base/error.h */

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/rpc_scene.h"

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

static void a_drain_lets_running_calls_finish_and_takes_no_new_ones(void **state)
{
    struct raw_bytes bytes;
    int drained;
    (void)state;
    rpc_scene_start(NULL);
    struct raw_call *call = rpc_scene_start_load("hang", 0);
    rpc_scene_receive(call);
    int silent = rpc_scene_connect(rpc_scene.fixture.socket);
    rpc_fixture_drain(&rpc_scene.fixture, 600000);
    assert_int_equal(access(rpc_scene.fixture.socket, F_OK), -1);
    assert_int_equal(raw_unary(rpc_scene.channel, SERVICE "Status", "", 0, NULL, NULL), ERROR_UNAVAILABLE);
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

static void the_grace_ends_calls_that_do_not(void **state)
{
    (void)state;
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

static void a_handler_that_does_not_end_its_call_cannot_hold_up_the_exit(void **state)
{
    (void)state;
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

static size_t count_threads(void)
{
    size_t n = 0;
    DIR *tasks = opendir("/proc/self/task");
    while (readdir(tasks))
        n++;
    closedir(tasks);
    return n;
}

/* So none of them takes a signal that is meant for the loop. */
static void the_server_has_no_threads_of_its_own(void **state)
{
    struct error error;
    uint64_t one = 1;
    (void)state;
    rpc_scene_prepare(); /* and no client in this process, whose threads would be there, too */
    size_t before = count_threads();
    assert_int_equal(rpc_fixture_start(&rpc_scene.fixture, &error), 0);
    int peer = rpc_scene_connect(rpc_scene.fixture.socket);
    rpc_fixture_await(has_connections, &one, "the connection");
    assert_int_equal(count_threads(), before + 1); /* the loop's */
    close(peer);
    rpc_fixture_stop(&rpc_scene.fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_server_has_no_threads_of_its_own), /* first: no client has started gRPC yet */
        cmocka_unit_test(a_drain_lets_running_calls_finish_and_takes_no_new_ones),
        cmocka_unit_test(the_grace_ends_calls_that_do_not),
        cmocka_unit_test(a_handler_that_does_not_end_its_call_cannot_hold_up_the_exit), /* last: it abandons a server */
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
