/* grpc.health.v1 and server reflection. */
#include "tests/support/unit.h"

#undef fail /* ours is in base/error.h */

#include "base/memory.h"
#include "grpc_health/v1/health.pb-c.h"
#include "grpc_reflection/v1/reflection.pb-c.h"
#include "tests/support/rpc_scene.h"

static int check_health(const char *service, int *status)
{
    Grpc__Health__V1__HealthCheckRequest request = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;
    struct raw_bytes reply;
    request.service = (char *)service;
    struct raw_bytes message = rpc_scene_pack(&request.base);
    int code = raw_unary(rpc_scene.channel, "/grpc.health.v1.Health/Check", message.data, message.count, &reply, NULL);
    free(message.data);
    if (code)
        return code;
    Grpc__Health__V1__HealthCheckResponse *response =
        grpc__health__v1__health_check_response__unpack(NULL, reply.count, reply.data);
    *status = (int)response->status;
    grpc__health__v1__health_check_response__free_unpacked(response, NULL);
    free(reply.data);
    return 0;
}

TEST_IN(health_knows_the_daemon_and_its_service, rpc_scene_start, rpc_scene_stop)
{
    int status = 0;
    assert_int_equal(check_health("", &status), 0);
    assert_int_equal(status, 1);
    assert_int_equal(check_health("tensorcast.daemon.v1.StoreDaemon", &status), 0);
    assert_int_equal(status, 1);
    assert_int_equal(check_health("no.such.Service", &status), ERROR_NOT_FOUND);
}

static int receive_health(struct raw_call *call)
{
    struct raw_bytes bytes;
    if (!raw_receive(call, &bytes))
        return -1;
    Grpc__Health__V1__HealthCheckResponse *response =
        grpc__health__v1__health_check_response__unpack(NULL, bytes.count, bytes.data);
    int status = (int)response->status;
    grpc__health__v1__health_check_response__free_unpacked(response, NULL);
    free(bytes.data);
    return status;
}

TEST(a_health_watch_sees_the_start_and_the_end)
{
    struct error error;
    grpc_init();
    rpc_scene_prepare();
    assert_int_equal(rpc_fixture_start(&rpc_scene.fixture, &error), 0);
    rpc_scene.channel = raw_channel(rpc_scene.fixture.socket, NULL, 0);
    struct raw_call *watch = raw_start(rpc_scene.channel, "/grpc.health.v1.Health/Watch", "", 0, 0);
    assert_int_equal(receive_health(watch), 2);
    rpc_fixture_ready(&rpc_scene.fixture);
    assert_int_equal(receive_health(watch), 1);
    rpc_fixture_drain(&rpc_scene.fixture, 60000);
    int last = receive_health(watch); /* gRPC drops what was not read when an error comes: see test_rpc_connection.c */
    assert_true(last == -1 || (last == 2 && receive_health(watch) == -1));
    assert_int_equal(raw_finish(watch, NULL, NULL), ERROR_UNAVAILABLE);
    rpc_fixture_wait_drained(&rpc_scene.fixture); /* a watcher does not hold it up for a minute */
    rpc_fixture_finish(&rpc_scene.fixture);
    grpc_channel_destroy(rpc_scene.channel);
    grpc_shutdown_blocking();
}

static Grpc__Reflection__V1__ServerReflectionResponse *ask(struct raw_call *call, int question, const char *text)
{
    Grpc__Reflection__V1__ServerReflectionRequest request = GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__INIT;
    struct raw_bytes bytes;
    request.message_request_case = (Grpc__Reflection__V1__ServerReflectionRequest__MessageRequestCase)question;
    request.list_services = (char *)text; /* all questions are strings of one union */
    struct raw_bytes message = rpc_scene_pack(&request.base);
    raw_send(call, message.data, message.count);
    free(message.data);
    assert_true(raw_receive(call, &bytes));
    Grpc__Reflection__V1__ServerReflectionResponse *response =
        grpc__reflection__v1__server_reflection_response__unpack(NULL, bytes.count, bytes.data);
    free(bytes.data);
    assert_non_null(response);
    return response;
}

static void forget(Grpc__Reflection__V1__ServerReflectionResponse *response)
{
    grpc__reflection__v1__server_reflection_response__free_unpacked(response, NULL);
}

TEST_IN(reflection_lists_services_and_hands_out_their_files, rpc_scene_start, rpc_scene_stop)
{
    static const char *const versions[] = {"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
                                           "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"};
    for (size_t v = 0; v < 2; v++) {
        struct raw_call *call = raw_open(rpc_scene.channel, versions[v], 0);
        Grpc__Reflection__V1__ServerReflectionResponse *response = ask(call, 7, "");
        assert_int_equal(response->message_response_case, 6);
        assert_int_equal(response->list_services_response->n_service, 4);
        assert_string_equal(response->list_services_response->service[0]->name, "tensorcast.daemon.v1.StoreDaemon");
        forget(response);
        response = ask(call, 4, "tensorcast.daemon.v1.StoreDaemon.Materialize");
        assert_int_equal(response->message_response_case, 4);
        assert_int_equal(response->file_descriptor_response->n_file_descriptor_proto, 1);
        assert_string_equal(response->original_request->file_containing_symbol,
                            "tensorcast.daemon.v1.StoreDaemon.Materialize");
        forget(response);
        response = ask(call, 4, "tensorcast.daemon.v1.NoSuch");
        assert_int_equal(response->error_response->error_code, ERROR_NOT_FOUND);
        forget(response);
        raw_half_close(call);
        struct raw_bytes bytes;
        assert_false(raw_receive(call, &bytes));
        assert_int_equal(raw_finish(call, NULL, NULL), 0);
    }
}
