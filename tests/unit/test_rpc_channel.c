/* Calls of several threads and all sizes over the one connection of a client, answered by the daemon's own server. */
#include "tests/support/unit.h"

#undef fail /* ours is in base/error.h */

#include <pthread.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "client/rpc_client.h"
#include "tests/support/rpc_scene.h"

enum { N_THREADS = 8, N_CALLS = 50 };

static struct rpc_client *client;

static int start(void **state)
{
    if (rpc_scene_start(state))
        return -1;
    client = rpc_client_create(rpc_scene.fixture.socket, NULL);
    return 0;
}

static int stop(void **state)
{
    rpc_client_destroy(client);
    return rpc_scene_stop(state);
}

/* The connection that it came over; identity: as the scene answers. 0 = it failed. */
static uint64_t resolve_with(const struct wait *wait, char identity[64], struct error *error)
{
    Tensorcast__Daemon__V1__ResolveRequest request = TENSORCAST__DAEMON__V1__RESOLVE_REQUEST__INIT;
    struct arena arena;
    arena_init(&arena, 0);
    request.artifact = "x";
    const Tensorcast__Daemon__V1__ResolveResponse *response = (const void *)rpc_client_get(
        client, "Resolve", &request.base, &tensorcast__daemon__v1__resolve_response__descriptor, wait, &arena, error);
    uint64_t connection = response ? response->total_bytes : 0;
    snprintf(identity, 64, "%s", response ? response->identity : "");
    arena_fini(&arena);
    return connection;
}

static uint64_t resolve(void)
{
    const struct wait wait = wait_begin(0, NULL);
    char identity[64];
    struct error error;
    return resolve_with(&wait, identity, &error);
}

struct stream { /* of events that a call brought */
    size_t n, bytes, ends_at;
    struct wait wait;
    struct error error;
    uint64_t connection_meanwhile;
    bool asks_meanwhile;
};

static int on_event(void *data, ProtobufCMessage *message, struct arena *arena, struct error *error)
{
    struct stream *stream = data;
    const Tensorcast__Daemon__V1__MaterializeEvent *event = (const void *)message;
    if (event->progress->done_bytes != stream->n)
        return fail(error, ERROR_INTERNAL, "TEST", "out of order");
    if (stream->asks_meanwhile)
        stream->connection_meanwhile = resolve();
    stream->bytes += strlen(event->progress->stage);
    return ++stream->n == stream->ends_at ? fail(error, ERROR_ABORTED, "ENOUGH", "enough") : 0;
}

static int materialize(const char *what, struct stream *stream)
{
    Tensorcast__Daemon__V1__LoadRequest load = TENSORCAST__DAEMON__V1__LOAD_REQUEST__INIT;
    Tensorcast__Daemon__V1__MaterializeRequest request = TENSORCAST__DAEMON__V1__MATERIALIZE_REQUEST__INIT;
    const struct rpc_question question = {"Materialize", &request.base,
                                          &tensorcast__daemon__v1__materialize_event__descriptor, on_event, stream};
    struct arena arena;
    arena_init(&arena, 0);
    load.artifact = (char *)what;
    request.load = &load;
    int failed = rpc_client_ask(client, &question, &stream->wait, &arena, &stream->error);
    arena_fini(&arena);
    return failed;
}

TEST_IN(a_client_has_one_connection_for_all_its_calls, start, stop)
{
    uint64_t connection = resolve();
    assert_int_not_equal(connection, 0);
    for (int i = 0; i < 10; i++)
        assert_int_equal(resolve(), connection);
}

static void *resolve_often(void *connection)
{
    for (int i = 0; i < N_CALLS; i++) {
        uint64_t mine = resolve(), none = 0;
        __atomic_compare_exchange_n((uint64_t *)connection, &none, mine, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
        if (!mine || mine != __atomic_load_n((uint64_t *)connection, __ATOMIC_RELAXED))
            return "another connection, or none";
    }
    return NULL;
}

TEST_IN(threads_share_it, start, stop)
{
    pthread_t threads[N_THREADS];
    uint64_t connection = 0;
    void *wrong;
    for (size_t i = 0; i < N_THREADS; i++)
        pthread_create(&threads[i], NULL, resolve_often, &connection);
    for (size_t i = 0; i < N_THREADS; i++) {
        pthread_join(threads[i], &wrong);
        assert_null(wrong);
    }
    assert_int_equal(rpc_scene.handled, N_THREADS * N_CALLS);
}

TEST_IN(messages_come_in_order_and_all_of_them, start, stop)
{
    struct stream stream = {.wait = wait_begin(0, NULL)};
    assert_int_equal(materialize("count 16", &stream), 0);
    assert_int_equal(stream.n, 16);
}

TEST_IN(messages_of_a_mebibyte_pass_windows_that_are_smaller_than_all_of_them, start, stop)
{
    struct stream stream = {.ends_at = 16, .wait = wait_begin(0, NULL)};
    assert_int_equal(materialize("flood 16", &stream), -1);
    assert_string_equal(stream.error.reason, "ENOUGH");
    assert_int_equal(stream.n, 16);
    assert_int_equal(stream.bytes, 16 << 20);
    rpc_fixture_await(rpc_scene_has_one_cancel, NULL, "the daemon hears that its client has enough");
}

static int count_chunk(void *data, ProtobufCMessage *message, struct arena *arena, struct error *error)
{
    const Tensorcast__Daemon__V1__SidecarEvent *event = (const void *)message;
    struct stream *stream = data;
    if (event->chunk->file != stream->n++)
        return fail(error, ERROR_INTERNAL, "TEST", "out of order");
    stream->bytes += event->chunk->data.len;
    return 0;
}

TEST_IN(a_stream_of_many_windows_comes_whole, start, stop)
{
    Tensorcast__Daemon__V1__FetchSidecarsRequest request = TENSORCAST__DAEMON__V1__FETCH_SIDECARS_REQUEST__INIT;
    struct stream stream = {.wait = wait_begin(0, NULL)};
    const struct rpc_question question = {"FetchSidecars", &request.base, &tensorcast__daemon__v1__sidecar_event__descriptor,
                                          count_chunk, &stream};
    struct arena arena;
    arena_init(&arena, 0);
    request.artifact = "200";
    assert_int_equal(rpc_client_ask(client, &question, &stream.wait, &arena, &stream.error), 0);
    assert_int_equal(stream.n, 200);
    assert_int_equal(stream.bytes, 200 * (64 << 10));
    arena_fini(&arena);
}

TEST_IN(a_question_of_megabytes_passes_the_daemons_window, start, stop)
{
    enum { N_NAMES = 3000, NAME_CHARS = 1000 };
    Tensorcast__Daemon__V1__View view = TENSORCAST__DAEMON__V1__VIEW__INIT;
    Tensorcast__Daemon__V1__LoadRequest load = TENSORCAST__DAEMON__V1__LOAD_REQUEST__INIT;
    Tensorcast__Daemon__V1__PrewarmRequest request = TENSORCAST__DAEMON__V1__PREWARM_REQUEST__INIT;
    const struct wait wait = wait_begin(0, NULL);
    const char **names = memory_alloc_array(N_NAMES, sizeof *names);
    char name[NAME_CHARS + 1] = "";
    struct error error;
    struct arena arena;
    memset(name, 'n', NAME_CHARS);
    for (size_t i = 0; i < N_NAMES; i++)
        names[i] = name;
    view.names = names, view.n_names = N_NAMES;
    load.artifact = "x", load.view = &view;
    request.load = &load;
    arena_init(&arena, 0);
    const Tensorcast__Daemon__V1__PrewarmResponse *response = (const void *)rpc_client_get(
        client, "Prewarm", &request.base, &tensorcast__daemon__v1__prewarm_response__descriptor, &wait, &arena, &error);
    assert_non_null(response);
    assert_int_equal(response->report->requests, N_NAMES);
    assert_int_equal(response->report->view_bytes, N_NAMES * NAME_CHARS);
    arena_fini(&arena);
    free(names);
}

TEST_IN(a_question_that_the_daemon_does_not_take_is_answered_before_it_is_sent, start, stop)
{
    enum { TOO_MANY_BYTES = 5 << 20 };
    Tensorcast__Daemon__V1__ResolveRequest request = TENSORCAST__DAEMON__V1__RESOLVE_REQUEST__INIT;
    const struct wait wait = wait_begin(0, NULL);
    char *artifact = memory_alloc(TOO_MANY_BYTES + 1);
    struct error error;
    struct arena arena;
    memset(artifact, 'x', TOO_MANY_BYTES);
    request.artifact = artifact;
    arena_init(&arena, 0);
    assert_null(rpc_client_get(client, "Resolve", &request.base, &tensorcast__daemon__v1__resolve_response__descriptor,
                               &wait, &arena, &error));
    assert_string_equal(error.reason, "MESSAGE_TOO_LARGE");
    arena_fini(&arena);
    free(artifact);
    assert_int_not_equal(resolve(), 0);
}

/* What a call waits for is asked for on the same connection, or the daemon would not know whose call it is. */
TEST_IN(a_call_within_a_call_uses_the_same_connection, start, stop)
{
    struct stream stream = {.ends_at = 3, .asks_meanwhile = true, .wait = wait_begin(0, NULL)};
    uint64_t connection = resolve();
    assert_int_equal(materialize("flood 3", &stream), -1);
    assert_int_equal(stream.connection_meanwhile, connection);
}

static bool is_held(void *data)
{
    return rpc_scene.held != NULL;
}

static void *hold(void *stream)
{
    return materialize("hang", stream) ? NULL : stream;
}

TEST_IN(a_call_that_waits_holds_up_no_other_and_may_be_cancelled_alone, start, stop)
{
    struct tc_cancel *cancel = tc_cancel_create();
    struct stream stream = {.wait = wait_begin(0, cancel)};
    pthread_t thread;
    void *wrong;
    uint64_t connection = resolve();
    pthread_create(&thread, NULL, hold, &stream);
    rpc_fixture_await(is_held, NULL, "the daemon has the call");
    for (int i = 0; i < 100; i++)
        assert_int_equal(resolve(), connection);
    tc_cancel_raise(cancel);
    pthread_join(thread, &wrong);
    assert_null(wrong);
    assert_string_equal(stream.error.reason, "CANCELLED");
    rpc_fixture_await(rpc_scene_has_one_cancel, NULL, "the daemon hears of it");
    assert_int_equal(resolve(), connection);
    tc_cancel_destroy(cancel);
}

TEST_IN(the_daemon_is_told_how_much_time_is_left, start, stop)
{
    const struct wait endless = wait_begin(0, NULL), minute = wait_begin(60000, NULL), year = wait_begin(31536000000, NULL);
    char identity[64];
    struct error error;
    assert_int_not_equal(resolve_with(&endless, identity, &error), 0);
    assert_string_equal(identity, "0");
    assert_int_not_equal(resolve_with(&minute, identity, &error), 0);
    assert_in_range(strtoull(identity, NULL, 10), 1000000000, 60001000000);
    assert_int_not_equal(resolve_with(&year, identity, &error), 0);
    assert_in_range(strtoull(identity, NULL, 10), 31535000000000000, 31536600000000000);
}

TEST_IN(a_passed_deadline_leaves_the_connection_to_others, start, stop)
{
    struct stream stream = {.wait = wait_begin(50, NULL)};
    uint64_t connection = resolve();
    assert_int_equal(materialize("hang", &stream), -1);
    assert_int_equal(stream.error.code, ERROR_DEADLINE_EXCEEDED);
    assert_int_equal(resolve(), connection);
}

TEST_IN(errors_of_the_daemon_come_as_they_are, start, stop)
{
    Tensorcast__Daemon__V1__LoadRequest load = TENSORCAST__DAEMON__V1__LOAD_REQUEST__INIT;
    Tensorcast__Daemon__V1__ExplainRequest request = TENSORCAST__DAEMON__V1__EXPLAIN_REQUEST__INIT;
    const struct wait wait = wait_begin(0, NULL);
    struct error error;
    struct arena arena;
    load.artifact = "100 % of \xc3\xa9\nand \"more\"";
    request.load = &load;
    arena_init(&arena, 0);
    assert_null(rpc_client_get(client, "Explain", &request.base, &tensorcast__daemon__v1__explain_response__descriptor,
                               &wait, &arena, &error));
    assert_int_equal(error.code, ERROR_NOT_FOUND);
    assert_string_equal(error.reason, "TENSOR_NOT_FOUND");
    assert_string_equal(error.message, load.artifact);
    arena_fini(&arena);
}

TEST_IN(an_unknown_method_is_unimplemented, start, stop)
{
    Tensorcast__Daemon__V1__StatusRequest request = TENSORCAST__DAEMON__V1__STATUS_REQUEST__INIT;
    const struct wait wait = wait_begin(0, NULL);
    struct error error;
    struct arena arena;
    arena_init(&arena, 0);
    assert_null(rpc_client_get(client, "Other/Method", &request.base, &tensorcast__daemon__v1__status_response__descriptor,
                               &wait, &arena, &error));
    assert_int_equal(error.code, ERROR_UNIMPLEMENTED);
    arena_fini(&arena);
}

TEST_IN(more_calls_than_the_daemon_takes_at_once_wait_for_their_turn, start, stop)
{
    enum { N = 150, STACK_BYTES = 256 << 10 };
    static struct stream streams[N];
    static pthread_t threads[N];
    struct tc_cancel *cancel = tc_cancel_create();
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, STACK_BYTES);
    for (size_t i = 0; i < N; i++) {
        streams[i] = (struct stream){.wait = wait_begin(0, cancel)};
        assert_int_equal(pthread_create(&threads[i], &small, hold, &streams[i]), 0);
    }
    pthread_attr_destroy(&small);
    rpc_fixture_await(is_held, NULL, "the daemon has a call");
    tc_cancel_raise(cancel);
    for (size_t i = 0; i < N; i++) {
        pthread_join(threads[i], NULL);
        assert_string_equal(streams[i].error.reason, "CANCELLED");
    }
    assert_int_not_equal(resolve(), 0);
    tc_cancel_destroy(cancel);
}
