/* What a client of the gRPC server may send, and how it is made to read. */
#include "tests/support/unit.h"

#undef fail /* ours is in base/error.h */

#include <grpc/grpc_security.h>

#include "base/memory.h"
#include "tests/support/rpc_scene.h"

TEST_IN(a_message_above_the_limit_is_exhausted_and_one_below_is_not, rpc_scene_start, rpc_scene_stop)
{
    size_t limit = 4 << 20;
    char *text = memory_alloc(limit + 1);
    memset(text, 'a', limit);
    text[limit - 8] = '\0'; /* 5 bytes of tag and length */
    struct raw_bytes fits = rpc_scene_resolve_message(text);
    assert_int_equal(raw_unary(rpc_scene.channel, SERVICE "Resolve", fits.data, fits.count, NULL, NULL), 0);
    text[limit - 8] = 'a';
    struct raw_bytes large = rpc_scene_resolve_message(text);
    assert_true(fits.count <= limit && large.count > limit);
    assert_int_equal(raw_unary(rpc_scene.channel, SERVICE "Resolve", large.data, large.count, NULL, NULL),
                     ERROR_RESOURCE_EXHAUSTED);
    rpc_scene_assert_serves();
    free(fits.data);
    free(large.data);
    free(text);
}

TEST_IN(compressed_messages_are_refused_before_they_are_inflated, rpc_scene_start, rpc_scene_stop)
{
    grpc_arg gzip = {
        .type = GRPC_ARG_INTEGER, .key = GRPC_COMPRESSION_CHANNEL_DEFAULT_ALGORITHM, .value.integer = GRPC_COMPRESS_GZIP};
    char *text = memory_alloc((1 << 20) + 1);
    memset(text, 'a', 1 << 20);
    struct raw_bytes message = rpc_scene_resolve_message(text);
    grpc_channel *squeezing = raw_channel(rpc_scene.fixture.socket, &gzip, 1);
    assert_int_equal(raw_unary(squeezing, SERVICE "Resolve", message.data, message.count, NULL, NULL), ERROR_UNIMPLEMENTED);
    assert_int_equal(rpc_scene.handled, 0);
    grpc_channel_destroy(squeezing);
    free(message.data);
    free(text);
}

TEST_IN(a_hundred_thousand_names_arrive_whole, rpc_scene_start, rpc_scene_stop)
{
    enum { N = 100000 };
    const char **names = memory_alloc_array(N, sizeof *names);
    char(*texts)[24] = memory_alloc_array(N, sizeof *texts);
    Tensorcast__Daemon__V1__View view = TENSORCAST__DAEMON__V1__VIEW__INIT;
    struct raw_bytes reply;
    uint64_t total = 0;
    for (int i = 0; i < N; i++) {
        total += (uint64_t)snprintf(texts[i], sizeof *texts, "t.%d", i);
        names[i] = texts[i];
    }
    view.names = names;
    view.n_names = N;
    struct raw_bytes message = rpc_scene_load_message("x", &view);
    assert_int_equal(raw_unary(rpc_scene.channel, SERVICE "Prewarm", message.data, message.count, &reply, NULL), 0);
    Tensorcast__Daemon__V1__PrewarmResponse *response =
        tensorcast__daemon__v1__prewarm_response__unpack(NULL, reply.count, reply.data);
    assert_int_equal(response->report->requests, N);
    assert_int_equal(response->report->view_bytes, total);
    tensorcast__daemon__v1__prewarm_response__free_unpacked(response, NULL);
    free(reply.data);
    free(message.data);
    free(texts);
    free(names);
}

static bool has_nothing(void *quota)
{
    return quota_taken(quota, QUOTA_METADATA) == 0;
}

TEST(requests_are_charged_until_they_are_answered)
{
    char *text = memory_alloc(1 << 20), *message = NULL;
    struct quota *quota = quota_create();
    struct raw_bytes details;
    rpc_scene_prepare();
    rpc_scene.fixture.options.quota = quota;
    rpc_scene_launch();
    quota_set_limits(quota, QUOTA_METADATA, 1 << 20, 0);
    memset(text, 'a', (1 << 20) - 1);
    struct raw_bytes large = rpc_scene_resolve_message(text);
    struct raw_call *call = raw_start(rpc_scene.channel, SERVICE "Resolve", large.data, large.count, 0);
    assert_int_equal(raw_finish(call, &message, &details), ERROR_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(message, "metadata bytes"));
    assert_non_null(memmem(details.data, details.count, "METADATA_EXCEEDED", 17));
    quota_set_limits(quota, QUOTA_METADATA, 16 << 20, 0);
    assert_int_equal(raw_unary(rpc_scene.channel, SERVICE "Resolve", large.data, large.count, NULL, NULL), 0);
    rpc_fixture_await(has_nothing, quota, "everything is given back");
    quota_set_limits(quota, QUOTA_METADATA, 0, 0);
    rpc_scene_assert_serves(); /* small requests are always served */
    rpc_scene_stop(NULL);
    quota_destroy(quota);
    free(details.data);
    free(large.data);
    free(message);
    free(text);
}

TEST_IN(a_client_that_does_not_read_is_cut_off_when_its_queue_is_full, rpc_scene_start, rpc_scene_stop)
{
    struct raw_bytes bytes;
    char *text;
    struct raw_call *call = rpc_scene_start_load("flood 64", 0);
    rpc_fixture_await(rpc_scene_has_one_cancel, NULL, "the flooding handler is cancelled");
    assert_true(rpc_scene.sent >= 16);
    while (raw_receive(call, &bytes))
        free(bytes.data);
    assert_int_equal(raw_finish(call, &text, NULL), ERROR_RESOURCE_EXHAUSTED);
    free(text);
    rpc_scene_assert_serves();
}

static struct raw_call *start_paced(const char *count)
{
    unsigned char bytes[64];
    Tensorcast__Daemon__V1__FetchSidecarsRequest request = TENSORCAST__DAEMON__V1__FETCH_SIDECARS_REQUEST__INIT;
    request.artifact = (char *)count;
    size_t n_bytes = tensorcast__daemon__v1__fetch_sidecars_request__pack(&request, bytes);
    return raw_start(rpc_scene.channel, SERVICE "FetchSidecars", bytes, n_bytes, 0);
}

TEST_IN(a_stream_that_waits_until_it_is_idle_may_be_of_any_length, rpc_scene_start, rpc_scene_stop)
{
    struct raw_bytes bytes;
    uint32_t n_messages = 0;
    struct raw_call *call = start_paced("300");
    while (raw_receive(call, &bytes)) {
        n_messages++;
        free(bytes.data);
    }
    assert_int_equal(n_messages, 300);
    assert_int_equal(raw_finish(call, NULL, NULL), 0);
}

TEST_IN(a_stream_that_waits_until_it_is_idle_hears_of_a_client_that_left, rpc_scene_start, rpc_scene_stop)
{
    struct raw_call *call = start_paced("4000000000");
    rpc_scene_receive(call);
    raw_cancel(call);
    assert_int_equal(raw_finish(call, NULL, NULL), ERROR_CANCELLED);
    rpc_fixture_await(rpc_scene_has_one_cancel, NULL, "the handler ends");
    rpc_scene_assert_serves();
}
