/* The gRPC server against a genuine gRPC client: calls, errors, cancels. */
#include "tests/support/unit.h"

#undef fail /* ours is in base/error.h */

#include <unistd.h>

#include "base/memory.h"
#include "google/rpc/status.pb-c.h"
#include "tests/support/rpc_scene.h"

TEST_IN(a_unary_call_gets_its_reply_and_tells_who_called, rpc_scene_start, rpc_scene_stop)
{
    Tensorcast__Daemon__V1__ResolveResponse *response;
    assert_int_equal(rpc_scene_resolve(rpc_scene.channel, "disk:/modèle", &response), 0);
    assert_string_equal(response->artifact, "disk:/modèle");
    assert_true(response->unchanged); /* the uid is ours */
    assert_true(response->total_bytes > 0);
    tensorcast__daemon__v1__resolve_response__free_unpacked(response, NULL);
}

TEST_IN(a_stream_delivers_its_messages_in_order_and_then_ok, rpc_scene_start, rpc_scene_stop)
{
    struct raw_bytes bytes;
    struct raw_call *call = rpc_scene_start_load("count 9", 0);
    for (uint64_t i = 0; i < 9; i++) {
        assert_true(raw_receive(call, &bytes));
        Tensorcast__Daemon__V1__MaterializeEvent *event =
            tensorcast__daemon__v1__materialize_event__unpack(NULL, bytes.count, bytes.data);
        assert_int_equal(event->progress->done_bytes, i);
        tensorcast__daemon__v1__materialize_event__free_unpacked(event, NULL);
        free(bytes.data);
    }
    assert_false(raw_receive(call, &bytes));
    assert_int_equal(raw_finish(call, NULL, NULL), 0);
}

TEST_IN(an_error_arrives_with_code_message_and_error_info, rpc_scene_start, rpc_scene_stop)
{
    struct raw_bytes message = rpc_scene_load_message("no tensor \"wäight\"", NULL), details;
    char *text;
    struct raw_call *call = raw_start(rpc_scene.channel, SERVICE "Explain", message.data, message.count, 0);
    assert_int_equal(raw_finish(call, &text, &details), ERROR_NOT_FOUND);
    assert_string_equal(text, "no tensor \"wäight\"");
    Google__Rpc__Status *status = google__rpc__status__unpack(NULL, details.count, details.data);
    assert_int_equal(status->code, ERROR_NOT_FOUND);
    assert_string_equal(status->message, text);
    assert_int_equal(status->n_details, 1);
    assert_string_equal(status->details[0]->type_url, "type.googleapis.com/google.rpc.ErrorInfo");
    Google__Rpc__ErrorInfo *info =
        google__rpc__error_info__unpack(NULL, status->details[0]->value.len, status->details[0]->value.data);
    assert_string_equal(info->reason, "TENSOR_NOT_FOUND");
    google__rpc__error_info__free_unpacked(info, NULL);
    google__rpc__status__free_unpacked(status, NULL);
    free(text);
    free(details.data);
    free(message.data);
}

TEST_IN(the_longest_error_keeps_its_code, rpc_scene_start, rpc_scene_stop)
{
    char name[4000];
    char *text;
    for (size_t i = 0; i + 2 < sizeof name; i += 2)
        memcpy(name + i, "é", 2); /* three bytes each in a trailer */
    name[sizeof name - 2] = '\0';
    struct raw_bytes message = rpc_scene_load_message(name, NULL);
    assert_int_equal(raw_unary(rpc_scene.channel, SERVICE "Explain", message.data, message.count, NULL, &text),
                     ERROR_NOT_FOUND);
    assert_true(strlen(text) > 900 && strlen(text) < 1024);
    free(text);
    free(message.data);
}

TEST_IN(unknown_methods_are_unimplemented_every_time, rpc_scene_start, rpc_scene_stop)
{
    static const char *const paths[] = {SERVICE "NoSuchMethod", SERVICE "resolve", "/no.such.Service/Method", "/x", "/"};
    for (int round = 0; round < 8; round++)
        for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
            assert_int_equal(raw_unary(rpc_scene.channel, paths[i], "", 0, NULL, NULL), ERROR_UNIMPLEMENTED);
    rpc_scene_assert_serves();
}

TEST_IN(bytes_that_are_no_message_are_invalid, rpc_scene_start, rpc_scene_stop)
{
    static const struct raw_bytes bad[] = {{(void *)"\xff\xff\xff", 3},
                                           {(void *)"\x0a\xff\xff\xff\xff\x0f", 6},
                                           {(void *)"\x0a\x03\xc3\x28z", 5},
                                           {(void *)"\x0a\x03"
                                                    "a\0b",
                                            5}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(raw_unary(rpc_scene.channel, SERVICE "Resolve", bad[i].data, bad[i].count, NULL, NULL),
                         ERROR_INVALID_ARGUMENT);
    assert_int_equal(rpc_scene.handled, 0);
}

TEST_IN(a_request_without_a_message_is_invalid, rpc_scene_start, rpc_scene_stop)
{
    struct raw_call *call = raw_open(rpc_scene.channel, SERVICE "Resolve", 0);
    raw_half_close(call);
    assert_int_equal(raw_finish(call, NULL, NULL), ERROR_INVALID_ARGUMENT);
}

TEST_IN(the_deadline_reaches_the_handler, rpc_scene_start, rpc_scene_stop)
{
    struct raw_bytes message = rpc_scene_resolve_message("x"), reply;
    for (uint64_t timeout_ms = 0; timeout_ms <= 3600000; timeout_ms += 3600000) {
        struct raw_call *call = raw_start(rpc_scene.channel, SERVICE "Resolve", message.data, message.count, timeout_ms);
        assert_true(raw_receive(call, &reply));
        assert_int_equal(raw_finish(call, NULL, NULL), 0);
        Tensorcast__Daemon__V1__ResolveResponse *response =
            tensorcast__daemon__v1__resolve_response__unpack(NULL, reply.count, reply.data);
        uint64_t left_ns = strtoull(response->identity, NULL, 10);
        assert_true(timeout_ms ? left_ns > 3000000000000u && left_ns < 3700000000000u /* gRPC rounds up */ : left_ns == 0);
        tensorcast__daemon__v1__resolve_response__free_unpacked(response, NULL);
        free(reply.data);
    }
    free(message.data);
}

TEST_IN(a_cancelled_call_tells_its_handler_once, rpc_scene_start, rpc_scene_stop)
{
    struct raw_call *call = rpc_scene_start_load("hang", 0);
    rpc_scene_receive(call);
    raw_cancel(call);
    assert_int_equal(raw_finish(call, NULL, NULL), ERROR_CANCELLED);
    rpc_fixture_await(rpc_scene_has_one_cancel, NULL, "on_cancel runs");
    rpc_scene_assert_serves();
    assert_int_equal(rpc_scene.cancels, 1);
}

TEST_IN(a_passed_deadline_tells_the_handler, rpc_scene_start, rpc_scene_stop)
{
    for (uint64_t timeout_ms = 50; !rpc_scene.hung; timeout_ms *= 4) { /* a slow machine may need more to get there */
        struct raw_call *call = rpc_scene_start_load("hang", timeout_ms);
        assert_int_equal(raw_finish(call, NULL, NULL), ERROR_DEADLINE_EXCEEDED);
        rpc_scene_assert_serves();
    }
    rpc_fixture_await(rpc_scene_has_one_cancel, NULL, "on_cancel runs");
}

static void fail_on_loop(struct rpc_fixture *of, void *data)
{
    struct error error;
    (void)of, (void)data;
    fail(&error, ERROR_DATA_LOSS, "TORN", "half of it");
    rpc_call_fail(rpc_scene.held, &error);
}

TEST_IN(a_handler_may_fail_a_stream_later, rpc_scene_start, rpc_scene_stop)
{
    struct raw_call *call = rpc_scene_start_load("hang", 0);
    rpc_scene_receive(call);
    rpc_fixture_on_loop(&rpc_scene.fixture, fail_on_loop, NULL);
    assert_int_equal(raw_finish(call, NULL, NULL), ERROR_DATA_LOSS);
    rpc_scene_assert_serves();
    assert_int_equal(rpc_scene.cancels, 0);
}

static struct rpc_call *late;

static void take_over(struct rpc_fixture *of, void *data)
{
    (void)of, (void)data;
    late = rpc_scene.held;
    rpc_call_on_cancel(late, NULL, NULL); /* no handler is told */
}

static void end_late(void *data)
{
    rpc_scene.cancels++;
    rpc_call_end(data);
}

static void register_late(struct rpc_fixture *of, void *data)
{
    (void)of, (void)data;
    rpc_call_on_cancel(late, end_late, late);
}

TEST_IN(on_cancel_registered_too_late_still_runs, rpc_scene_start, rpc_scene_stop)
{
    struct raw_call *call = rpc_scene_start_load("hang", 0);
    rpc_scene_receive(call);
    rpc_fixture_on_loop(&rpc_scene.fixture, take_over, NULL);
    raw_cancel(call);
    assert_int_equal(raw_finish(call, NULL, NULL), ERROR_CANCELLED);
    rpc_scene_assert_serves(); /* on the same connection, so the cancel has been read */
    rpc_fixture_on_loop(&rpc_scene.fixture, register_late, NULL);
    rpc_fixture_await(rpc_scene_has_one_cancel, NULL, "on_cancel runs");
}

TEST(a_method_without_a_handler_fails_the_start)
{
    struct error error;
    rpc_scene_prepare();
    rpc_scene.fixture.options.n_methods--; /* Status is the last */
    assert_int_equal(rpc_fixture_start(&rpc_scene.fixture, &error), -1);
    assert_non_null(strstr(error.message, "Status"));
    rpc_fixture_finish(&rpc_scene.fixture);
}
