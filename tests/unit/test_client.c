/* libtensorcast against a daemon that answers what each test wants: the truth, contradictions, errors, nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#undef fail /* ours is in base/error.h */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"
#include "client/tensorcast.h"
#include "tensorcast/daemon/v1/store_daemon.pb-c.h"
#include "tests/support/fake_handoff.h"
#include "tests/support/rpc_fixture.h"

enum { CONTENT_BYTES = 4096 };

/* What the fake daemon is asked to do, and what it saw. Set before a call, read after it. */
static struct {
    struct error error; /* code 0 = answer */
    bool hangs, without_result;
    Tensorcast__Daemon__V1__Layout layout;
    int n_progress;
    size_t n_names, n_starts;
    char first_name[32];
    int64_t first_start, rank;
    bool has_view, all;
    struct rpc_call *_Atomic held;
    _Atomic int calls;
} fake;

static struct rpc_fixture fixture;
static struct fake_handoff handoff;
static struct tc_client *client;
static char first_folder[sizeof fixture.folder];

/* Three tensors: U8 [2, 3] at 0, an empty F32 [0, 4] at 64, a BF16 scalar at 128. */
static Tensorcast__Daemon__V1__DType dtypes[] = {5, 18, 15};
static uint32_t ranks[] = {2, 2, 0};
static uint64_t dims[] = {2, 3, 0, 4}, offsets[] = {0, 64, 128}, sizes[] = {6, 0, 2};
static char *names[] = {"w", "empty", "s"};

/* The test's thread and the daemon's take turns through gRPC, which a race detector cannot see: both pass here on either
 * side of a call. */
static void meet(void)
{
    static _Atomic int turn;
    turn++;
}

static void reply(struct rpc_call *call, const ProtobufCMessage *message)
{
    meet();
    rpc_call_reply(call, message);
}

static bool refuses(struct rpc_call *call)
{
    meet();
    fake.calls++;
    if (!fake.error.code)
        return false;
    const struct error error = fake.error;
    meet();
    rpc_call_fail(call, &error);
    return true;
}

static void end_cancelled(void *data)
{
    fake.held = NULL;
    rpc_call_end(data);
}

static bool hangs(struct rpc_call *call)
{
    if (!fake.hangs)
        return false;
    rpc_call_on_cancel(call, end_cancelled, call);
    fake.held = call;
    return true;
}

static void on_resolve(struct rpc_call *call, const ProtobufCMessage *message, void *context)
{
    const Tensorcast__Daemon__V1__ResolveRequest *request = (const void *)message;
    Tensorcast__Daemon__V1__ResolveResponse response = TENSORCAST__DAEMON__V1__RESOLVE_RESPONSE__INIT;
    Tensorcast__Daemon__V1__File file = TENSORCAST__DAEMON__V1__FILE__INIT, *files[] = {&file};
    uint32_t file_indexes[] = {0, 0, 0};
    (void)context;
    if (refuses(call) || hangs(call))
        return;
    file.name = "model.safetensors";
    file.bytes = 4711;
    response.artifact = request->artifact;
    response.identity = "1d";
    response.total_bytes = 8;
    response.n_files = 1, response.files = files;
    response.n_names = 3, response.names = names;
    response.n_dtypes = fake.layout.n_dtypes, response.dtypes = dtypes;
    response.n_ranks = 3, response.ranks = ranks;
    response.n_file_indexes = 3, response.file_indexes = file_indexes;
    response.n_sizes = 3, response.sizes = sizes;
    response.n_dims = 4, response.dims = dims;
    response.source_index_json = request->include_indexes ? "{}" : "";
    reply(call, &response.base);
}

static void note(const Tensorcast__Daemon__V1__LoadRequest *load)
{
    fake.has_view = load->view != NULL;
    fake.rank = load->topology && load->topology->group ? load->topology->group->rank : -1;
    if (!load->view)
        return;
    fake.n_names = load->view->n_names;
    fake.n_starts = load->view->n_starts;
    fake.first_start = load->view->n_starts ? load->view->starts[0] : 0;
    snprintf(fake.first_name, sizeof fake.first_name, "%s", load->view->n_names ? load->view->names[0] : "");
}

static void send_result(struct rpc_call *call)
{
    Tensorcast__Daemon__V1__MaterializeEvent event = TENSORCAST__DAEMON__V1__MATERIALIZE_EVENT__INIT;
    Tensorcast__Daemon__V1__LoadResult result = TENSORCAST__DAEMON__V1__LOAD_RESULT__INIT;
    Tensorcast__Daemon__V1__LoadReport report = TENSORCAST__DAEMON__V1__LOAD_REPORT__INIT;
    unsigned char token[HANDOFF_TOKEN_BYTES];
    memset(token, 0xa5, sizeof token);
    report.load_id = "l1";
    report.view_bytes = 8;
    result.report = &report;
    result.layout = &fake.layout;
    result.handoff_token.data = token;
    result.handoff_token.len = sizeof token;
    result.handoff_socket = handoff.path;
    result.memory_bytes = CONTENT_BYTES;
    event.event_case = TENSORCAST__DAEMON__V1__MATERIALIZE_EVENT__EVENT_RESULT;
    event.result = &result;
    rpc_call_send(call, &event.base);
}

static void on_materialize(struct rpc_call *call, const ProtobufCMessage *message, void *context)
{
    const Tensorcast__Daemon__V1__MaterializeRequest *request = (const void *)message;
    Tensorcast__Daemon__V1__MaterializeEvent event = TENSORCAST__DAEMON__V1__MATERIALIZE_EVENT__INIT;
    Tensorcast__Daemon__V1__Progress progress = TENSORCAST__DAEMON__V1__PROGRESS__INIT;
    (void)context;
    if (refuses(call))
        return;
    note(request->load);
    event.event_case = TENSORCAST__DAEMON__V1__MATERIALIZE_EVENT__EVENT_PROGRESS;
    event.progress = &progress;
    progress.stage = "read";
    for (int i = 0; i < fake.n_progress; i++)
        rpc_call_send(call, &event.base);
    if (hangs(call))
        return;
    if (!fake.without_result)
        send_result(call);
    meet();
    rpc_call_end(call);
}

static void on_explain(struct rpc_call *call, const ProtobufCMessage *message, void *context)
{
    Tensorcast__Daemon__V1__ExplainResponse response = TENSORCAST__DAEMON__V1__EXPLAIN_RESPONSE__INIT;
    Tensorcast__Daemon__V1__LoadReport report = TENSORCAST__DAEMON__V1__LOAD_REPORT__INIT;
    (void)context;
    if (refuses(call))
        return;
    note(((const Tensorcast__Daemon__V1__ExplainRequest *)message)->load);
    report.executor = "generic_byte_range";
    response.report = fake.without_result ? NULL : &report;
    response.text = "a table";
    reply(call, &response.base);
}

static void on_prewarm(struct rpc_call *call, const ProtobufCMessage *message, void *context)
{
    Tensorcast__Daemon__V1__PrewarmResponse response = TENSORCAST__DAEMON__V1__PREWARM_RESPONSE__INIT;
    Tensorcast__Daemon__V1__LoadReport report = TENSORCAST__DAEMON__V1__LOAD_REPORT__INIT;
    (void)context;
    if (refuses(call))
        return;
    note(((const Tensorcast__Daemon__V1__PrewarmRequest *)message)->load);
    report.executor = "tensor_batched_local";
    response.report = &report;
    reply(call, &response.base);
}

static void on_release(struct rpc_call *call, const ProtobufCMessage *message, void *context)
{
    Tensorcast__Daemon__V1__ReleaseResponse response = TENSORCAST__DAEMON__V1__RELEASE_RESPONSE__INIT;
    (void)context;
    if (refuses(call))
        return;
    fake.all = ((const Tensorcast__Daemon__V1__ReleaseRequest *)message)->all;
    response.released_replicas = 2;
    response.released_bytes = 300;
    reply(call, &response.base);
}

static void on_status(struct rpc_call *call, const ProtobufCMessage *message, void *context)
{
    Tensorcast__Daemon__V1__StatusResponse response = TENSORCAST__DAEMON__V1__STATUS_RESPONSE__INIT;
    Tensorcast__Daemon__V1__ReplicaStatus replica = TENSORCAST__DAEMON__V1__REPLICA_STATUS__INIT, *replicas[] = {&replica};
    Tensorcast__Daemon__V1__CalibrationStatus costs = TENSORCAST__DAEMON__V1__CALIBRATION_STATUS__INIT,
                                              *all_costs[] = {&costs};
    (void)message, (void)context;
    if (refuses(call))
        return;
    replica.artifact = "disk:/m\x1b[2J";
    costs.device = "254:0";
    response.version = "7.8.9";
    response.pid = 42;
    response.state = "serving";
    response.host_budget_bytes = 1 << 30;
    response.n_replicas = 1, response.replicas = replicas;
    response.n_calibration = 1, response.calibration = all_costs;
    reply(call, &response.base);
}

static void on_verify(struct rpc_call *call, const ProtobufCMessage *message, void *context)
{
    const Tensorcast__Daemon__V1__VerifyRequest *request = (const void *)message;
    Tensorcast__Daemon__V1__VerifyResponse response = TENSORCAST__DAEMON__V1__VERIFY_RESPONSE__INIT;
    Tensorcast__Daemon__V1__VerifiedFile good = TENSORCAST__DAEMON__V1__VERIFIED_FILE__INIT,
                                         bad = TENSORCAST__DAEMON__V1__VERIFIED_FILE__INIT, *files[] = {&good, &bad};
    (void)context;
    if (refuses(call))
        return;
    good.name = "a";
    good.bytes = 7;
    good.status = "verified";
    good.by = "crc32c";
    good.healed = true;
    bad.name = "b";
    bad.status = "damaged";
    bad.damage = "b: bytes 0 to 3";
    response.n_files = 2;
    response.files = files;
    response.manifest_name = "model.manifest.json";
    response.manifest_json = request->make_manifest ? "{}" : "";
    rpc_call_reply(call, &response.base);
}

#define ROW(name, streams, handle)                                                                                          \
    {                                                                                                                       \
        &tensorcast__daemon__v1__store_daemon__descriptor, name, streams, handle                                            \
    }
static const struct rpc_method methods[] = {
    ROW("Resolve", false, on_resolve),     ROW("Explain", false, on_explain), ROW("Materialize", true, on_materialize),
    ROW("Prewarm", false, on_prewarm),     ROW("Release", false, on_release), ROW("Status", false, on_status),
    ROW("FetchSidecars", true, on_status), /* test_sidecars.c */
    ROW("Verify", false, on_verify),
};

static int start(void **state)
{
    static const char content[CONTENT_BYTES] = "abcdef";
    struct error error;
    (void)state;
    memset(&fake, 0, sizeof fake);
    tensorcast__daemon__v1__layout__init(&fake.layout);
    fake.layout.n_dtypes = 3, fake.layout.dtypes = dtypes;
    fake.layout.n_ranks = 3, fake.layout.ranks = ranks;
    fake.layout.n_dims = 4, fake.layout.dims = dims;
    fake.layout.n_offsets = 3, fake.layout.offsets = offsets;
    fake.layout.n_sizes = 3, fake.layout.sizes = sizes;
    rpc_fixture_prepare(&fixture, methods, sizeof methods / sizeof methods[0], NULL);
    assert_int_equal(rpc_fixture_start(&fixture, &error), 0);
    rpc_fixture_ready(&fixture);
    memcpy(first_folder, fixture.folder, sizeof first_folder);
    fake_handoff_start(&handoff, first_folder, content, sizeof content);
    client = tc_connect(fixture.socket, NULL);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    tc_disconnect(client);
    fake_handoff_stop(&handoff);
    rpc_fixture_stop(&fixture);
    rmdir(first_folder);
    return 0;
}

static const struct tc_slice rows[] = {{1, 3}, {0, TC_OPEN_END}};
static const struct tc_view_item items[] = {{"w", 2, rows}, {"empty", 0, NULL}, {"s", 0, NULL}};
static const struct tc_view view = {items, 3, 0};

static struct tc_load *load_it(const struct tc_options *options, struct tc_error *error)
{
    memset(error, 0, sizeof *error);
    meet();
    struct tc_load *load = tc_load_view(client, "disk:/m", &view, options, error);
    meet();
    return load;
}

static void assert_load_fails(int code, const char *reason)
{
    struct tc_error error;
    assert_null(load_it(&(struct tc_options){.timeout_ms = 20000}, &error));
    assert_int_equal(error.code, code);
    assert_string_equal(error.reason, reason);
    assert_true(error.message[0]);
}

static bool no_lease(void *data)
{
    (void)data;
    return handoff.leases == 0;
}

/* --- finding the daemon ------------------------------------------------------------------------------------------ */

static void the_socket_is_the_argument_then_the_environment_then_the_default(void **state)
{
    static const struct {
        const char *given, *environment, *chosen;
    } cases[] = {{"/a", "/b", "/a"},
                 {"unix:/a", NULL, "/a"},
                 {NULL, "/b", "/b"},
                 {"", "unix:/b", "/b"},
                 {NULL, NULL, "/run/tensorcast/daemon.sock"},
                 {NULL, "", "/run/tensorcast/daemon.sock"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        unsetenv("TENSORCAST_SOCKET");
        if (cases[i].environment)
            setenv("TENSORCAST_SOCKET", cases[i].environment, 1);
        struct tc_client *one = tc_connect(cases[i].given, NULL);
        assert_string_equal(tc_socket_path(one), cases[i].chosen);
        tc_disconnect(one);
    }
    unsetenv("TENSORCAST_SOCKET");
    tc_disconnect(NULL);
}

static void a_socket_path_may_have_107_bytes_and_no_more(void **state)
{
    char path[109] = "/";
    struct tc_error error;
    (void)state;
    memset(path + 1, 'x', 107);
    assert_null(tc_connect(path, &error));
    assert_int_equal(error.code, ERROR_INVALID_ARGUMENT);
    path[107] = '\0';
    struct tc_client *one = tc_connect(path, &error);
    assert_non_null(one);
    tc_disconnect(one);
}

static void without_a_daemon_the_error_is_unavailable_and_names_the_socket(void **state)
{
    struct tc_error error;
    char *json;
    (void)state;
    struct tc_client *nobody = tc_connect("/tmp/no-such-daemon.sock", NULL);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(tc_status(nobody, 0, &json, NULL, &error), -1);
        assert_int_equal(error.code, ERROR_UNAVAILABLE);
        assert_string_equal(error.reason, "DAEMON_UNREACHABLE");
        assert_non_null(strstr(error.message, "/tmp/no-such-daemon.sock"));
    }
    assert_int_equal(tc_status(nobody, 0, &json, NULL, NULL), -1); /* who does not care need not say where */
    tc_disconnect(nobody);
}

static void a_daemon_that_was_restarted_answers_the_next_call(void **state)
{
    struct tc_error error;
    struct error cause;
    (void)state;
    assert_int_equal(tc_release(client, NULL, 0, NULL, NULL, &error), 0);
    char socket[sizeof fixture.socket];
    memcpy(socket, fixture.socket, sizeof socket);
    for (int i = 0; i < 3; i++) {
        rpc_fixture_stop(&fixture);
        assert_int_equal(tc_release(client, NULL, 0, NULL, NULL, &error), -1);
        assert_int_equal(error.code, ERROR_UNAVAILABLE);
        rpc_fixture_prepare(&fixture, methods, sizeof methods / sizeof methods[0], NULL);
        memcpy(fixture.socket, socket, sizeof socket);
        assert_int_equal(rpc_fixture_start(&fixture, &cause), 0);
        rpc_fixture_ready(&fixture);
        assert_int_equal(tc_release(client, NULL, 0, NULL, NULL, &error), 0);
    }
    rpc_fixture_stop(&fixture); /* and one that nobody noticed to be gone */
    rpc_fixture_prepare(&fixture, methods, sizeof methods / sizeof methods[0], NULL);
    memcpy(fixture.socket, socket, sizeof socket);
    assert_int_equal(rpc_fixture_start(&fixture, &cause), 0);
    assert_int_equal(tc_release(client, NULL, 0, NULL, NULL, &error), 0);
}

/* --- artifacts --------------------------------------------------------------------------------------------------- */

static void an_artifact_tells_what_it_holds(void **state)
{
    struct tc_error error;
    struct tc_tensor_info info;
    uint64_t bytes;
    (void)state;
    struct tc_artifact *artifact = tc_resolve(client, "disk:/m", TC_RESOLVE_INDEXES, 0, &error);
    assert_non_null(artifact);
    assert_string_equal(tc_artifact_reference(artifact), "disk:/m");
    assert_string_equal(tc_artifact_identity(artifact), "1d");
    assert_int_equal(tc_artifact_total_bytes(artifact), 8);
    assert_int_equal(tc_artifact_n_files(artifact), 1);
    assert_string_equal(tc_artifact_file(artifact, 0, &bytes), "model.safetensors");
    assert_int_equal(bytes, 4711);
    assert_string_equal(tc_artifact_index_json(artifact, false), "{}");
    assert_string_equal(tc_artifact_index_json(artifact, true), "");
    assert_int_equal(tc_artifact_n_tensors(artifact), 3);
    tc_artifact_tensor(artifact, 1, &info);
    assert_string_equal(info.name, "empty");
    assert_string_equal(info.dtype, "F32");
    assert_int_equal(info.rank, 2);
    assert_int_equal(info.shape[0], 0);
    assert_int_equal(info.shape[1], 4);
    tc_artifact_tensor(artifact, 2, &info);
    assert_int_equal(info.rank, 0);
    tc_artifact_release(artifact);
    tc_artifact_release(NULL);
}

static void a_description_that_contradicts_itself_is_refused(void **state)
{
    struct tc_error error;
    (void)state;
    fake.layout.n_dtypes = 2;
    meet();
    assert_null(tc_resolve(client, "disk:/m", 0, 0, &error));
    assert_string_equal(error.reason, "BAD_ANSWER");
    meet();
    fake.layout.n_dtypes = 3;
    ranks[1] = 1;
    meet();
    assert_null(tc_resolve(client, "disk:/m", 0, 0, &error));
    meet();
    ranks[1] = 2;
}

/* --- loads ------------------------------------------------------------------------------------------------------- */

static void a_load_maps_its_tensors_under_the_names_of_the_view(void **state)
{
    struct tc_error error;
    struct tc_tensor tensor;
    uint64_t bytes;
    (void)state;
    struct tc_load *load = load_it(NULL, &error);
    assert_non_null(load);
    assert_true(fake.has_view && fake.n_names == 3 && fake.n_starts == 2 && fake.first_start == 1);
    assert_int_equal(handoff.token[0], 0xa5);
    const char *memory = tc_load_memory(load, &bytes);
    assert_int_equal((uintptr_t)memory % (2 << 20), 0);
    assert_string_equal(tc_load_device(load), "");
    char piece[8];
    assert_int_equal(tc_load_read(load, bytes - sizeof piece, sizeof piece, piece, &error), 0);
    assert_memory_equal(piece, memory + bytes - sizeof piece, sizeof piece);
    assert_int_equal(tc_load_read(load, bytes - sizeof piece + 1, sizeof piece, piece, &error), -1);
    assert_string_equal(error.reason, "OUTSIDE_MEMORY");
    assert_int_equal(bytes, CONTENT_BYTES);
    assert_int_equal(tc_load_n_tensors(load), 3);
    tc_load_tensor(load, 0, &tensor);
    assert_string_equal(tensor.name, "w");
    assert_string_equal(tensor.dtype, "U8");
    assert_memory_equal(tensor.data, "abcdef", 6);
    assert_true(tensor.rank == 2 && tensor.shape[1] == 3 && tensor.strides[0] == 3 && tensor.strides[1] == 1);
    assert_true(tc_load_find(load, "empty", &tensor) && tensor.bytes == 0 && tensor.offset == 64);
    assert_non_null(tensor.data);
    assert_true(tc_load_find(load, "s", &tensor) && tensor.rank == 0 && tensor.bytes == 2);
    assert_false(tc_load_find(load, "nobody", &tensor));
    tc_load_release(load);
}

static void without_a_view_the_names_are_the_daemons(void **state)
{
    struct tc_error error;
    struct tc_tensor tensor;
    (void)state;
    fake.layout.n_names = 3, fake.layout.names = names;
    struct tc_load *load = tc_load_view(client, "disk:/m", NULL, NULL, &error);
    assert_non_null(load);
    meet();
    assert_false(fake.has_view);
    assert_true(tc_load_find(load, "s", &tensor));
    tc_load_release(load);
}

static void the_report_names_every_tensor_and_its_digest_when_asked(void **state)
{
    struct tc_error error;
    (void)state;
    struct tc_load *load = load_it(NULL, &error);
    char *plain = tc_load_report_json(load, false), *hashed = tc_load_report_json(load, true);
    assert_non_null(strstr(plain, "\"load_id\":\"l1\""));
    assert_non_null(strstr(plain, "\"name\":\"empty\""));
    assert_null(strstr(plain, "sha256"));
    assert_non_null(strstr(hashed, "bef57ec7f53a6d40beb640a780a639c83bc29ac8a9816f1fc6c5c6dcd93c4721")); /* of abcdef */
    free(plain);
    free(hashed);
    tc_load_release(load);
}

static void the_lease_is_held_until_the_load_is_released_and_survives_the_client(void **state)
{
    struct tc_error error;
    struct tc_tensor tensor;
    (void)state;
    struct tc_load *load = load_it(NULL, &error);
    tc_disconnect(client);
    client = NULL;
    assert_int_equal(handoff.leases, 1);
    tc_load_tensor(load, 0, &tensor);
    assert_memory_equal(tensor.data, "abcdef", 6);
    tc_load_release(load);
    tc_load_release(NULL);
    rpc_fixture_await(no_lease, NULL, "the lease ends");
}

static void a_layout_beyond_the_memory_or_against_itself_is_refused(void **state)
{
    (void)state;
    offsets[2] = CONTENT_BYTES - 1;
    assert_load_fails(ERROR_INTERNAL, "BAD_ANSWER");
    offsets[2] = UINT64_MAX;
    assert_load_fails(ERROR_INTERNAL, "BAD_ANSWER");
    offsets[2] = 128;
    dims[0] = 3; /* 9 bytes in 6 */
    assert_load_fails(ERROR_INTERNAL, "BAD_ANSWER");
    dims[0] = 2;
    dims[3] = UINT64_MAX; /* of an empty tensor: no harm */
    struct tc_error error;
    struct tc_load *load = load_it(NULL, &error);
    assert_non_null(load);
    tc_load_release(load);
    dims[3] = 4;
    ranks[0] = 5;
    assert_load_fails(ERROR_INTERNAL, "BAD_ANSWER");
    ranks[0] = 2;
    dtypes[2] = 23;
    assert_load_fails(ERROR_INTERNAL, "BAD_ANSWER");
    dtypes[2] = 15;
    fake.layout.n_sizes = 2;
    assert_load_fails(ERROR_INTERNAL, "BAD_ANSWER");
    fake.layout.n_sizes = 3;
    fake.without_result = true;
    assert_load_fails(ERROR_INTERNAL, "BAD_ANSWER");
    rpc_fixture_await(no_lease, NULL, "failed loads hold no lease");
}

static void a_hand_off_that_is_not_sound_is_refused(void **state)
{
    (void)state;
    const struct handoff_answer sound = handoff.answer;
    handoff.answer.magic[0] = 'X';
    assert_load_fails(ERROR_INTERNAL, "BAD_HANDOFF");
    handoff.answer = sound;
    handoff.answer.version = 2;
    assert_load_fails(ERROR_UNIMPLEMENTED, "HANDOFF_VERSION");
    handoff.answer = sound;
    handoff.answer.memory_bytes = CONTENT_BYTES + 1; /* the descriptor has one byte less */
    assert_load_fails(ERROR_INTERNAL, "BAD_HANDOFF");
    handoff.answer.memory_bytes = UINT64_MAX;
    assert_load_fails(ERROR_INTERNAL, "BAD_HANDOFF");
    handoff.answer = sound;
    handoff.n_descriptors = 0;
    assert_load_fails(ERROR_INTERNAL, "BAD_HANDOFF");
    handoff.n_descriptors = 2;
    assert_load_fails(ERROR_INTERNAL, "BAD_HANDOFF");
    handoff.n_descriptors = 16; /* more than the control buffer holds */
    assert_load_fails(ERROR_INTERNAL, "BAD_HANDOFF");
    handoff.n_descriptors = 1;
    handoff.mood = FAKE_CUTS_SHORT;
    assert_load_fails(ERROR_INTERNAL, "BAD_HANDOFF");
    handoff.mood = FAKE_CLOSES;
    assert_load_fails(ERROR_UNAVAILABLE, "HANDOFF_REFUSED");
    snprintf(handoff.path, sizeof handoff.path, "%s/nobody", first_folder);
    assert_load_fails(ERROR_UNAVAILABLE, "HANDOFF_UNREACHABLE");
    snprintf(handoff.path, sizeof handoff.path, "%s/daemon.handoff", first_folder);
    rpc_fixture_await(no_lease, NULL, "failed loads hold no lease");
}

static void a_hand_off_that_never_comes_ends_with_the_deadline(void **state)
{
    struct tc_error error;
    (void)state;
    handoff.mood = FAKE_STAYS_SILENT;
    assert_null(load_it(&(struct tc_options){.timeout_ms = 100}, &error));
    assert_int_equal(error.code, ERROR_DEADLINE_EXCEEDED);
}

static void options_travel_with_the_request(void **state)
{
    struct tc_error error;
    (void)state;
    struct tc_options options = {.group_id = "g", .rank = 3, .world_size = 4};
    tc_load_release(load_it(&options, &error));
    assert_int_equal(fake.rank, 3);
    options.group_id = NULL;
    tc_load_release(load_it(&options, &error));
    assert_int_equal(fake.rank, -1);
}

static void an_empty_view_is_not_mistaken_for_no_view(void **state)
{
    static const struct tc_view nothing;
    struct tc_error error;
    (void)state;
    fake.error = (struct error){.code = ERROR_INVALID_ARGUMENT, .reason = "EMPTY_VIEW", .message = "an empty view"};
    meet();
    assert_null(tc_load_view(client, "disk:/m", &nothing, NULL, &error));
    meet();
    fake.error.code = 0;
    meet();
    assert_null(tc_load_view(client, "disk:/m", &nothing, NULL, &error));
    meet();
    assert_true(fake.has_view);
}

/* --- errors, progress, cancel ------------------------------------------------------------------------------------ */

static void errors_of_the_daemon_keep_code_reason_and_message(void **state)
{
    (void)state;
    fake.error = (struct error){.code = ERROR_DATA_LOSS, .reason = "TORN_FILE", .message = "m.safetensors is torn"};
    struct tc_error error;
    assert_null(load_it(NULL, &error));
    assert_int_equal(error.code, ERROR_DATA_LOSS);
    assert_string_equal(error.reason, "TORN_FILE");
    assert_string_equal(error.message, "m.safetensors is torn");
    assert_string_equal(tc_code_name(error.code), "DATA_LOSS");
}

static void unavailable_of_the_daemon_names_the_socket_and_is_not_asked_twice(void **state)
{
    struct tc_error error;
    (void)state;
    fake.error = (struct error){.code = ERROR_UNAVAILABLE, .reason = "SHUTTING_DOWN", .message = "bye"};
    assert_int_equal(tc_release(client, NULL, 0, NULL, NULL, &error), -1);
    assert_string_equal(error.reason, "SHUTTING_DOWN");
    assert_non_null(strstr(error.message, fixture.socket));
    assert_int_equal(fake.calls, 1);
}

static void a_passed_deadline_comes_back_as_such(void **state)
{
    struct tc_error error;
    (void)state;
    fake.hangs = true;
    assert_null(load_it(&(struct tc_options){.timeout_ms = 50}, &error));
    assert_int_equal(error.code, ERROR_DEADLINE_EXCEEDED);
    assert_null(tc_resolve(client, "disk:/m", 0, 50, &error));
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

static void progress_is_told_seldom_and_once_at_the_end(void **state)
{
    struct told told = {0};
    struct tc_error error;
    (void)state;
    fake.n_progress = 12; /* in a burst */
    struct tc_load *load = load_it(&(struct tc_options){.progress = on_progress, .data = &told}, &error);
    assert_non_null(load);
    assert_string_equal(told.last, "done");
    assert_true(told.calls >= 2 && told.calls < 14);
    tc_load_release(load);
}

static bool daemon_forgot(void *data)
{
    (void)data;
    return fake.held == NULL;
}

static void progress_may_end_a_load_early(void **state)
{
    struct told told = {.stop_at = 1};
    struct tc_error error;
    (void)state;
    fake.n_progress = 1;
    fake.hangs = true;
    assert_null(load_it(&(struct tc_options){.progress = on_progress, .data = &told}, &error));
    assert_int_equal(error.code, ERROR_CANCELLED);
    rpc_fixture_await(daemon_forgot, NULL, "the daemon is told");
}

static bool daemon_holds(void *data)
{
    (void)data;
    return fake.held != NULL;
}

static void *raise_when_held(void *cancel)
{
    rpc_fixture_await(daemon_holds, NULL, "the daemon has the call");
    tc_cancel_raise(cancel);
    return NULL;
}

static void another_thread_may_cancel(void **state)
{
    struct tc_error error;
    pthread_t thread;
    (void)state;
    fake.hangs = true;
    struct tc_cancel *cancel = tc_cancel_create();
    pthread_create(&thread, NULL, raise_when_held, cancel);
    assert_null(load_it(&(struct tc_options){.cancel = cancel}, &error));
    assert_int_equal(error.code, ERROR_CANCELLED);
    pthread_join(thread, NULL);
    rpc_fixture_await(daemon_forgot, NULL, "the daemon is told");
    assert_null(load_it(&(struct tc_options){.cancel = cancel}, &error)); /* it stays raised */
    assert_int_equal(error.code, ERROR_CANCELLED);
    tc_cancel_destroy(cancel);
}

/* --- threads and processes --------------------------------------------------------------------------------------- */

static void *load_often(void *unused)
{
    struct tc_error error;
    struct tc_tensor tensor;
    (void)unused;
    for (int i = 0; i < 10; i++) {
        struct tc_load *load = tc_load_view(client, "disk:/m", &view, NULL, &error);
        if (!load || !tc_load_find(load, "w", &tensor) || memcmp(tensor.data, "abcdef", 6) != 0)
            return "wrong";
        tc_load_release(load);
    }
    return NULL;
}

static void threads_share_a_client(void **state)
{
    pthread_t threads[8];
    void *wrong;
    (void)state;
    for (size_t i = 0; i < 8; i++)
        pthread_create(&threads[i], NULL, load_often, NULL);
    for (size_t i = 0; i < 8; i++) {
        pthread_join(threads[i], &wrong);
        assert_null(wrong);
    }
}

static const struct tc_load *shared_load;

static void *find_once(void *unused)
{
    struct tc_tensor tensor;
    (void)unused;
    return tc_load_find(shared_load, "s", &tensor) ? NULL : "not found";
}

static void threads_may_look_up_names_in_one_load(void **state)
{
    pthread_t threads[4];
    struct tc_error error;
    void *wrong;
    (void)state;
    struct tc_load *load = load_it(NULL, &error);
    shared_load = load;
    for (size_t i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, find_once, NULL);
    for (size_t i = 0; i < 4; i++) {
        pthread_join(threads[i], &wrong);
        assert_null(wrong);
    }
    tc_load_release(load);
}

static int exit_code_of(pid_t child)
{
    int status;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void a_forked_child_reads_what_it_inherited_and_is_told_to_connect_itself(void **state)
{
    struct tc_error error;
    struct tc_tensor tensor;
    (void)state;
    struct tc_load *load = load_it(NULL, &error);
    tc_load_tensor(load, 0, &tensor);
    pid_t child = fork();
    if (child == 0) {
        bool read = memcmp(tensor.data, "abcdef", 6) == 0;
        bool refused = tc_release(client, NULL, 1000, NULL, NULL, &error) == -1 && error.code == ERROR_FAILED_PRECONDITION;
        tc_disconnect(client);
        _exit(read && refused ? 0 : 1);
    }
    assert_int_equal(exit_code_of(child), 0);
    assert_int_equal(handoff.leases, 1); /* the child's exit ended nothing */
    tc_load_release(load);
    assert_int_equal(tc_release(client, NULL, 0, NULL, NULL, &error), 0);
}

/* --- the small calls --------------------------------------------------------------------------------------------- */

static void explain_and_prewarm_bring_a_report_and_no_memory(void **state)
{
    struct tc_error error;
    char *json, *text;
    (void)state;
    assert_int_equal(tc_explain(client, "disk:/m", &view, NULL, &json, &text, &error), 0);
    assert_non_null(strstr(json, "\"executor\":\"generic_byte_range\""));
    assert_null(strstr(json, "tensors"));
    assert_string_equal(text, "a table");
    meet();
    assert_string_equal(fake.first_name, "w");
    free(json);
    free(text);
    assert_int_equal(tc_explain(client, "disk:/m", NULL, NULL, NULL, NULL, &error), 0);
    assert_int_equal(tc_prewarm(client, "disk:/m", &view, NULL, &json, &error), 0);
    assert_non_null(strstr(json, "tensor_batched_local"));
    free(json);
    meet();
    fake.without_result = true;
    meet();
    assert_int_equal(tc_explain(client, "disk:/m", NULL, NULL, &json, NULL, &error), -1);
    assert_string_equal(error.reason, "BAD_ANSWER");
    assert_int_equal(handoff.leases, 0);
}

static void release_tells_what_it_released(void **state)
{
    struct tc_error error;
    uint64_t replicas = 0, bytes = 0;
    (void)state;
    assert_int_equal(tc_release(client, NULL, 0, &replicas, &bytes, &error), 0);
    meet();
    assert_true(fake.all && replicas == 2 && bytes == 300);
    meet();
    assert_int_equal(tc_release(client, "disk:/m", 0, NULL, NULL, &error), 0);
    meet();
    assert_false(fake.all);
}

static void a_verification_tells_of_every_file(void **state)
{
    struct tc_error error;
    struct tc_verified_file file;
    (void)state;
    struct tc_verification *verification = tc_verify(client, "disk:/m", true, NULL, &error);
    assert_int_equal(tc_verification_n_files(verification), 2);
    tc_verification_file(verification, 0, &file);
    assert_string_equal(file.status, "verified");
    assert_true(file.bytes == 7 && file.healed && !file.damage[0]);
    tc_verification_file(verification, 1, &file);
    assert_string_equal(file.damage, "b: bytes 0 to 3");
    assert_string_equal(tc_verification_manifest(verification), "{}");
    assert_string_equal(tc_verification_manifest_name(verification), "model.manifest.json");
    tc_verification_release(verification);
    verification = tc_verify(client, "disk:/m", false, NULL, &error);
    assert_string_equal(tc_verification_manifest(verification), "");
    tc_verification_release(verification);
}

static void status_comes_as_json_and_as_a_page_without_control_characters(void **state)
{
    struct tc_error error;
    char *json, *text;
    (void)state;
    assert_int_equal(tc_status(client, 0, &json, &text, &error), 0);
    assert_non_null(strstr(json, "\"memory\":{\"host_budget_bytes\":1073741824,"));
    assert_non_null(strstr(json, "\"calibration\":{\"254:0\":{"));
    assert_non_null(strstr(text, "7.8.9"));
    assert_non_null(strstr(text, "254:0"));
    assert_null(strchr(text, '\x1b'));
    free(json);
    free(text);
}

int main(void)
{
#define SERVED(test) cmocka_unit_test_setup_teardown(test, start, stop)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_socket_is_the_argument_then_the_environment_then_the_default),
        cmocka_unit_test(a_socket_path_may_have_107_bytes_and_no_more),
        cmocka_unit_test(without_a_daemon_the_error_is_unavailable_and_names_the_socket),
        SERVED(a_daemon_that_was_restarted_answers_the_next_call),
        SERVED(an_artifact_tells_what_it_holds),
        SERVED(a_description_that_contradicts_itself_is_refused),
        SERVED(a_load_maps_its_tensors_under_the_names_of_the_view),
        SERVED(without_a_view_the_names_are_the_daemons),
        SERVED(the_report_names_every_tensor_and_its_digest_when_asked),
        SERVED(the_lease_is_held_until_the_load_is_released_and_survives_the_client),
        SERVED(a_layout_beyond_the_memory_or_against_itself_is_refused),
        SERVED(a_hand_off_that_is_not_sound_is_refused),
        SERVED(a_hand_off_that_never_comes_ends_with_the_deadline),
        SERVED(options_travel_with_the_request),
        SERVED(an_empty_view_is_not_mistaken_for_no_view),
        SERVED(errors_of_the_daemon_keep_code_reason_and_message),
        SERVED(unavailable_of_the_daemon_names_the_socket_and_is_not_asked_twice),
        SERVED(a_passed_deadline_comes_back_as_such),
        SERVED(progress_is_told_seldom_and_once_at_the_end),
        SERVED(progress_may_end_a_load_early),
        SERVED(another_thread_may_cancel),
        SERVED(threads_share_a_client),
        SERVED(threads_may_look_up_names_in_one_load),
        SERVED(a_forked_child_reads_what_it_inherited_and_is_told_to_connect_itself),
        SERVED(explain_and_prewarm_bring_a_report_and_no_memory),
        SERVED(release_tells_what_it_released),
        SERVED(a_verification_tells_of_every_file),
        SERVED(status_comes_as_json_and_as_a_page_without_control_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
