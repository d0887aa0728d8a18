/* How the gRPC server ends, and that none of its threads takes the signal that says so. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#undef fail /* ours is in base/error.h */

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/rpc_scene.h"

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

static bool is_of_grpc(const char *thread)
{
    static const char *const names[] = {"event_engine", "timer_manager", "default-executo", "resolver-execut",
                                        "grpc_global_tim"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strncmp(thread, names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

/* How many of gRPC's threads there are, and how many of them would take a SIGTERM. */
static void count_grpc_threads(int *all, int *exposed)
{
    char path[300], line[256], name[64] = "";
    DIR *tasks = opendir("/proc/self/task");
    *all = *exposed = 0;
    for (struct dirent *entry; (entry = readdir(tasks));) {
        unsigned long long blocked = 0;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", entry->d_name);
        FILE *status = entry->d_name[0] == '.' ? NULL : fopen(path, "re");
        while (status && fgets(line, sizeof line, status)) {
            sscanf(line, "Name: %63s", name);
            sscanf(line, "SigBlk: %llx", &blocked);
        }
        if (!status)
            continue;
        fclose(status);
        *all += is_of_grpc(name);
        *exposed += is_of_grpc(name) && !(blocked >> (SIGTERM - 1) & 1);
    }
    closedir(tasks);
}

static bool grpc_has_all_its_threads(void *data)
{
    int all, *exposed = data;
    count_grpc_threads(&all, exposed);
    return all >= 6;
}

static void no_thread_of_grpc_takes_signals(void **state)
{
    struct error error;
    int exposed = -1;
    (void)state;
    rpc_scene_prepare(); /* and no client in this process, whose threads would be gRPC's too */
    assert_int_equal(rpc_fixture_start(&rpc_scene.fixture, &error), 0);
    int peer = rpc_scene_connect(rpc_scene.fixture.socket);
    rpc_fixture_await(grpc_has_all_its_threads, &exposed, "gRPC makes its threads");
    assert_int_equal(exposed, 0);
    close(peer);
    rpc_fixture_stop(&rpc_scene.fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_thread_of_grpc_takes_signals), /* first: no client has started gRPC yet */
        cmocka_unit_test(a_drain_lets_running_calls_finish_and_takes_no_new_ones),
        cmocka_unit_test(the_grace_ends_calls_that_do_not),
        cmocka_unit_test(a_handler_that_does_not_end_its_call_cannot_hold_up_the_exit), /* last: it abandons a server */
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
