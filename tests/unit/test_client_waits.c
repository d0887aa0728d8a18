/* How the calls of libtensorcast end that do not end well, and what is told meanwhile. */
#include "tests/support/unit.h"

#undef fail /* ours is in base/error.h */

#include <pthread.h>
#include <time.h>

#include "tests/support/client_scene.h"

TEST_IN(errors_of_the_daemon_keep_code_reason_and_message, client_scene_start, client_scene_stop)
{
    client_scene.error = (struct error){.code = ERROR_DATA_LOSS, .reason = "TORN_FILE", .message = "m.safetensors is torn"};
    struct tc_error error;
    assert_null(client_scene_load(NULL, &error));
    assert_int_equal(error.code, ERROR_DATA_LOSS);
    assert_string_equal(error.reason, "TORN_FILE");
    assert_string_equal(error.message, "m.safetensors is torn");
    assert_string_equal(tc_code_name(error.code), "DATA_LOSS");
}

TEST_IN(unavailable_of_the_daemon_names_the_socket_and_is_not_asked_twice, client_scene_start, client_scene_stop)
{
    struct tc_error error;
    client_scene.error = (struct error){.code = ERROR_UNAVAILABLE, .reason = "SHUTTING_DOWN", .message = "bye"};
    assert_int_equal(tc_release(client_scene.client, NULL, 0, NULL, NULL, &error), -1);
    assert_string_equal(error.reason, "SHUTTING_DOWN");
    assert_non_null(strstr(error.message, client_scene.fixture.socket));
    assert_int_equal(client_scene.calls, 1);
}

TEST_IN(a_passed_deadline_comes_back_as_such, client_scene_start, client_scene_stop)
{
    struct tc_error error;
    client_scene.hangs = true;
    assert_null(client_scene_load(&(struct tc_options){.timeout_ms = 50}, &error));
    assert_int_equal(error.code, ERROR_DEADLINE_EXCEEDED);
    assert_null(tc_resolve(client_scene.client, "disk:/m", 0, 50, &error));
    assert_int_equal(error.code, ERROR_DEADLINE_EXCEEDED);
}

struct told {
    int calls, stop_at;
    char last[16];
};

static int on_progress(void *data, const char *stage, uint64_t done_bytes, uint64_t total_bytes)
{
    struct told *told = data;
    snprintf(told->last, sizeof told->last, "%s", stage);
    assert_true(done_bytes <= total_bytes);
    return ++told->calls == told->stop_at;
}

TEST_IN(progress_is_told_seldom_and_once_at_the_end, client_scene_start, client_scene_stop)
{
    struct told told = {0};
    struct tc_error error;
    client_scene.n_progress = 12; /* in a burst */
    struct tc_load *load = client_scene_load(&(struct tc_options){.progress = on_progress, .data = &told}, &error);
    assert_non_null(load);
    assert_string_equal(told.last, "done");
    assert_true(told.calls >= 2 && told.calls < 14);
    tc_load_release(load);
}

static bool daemon_forgot(void *data)
{
    (void)data;
    return client_scene.held == NULL;
}

TEST_IN(progress_may_end_a_load_early, client_scene_start, client_scene_stop)
{
    struct told told = {.stop_at = 1};
    struct tc_error error;
    client_scene.n_progress = 1;
    client_scene.hangs = true;
    assert_null(client_scene_load(&(struct tc_options){.progress = on_progress, .data = &told}, &error));
    assert_int_equal(error.code, ERROR_CANCELLED);
    rpc_fixture_await(daemon_forgot, NULL, "the daemon is told");
}

static bool daemon_holds(void *data)
{
    (void)data;
    return client_scene.held != NULL;
}

static void *raise_when_held(void *cancel)
{
    rpc_fixture_await(daemon_holds, NULL, "the daemon has the call");
    tc_cancel_raise(cancel);
    return NULL;
}

TEST_IN(another_thread_may_cancel, client_scene_start, client_scene_stop)
{
    struct tc_error error;
    pthread_t thread;
    client_scene.hangs = true;
    struct tc_cancel *cancel = tc_cancel_create();
    pthread_create(&thread, NULL, raise_when_held, cancel);
    assert_null(client_scene_load(&(struct tc_options){.cancel = cancel}, &error));
    assert_int_equal(error.code, ERROR_CANCELLED);
    pthread_join(thread, NULL);
    rpc_fixture_await(daemon_forgot, NULL, "the daemon is told");
    assert_null(client_scene_load(&(struct tc_options){.cancel = cancel}, &error)); /* it stays raised */
    assert_int_equal(error.code, ERROR_CANCELLED);
    tc_cancel_destroy(cancel);
}
