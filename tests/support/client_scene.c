/* See client_scene.h. */
#include "tests/support/client_scene.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct client_scene client_scene;

/* Three tensors: U8 [2, 3] at 0, an empty F32 [0, 4] at 64, a BF16 scalar at 128. */
static Tensorcast__Daemon__V1__DType dtypes[] = {5, 18, 15};
static uint32_t ranks[] = {2, 2, 0};
static uint64_t dims[] = {2, 3, 0, 4}, offsets[] = {0, 64, 128}, sizes[] = {6, 0, 2};
static const char *names[] = {"w", "empty", "s"};

void client_scene_meet(void)
{
    static _Atomic int turn;
    turn++;
}

static void reply(struct rpc_call *call, const ProtobufCMessage *message)
{
    client_scene_meet();
    rpc_call_reply(call, message);
}

static bool refuses(struct rpc_call *call)
{
    client_scene_meet();
    client_scene.calls++;
    if (!client_scene.error.code)
        return false;
    const struct error error = client_scene.error;
    client_scene_meet();
    rpc_call_fail(call, &error);
    return true;
}

static void end_cancelled(void *data)
{
    client_scene.held = NULL;
    rpc_call_end(data);
}

static bool hangs(struct rpc_call *call)
{
    if (!client_scene.hangs)
        return false;
    rpc_call_on_cancel(call, end_cancelled, call);
    client_scene.held = call;
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
    response.n_dtypes = client_scene.layout.n_dtypes, response.dtypes = dtypes;
    response.n_ranks = 3, response.ranks = ranks;
    response.n_file_indexes = 3, response.file_indexes = file_indexes;
    response.n_sizes = 3, response.sizes = sizes;
    response.n_dims = 4, response.dims = dims;
    response.source_index_json = request->include_indexes ? "{}" : "";
    reply(call, &response.base);
}

static void note_targets(const Tensorcast__Daemon__V1__Targets *targets)
{
    tensorcast__daemon__v1__targets__free_unpacked(client_scene.targets, NULL);
    client_scene.targets = NULL;
    if (!targets)
        return;
    size_t bytes = tensorcast__daemon__v1__targets__get_packed_size(targets);
    unsigned char *packed = malloc(bytes);
    tensorcast__daemon__v1__targets__pack(targets, packed);
    client_scene.targets = tensorcast__daemon__v1__targets__unpack(NULL, bytes, packed);
    free(packed);
}

static void note(const Tensorcast__Daemon__V1__LoadRequest *load)
{
    note_targets(load->targets);
    client_scene.has_view = load->view != NULL;
    client_scene.memory = (int)load->memory;
    const Tensorcast__Daemon__V1__CollectiveLoadGroup *group = load->topology ? load->topology->group : NULL;
    client_scene.rank = group ? group->rank : -1;
    snprintf(client_scene.attempt, sizeof client_scene.attempt, "%s", group ? group->attempt : "");
    if (!load->view)
        return;
    client_scene.is_whole = load->view->whole;
    client_scene.is_by_source = load->view->placement == TENSORCAST__DAEMON__V1__PLACEMENT__PLACEMENT_SOURCE;
    client_scene.n_names = load->view->n_names;
    client_scene.n_starts = load->view->n_starts;
    client_scene.first_start = load->view->n_starts ? load->view->starts[0] : 0;
    snprintf(client_scene.first_name, sizeof client_scene.first_name, "%s", load->view->n_names ? load->view->names[0] : "");
}

enum { MOST_FILES = 160 };

static void name_files(Tensorcast__Daemon__V1__LoadResult *result)
{
    static Tensorcast__Daemon__V1__MappedFile files[MOST_FILES], *list[MOST_FILES];
    for (size_t i = 0; i < client_scene.n_files; i++) {
        tensorcast__daemon__v1__mapped_file__init(list[i] = &files[i]);
        files[i].name = "part.safetensors";
        files[i].bytes = CONTENT_BYTES;
    }
    result->n_files = client_scene.n_files;
    result->files = list;
    result->memory_bytes = 0;
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
    result.layout = &client_scene.layout;
    result.handoff_token.data = token;
    result.handoff_token.len = sizeof token;
    result.handoff_socket = client_scene.handoff_socket;
    result.memory_bytes = CONTENT_BYTES;
    Tensorcast__Daemon__V1__Layout nowhere = TENSORCAST__DAEMON__V1__LAYOUT__INIT;
    Tensorcast__Daemon__V1__IntoReport into = TENSORCAST__DAEMON__V1__INTO_REPORT__INIT;
    if (client_scene.targets) {
        report.into = &into;
        report.target_bytes = 42;
        result.layout = client_scene.layout.n_file_indexes ? result.layout : &nowhere;
        result.handoff_token.len = 0;
        result.memory_bytes = 0;
    }
    if (client_scene.layout.n_file_indexes)
        name_files(&result);
    if (client_scene.layout.n_file_indexes && !client_scene.n_files)
        result.handoff_token.len = 0;
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
    for (int i = 0; i < client_scene.n_progress; i++)
        rpc_call_send(call, &event.base);
    if (hangs(call))
        return;
    if (!client_scene.without_result)
        send_result(call);
    client_scene_meet();
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
    response.report = client_scene.without_result ? NULL : &report;
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
    client_scene.all = ((const Tensorcast__Daemon__V1__ReleaseRequest *)message)->all;
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
    response.handoff_socket = client_scene.handoff_socket;
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
    if (request->tell_progress) {
        Tensorcast__Daemon__V1__VerifyResponse early = TENSORCAST__DAEMON__V1__VERIFY_RESPONSE__INIT;
        Tensorcast__Daemon__V1__Progress progress = TENSORCAST__DAEMON__V1__PROGRESS__INIT;
        progress.stage = "read";
        progress.done_bytes = 3;
        progress.total_bytes = 7;
        early.progress = &progress;
        rpc_call_send(call, &early.base);
    }
    response.n_files = 2;
    response.files = files;
    response.manifest_name = "model.manifest.json";
    response.manifest_json = request->make_manifest ? "{}" : "";
    rpc_call_send(call, &response.base);
    rpc_call_end(call);
}

static void on_unpin(struct rpc_call *call, const ProtobufCMessage *message, void *context)
{
    Tensorcast__Daemon__V1__UnpinResponse response = TENSORCAST__DAEMON__V1__UNPIN_RESPONSE__INIT;
    (void)context;
    if (refuses(call))
        return;
    client_scene.all = ((const Tensorcast__Daemon__V1__UnpinRequest *)message)->all;
    response.replicas = 3;
    response.bytes = 300;
    reply(call, &response.base);
}

/* No traces. */
static void on_blame(struct rpc_call *call, const ProtobufCMessage *message, void *context)
{
    Tensorcast__Daemon__V1__BlameResponse response = TENSORCAST__DAEMON__V1__BLAME_RESPONSE__INIT;
    (void)message;
    (void)context;
    reply(call, &response.base);
}

#define ROW(name_, streams_, fn)                                                                                            \
    {                                                                                                                       \
        .service = &tensorcast__daemon__v1__store_daemon__descriptor, .name = (name_), .streams = (streams_),               \
        .handle = (fn)                                                                                                      \
    }
static const struct rpc_method methods[] = {
    ROW("Resolve", false, on_resolve), ROW("Explain", false, on_explain),     ROW("Materialize", true, on_materialize),
    ROW("Prewarm", false, on_prewarm), ROW("Release", false, on_release),     ROW("Status", false, on_status),
    ROW("Unpin", false, on_unpin),     ROW("FetchSidecars", true, on_status), /* test_sidecars.c */
    ROW("Verify", true, on_verify),    ROW("MakeFolder", true, on_status),    /* not asked for here */
    ROW("Blame", false, on_blame),

};

void client_scene_start_at(const char *socket)
{
    struct error error;
    rpc_fixture_prepare(&client_scene.fixture, methods, sizeof methods / sizeof methods[0], NULL);
    if (socket)
        memcpy(client_scene.fixture.socket, socket, strlen(socket) + 1);
    if (rpc_fixture_start(&client_scene.fixture, &error))
        abort();
}

int client_scene_start(void **state)
{
    static const char content[CONTENT_BYTES] = "abcdef";
    (void)state;
    memset(&client_scene, 0, sizeof client_scene);
    tensorcast__daemon__v1__layout__init(&client_scene.layout);
    client_scene.layout.names = names; /* not sent: n_names is 0 */
    client_scene.layout.n_dtypes = 3, client_scene.layout.dtypes = dtypes;
    client_scene.layout.n_ranks = 3, client_scene.layout.ranks = ranks;
    client_scene.layout.n_dims = 4, client_scene.layout.dims = dims;
    client_scene.layout.n_offsets = 3, client_scene.layout.offsets = offsets;
    client_scene.layout.n_sizes = 3, client_scene.layout.sizes = sizes;
    client_scene_start_at(NULL);
    rpc_fixture_ready(&client_scene.fixture);
    memcpy(client_scene.folder, client_scene.fixture.folder, sizeof client_scene.folder);
    fake_handoff_start(&client_scene.handoff, client_scene.folder, content, sizeof content);
    client_scene.handoff_socket = client_scene.handoff.path;
    client_scene.client = tc_connect(client_scene.fixture.socket, NULL);
    return 0;
}

int client_scene_stop(void **state)
{
    (void)state;
    tc_disconnect(client_scene.client);
    fake_handoff_stop(&client_scene.handoff);
    rpc_fixture_stop(&client_scene.fixture);
    note_targets(NULL); /* its thread has ended */
    rmdir(client_scene.folder);
    return 0;
}

static const struct tc_slice rows[] = {{1, 3}, {0, TC_OPEN_END}};
static const struct tc_view_item items[] = {{"w", 2, rows}, {"empty", 0, NULL}, {"s", 0, NULL}};
const struct tc_view client_scene_view = {items, 3, 0};

struct tc_load *client_scene_load(const struct tc_options *options, struct tc_error *error)
{
    memset(error, 0, sizeof *error);
    client_scene_meet();
    struct tc_load *load = tc_load_view(client_scene.client, "disk:/m", &client_scene_view, options, error);
    client_scene_meet();
    return load;
}
