/* ActivationStore: a call to a writer, and its answer. What becomes of writers is activations/activation_writer.h's. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "activations/activation_writer.h"
#include "api/api_job.h"
#include "base/memory.h"
#include "base/metadata.h"
#include "base/quota.h"
#include "resolve/activation_store.h"
#include "tensorcast/daemon/v1/activation_store.pb-c.h"
#include "upload/upload_queue.h"

#define MIN_SEGMENT_BYTES ((uint64_t)1 << 10)
#define MAX_SEGMENT_BYTES ((uint64_t)1 << 44)
#define DEFAULT_SEGMENT_BYTES ((uint64_t)1 << 30)
#define MAX_MEMORY_BYTES ((uint64_t)4 << 30) /* addresses of this process, for each writer */

struct activation_call {
    struct writer_call call; /* first */
    struct rpc_call *rpc;
};

static struct activation_call *new_call(struct rpc_call *rpc, void (*done)(struct writer_call *call))
{
    struct activation_call *call = memory_alloc(sizeof *call);
    call->call.done = done;
    call->rpc = rpc;
    return call;
}

/* The daemon would have to remember each file's user. Its knowledge of stores is not told to others either. */
static int check_user(const struct rpc_call *rpc, struct error *error)
{
    uid_t uid = rpc_call_uid(rpc);
    if (quota_is_privileged(uid))
        return 0;
    return fail(error, ERROR_FAILED_PRECONDITION, "NOT_THE_DAEMONS_USER",
                "this daemon runs as user %u and writes activation stores and uploads for that user and root alone, not "
                "for user %u: run 'tensorcastd --user' for the job",
                (unsigned)geteuid(), (unsigned)uid);
}

static int fail_columns(struct error *error)
{
    return fail(
        error, ERROR_INVALID_ARGUMENT, "BAD_COLUMNS",
        "the columns of a sample do not fit together: layers, dtypes and ranks have an entry for each array, dims as many "
        "as the ranks say, narrowed positions in layers");
}

/* Of all arrays, one behind the other. */
static int copy_shapes(const Tensorcast__Daemon__V1__AppendActivationsRequest *wire, struct sample_tensor *tensors,
                       struct append_part *part, struct error *error)
{
    uint64_t *dims = arena_try_array(&part->arena, wire->n_dims + 1, sizeof *dims, error);
    size_t at = 0;
    if (!dims)
        return -1;
    for (size_t i = 0; i < wire->n_dims; i++)
        dims[i] = wire->dims[i];
    for (size_t i = 0; i < wire->n_layers; i++) {
        tensors[i] = (struct sample_tensor){.layer = wire->layers[i], .rank = wire->ranks[i], .shape = dims + at};
        if (wire->ranks[i] > wire->n_dims - at || !wire->dtypes[i] || wire->dtypes[i] > DTYPE_COUNT)
            return fail_columns(error);
        tensors[i].dtype = (enum dtype)(wire->dtypes[i] - 1);
        at += wire->ranks[i];
    }
    return at == wire->n_dims ? 0 : fail_columns(error);
}

/* The part, with a checked sample when it is the first one; everything is copied into its arena, which is the caller's to end
 * after a failure. */
static int read_part(const Tensorcast__Daemon__V1__AppendActivationsRequest *wire, struct append_part *part,
                     struct error *error)
{
    *part = (struct append_part){.has_sample = wire->offset == 0,
                                 .sample = {.id = wire->sample, .n_tensors = wire->n_layers},
                                 .offset = wire->offset,
                                 .memory_offset = wire->memory_offset,
                                 .bytes = wire->bytes};
    if (!part->has_sample)
        return 0;
    if (wire->n_dtypes != wire->n_layers || wire->n_ranks != wire->n_layers)
        return fail_columns(error);
    struct sample_tensor *tensors = arena_try_array(&part->arena, wire->n_layers + 1, sizeof *tensors, error);
    if (!tensors || copy_shapes(wire, tensors, part, error) < 0)
        return -1;
    for (size_t i = 0; i < wire->n_narrowed; i++) {
        if (wire->narrowed[i] >= wire->n_layers)
            return fail_columns(error);
        tensors[wire->narrowed[i]].is_narrowed = true;
    }
    part->sample.info_bytes = strlen(wire->info);
    char *info = arena_try_bytes(&part->arena, part->sample.info_bytes + 1, error);
    if (!info)
        return -1;
    memcpy(info, wire->info, part->sample.info_bytes + 1);
    part->sample.info = info;
    return sample_check(&part->sample, tensors, error);
}

static void write_resume(const struct host_resume *resume, Tensorcast__Daemon__V1__ActivationsResume *wire)
{
    tensorcast__daemon__v1__activations_resume__init(wire);
    wire->has_samples = resume->has_samples;
    wire->last_sample = resume->has_samples ? resume->last_sample : 0;
    wire->next_segment = resume->next_segment;
    wire->samples = resume->n_samples;
    wire->segments = resume->n_segments;
    wire->bytes = resume->bytes;
}

/* --- Open --------------------------------------------------------------------------------------------------------------- */

/* The answer of a call that has ended, or its error. */
static void answer_call(struct writer_call *done, const ProtobufCMessage *response)
{
    struct activation_call *call = (struct activation_call *)done;
    if (done->has_failed)
        rpc_call_fail(call->rpc, &done->error);
    else
        rpc_call_reply(call->rpc, response);
    free(call);
}

static void answer_open(struct writer_call *done)
{
    Tensorcast__Daemon__V1__OpenActivationsResponse response = TENSORCAST__DAEMON__V1__OPEN_ACTIVATIONS_RESPONSE__INIT;
    Tensorcast__Daemon__V1__ActivationsResume resume;
    unsigned char id[WRITER_ID_BYTES] = {0};
    if (!done->has_failed)
        memcpy(id, activation_writer_id(done->writer), sizeof id);
    write_resume(&done->resume, &resume);
    response.writer = (ProtobufCBinaryData){sizeof id, id};
    response.resume = &resume;
    answer_call(done, &response.base);
}

static int check_open(const Tensorcast__Daemon__V1__OpenActivationsRequest *request, struct error *error)
{
    if (request->host > ACTIVATION_MAX_HOST)
        return fail(error, ERROR_INVALID_ARGUMENT, "BAD_HOST", "%u is no number of a host: those are 0 to %d", request->host,
                    ACTIVATION_MAX_HOST);
    if (request->drop_local && !*request->upload)
        return fail(error, ERROR_INVALID_ARGUMENT, "NO_UPLOAD",
                    "a segment goes from the disk when it was uploaded, and upload names no place");
    if (request->segment_bytes && (request->segment_bytes < MIN_SEGMENT_BYTES || request->segment_bytes > MAX_SEGMENT_BYTES))
        return fail(error, ERROR_INVALID_ARGUMENT, "BAD_SEGMENT_BYTES", "segment_bytes is 1 KiB to 16 TiB");
    return 0;
}

void method_activations_open(struct rpc_call *rpc, const ProtobufCMessage *message, void *context)
{
    const Tensorcast__Daemon__V1__OpenActivationsRequest *request =
        (const Tensorcast__Daemon__V1__OpenActivationsRequest *)message;
    const struct api *api = context;
    struct error error;
    struct writer_options options = {
        .host = request->host,
        .segment_bytes = request->segment_bytes ? request->segment_bytes : DEFAULT_SEGMENT_BYTES,
        .uid = rpc_call_uid(rpc),
        .is_overlapped = request->overlapped,
        .account = rpc_call_account(rpc),
        .upload = {*request->upload ? memory_copy_text(request->upload) : NULL, request->drop_local}};
    char *path = check_user(rpc, &error) < 0 ? NULL : store_path_parse(request->store, &error);
    int failed = !path || check_open(request, &error) < 0 ||
                 handoff_take_region(api->handoff, request->memory.data, request->memory.len, options.uid, &options.region,
                                     &error) < 0;
    if (!failed && (options.region->kind != DEVICE_REGION_HOST || options.region->bytes > MAX_MEMORY_BYTES))
        failed = fail(&error, ERROR_INVALID_ARGUMENT, "BAD_MEMORY", "samples are appended from a memfd of at most 4 GiB");
    if (failed) {
        device_region_close(options.region);
        rpc_call_fail(rpc, &error);
    } else {
        options.path = path;
        activation_writer_open(api->activations, &options, &new_call(rpc, answer_open)->call);
    }
    free(options.upload.reference);
    free(path);
}

/* --- Append, Commit, Close ---------------------------------------------------------------------------------------------- */

/* NULL: the call was refused. */
static struct activation_writer *find_writer(const struct api *api, struct rpc_call *rpc, const ProtobufCBinaryData *id)
{
    struct error error;
    struct activation_writer *writer = activation_writer_find(api->activations, id->data, id->len, rpc_call_uid(rpc));
    if (writer)
        return writer;
    fail(&error, ERROR_ABORTED, "WRITER_GONE",
         "there is no such writer any more: it was closed, or the daemon was started anew; open the store again and go on "
         "behind "
         "its last sample");
    rpc_call_fail(rpc, &error);
    return NULL;
}

static void answer_append(struct writer_call *done)
{
    Tensorcast__Daemon__V1__AppendActivationsResponse response = TENSORCAST__DAEMON__V1__APPEND_ACTIVATIONS_RESPONSE__INIT;
    response.block_offset = done->block_offset;
    answer_call(done, &response.base);
}

void method_activations_append(struct rpc_call *rpc, const ProtobufCMessage *message, void *context)
{
    const Tensorcast__Daemon__V1__AppendActivationsRequest *request =
        (const Tensorcast__Daemon__V1__AppendActivationsRequest *)message;
    struct activation_writer *writer = find_writer(context, rpc, &request->writer);
    struct append_part part;
    struct error error;
    if (!writer)
        return;
    struct metadata_account before = metadata_enter(rpc_call_account(rpc));
    int failed = read_part(request, &part, &error);
    metadata_enter(before);
    if (failed) {
        arena_fini(&part.arena);
        rpc_call_fail(rpc, &error);
        return;
    }
    rpc_call_drop_request(rpc);
    activation_writer_append(writer, &part, &new_call(rpc, answer_append)->call);
}

static void answer_resume(struct writer_call *done)
{
    Tensorcast__Daemon__V1__ActivationsResume response;
    write_resume(&done->resume, &response);
    answer_call(done, &response.base);
}

void method_activations_commit(struct rpc_call *rpc, const ProtobufCMessage *message, void *context)
{
    const Tensorcast__Daemon__V1__CommitActivationsRequest *request =
        (const Tensorcast__Daemon__V1__CommitActivationsRequest *)message;
    struct activation_writer *writer = find_writer(context, rpc, &request->writer);
    if (writer)
        activation_writer_commit(writer, &new_call(rpc, answer_resume)->call);
}

void method_activations_close(struct rpc_call *rpc, const ProtobufCMessage *message, void *context)
{
    const Tensorcast__Daemon__V1__CloseActivationsRequest *request =
        (const Tensorcast__Daemon__V1__CloseActivationsRequest *)message;
    struct activation_writer *writer = find_writer(context, rpc, &request->writer);
    if (writer)
        activation_writer_close(writer, &new_call(rpc, answer_resume)->call);
}

/* --- Describe ----------------------------------------------------------------------------------------------------------- */

/* A store may have as many hosts as its owner likes: their list is made and packed on helpers. */
struct describe_job {
    struct api_job job;       /* first */
    char *path;               /* NULL = of a store that is only read, nothing but its hosts */
    struct store_host *known; /* of a store that is written here */
    size_t n_known;
    struct rpc_out *answer;
};

static void destroy_describe(struct api_job *job)
{
    struct describe_job *describe = (struct describe_job *)job;
    free(describe->known);
    free(describe->path);
    free(describe);
}

struct host_row { /* of one host's message */
    Tensorcast__Daemon__V1__ActivationHost host;
    Tensorcast__Daemon__V1__ActivationUploads uploads;
    struct upload_counts counts;
};

static int pack_rows(struct api_job *job, struct host_row *rows, size_t n)
{
    Tensorcast__Daemon__V1__DescribeActivationsResponse response =
        TENSORCAST__DAEMON__V1__DESCRIBE_ACTIVATIONS_RESPONSE__INIT;
    response.hosts = metadata_array(n + 1, sizeof *response.hosts, &job->error);
    for (size_t i = 0; response.hosts && i < n; i++)
        response.hosts[response.n_hosts++] = &rows[i].host;
    struct rpc_out *answer = response.hosts ? rpc_pack(&response.base, &job->error) : NULL;
    metadata_free(response.hosts);
    ((struct describe_job *)job)->answer = answer;
    return answer ? 0 : -1;
}

/* What its folder tells. */
static int describe_read(struct api_job *job)
{
    uint32_t *hosts;
    size_t n;
    if (activation_store_hosts(job->reference, &job->source, &hosts, &n, &job->error) < 0)
        return -1;
    struct host_row *rows = metadata_array(n + 1, sizeof *rows, &job->error);
    for (size_t i = 0; rows && i < n; i++) {
        tensorcast__daemon__v1__activation_host__init(&rows[i].host);
        rows[i].host.host = hosts[i];
    }
    metadata_free(hosts);
    int failed = rows ? pack_rows(job, rows, n) : -1;
    metadata_free(rows);
    return failed;
}

/* What the daemon knows beyond the folder. */
static int describe_written(struct api_job *job)
{
    const struct describe_job *describe = (struct describe_job *)job;
    struct host_row *rows = metadata_array(describe->n_known + 1, sizeof *rows, &job->error);
    for (size_t i = 0; rows && i < describe->n_known; i++) {
        struct host_row *row = &rows[i];
        activations_upload_counts(job->api->activations, describe->path, describe->known[i].host, &row->counts);
        tensorcast__daemon__v1__activation_host__init(&row->host);
        tensorcast__daemon__v1__activation_uploads__init(&row->uploads);
        row->uploads.pending = row->counts.pending;
        row->uploads.failed = row->counts.failed;
        row->uploads.error = row->counts.error;
        row->host.host = describe->known[i].host;
        row->host.is_open = describe->known[i].is_open;
        row->host.uploads = &row->uploads;
    }
    int failed = rows ? pack_rows(job, rows, describe->n_known) : -1;
    metadata_free(rows);
    return failed;
}

static void reply_described(struct api_job *job)
{
    rpc_call_reply_packed(job->call, ((struct describe_job *)job)->answer);
    api_job_end(job);
}

void method_activations_describe(struct rpc_call *rpc, const ProtobufCMessage *message, void *context)
{
    const Tensorcast__Daemon__V1__DescribeActivationsRequest *request =
        (const Tensorcast__Daemon__V1__DescribeActivationsRequest *)message;
    const struct api *api = context;
    struct error error;
    bool is_allowed = request->hosts_only || check_user(rpc, &error) == 0;
    char *path = request->hosts_only || !is_allowed ? NULL : store_path_parse(request->store, &error);
    if (!path && !request->hosts_only) {
        rpc_call_fail(rpc, &error);
        return;
    }
    struct describe_job *describe = memory_alloc(sizeof *describe);
    describe->path = path;
    describe->n_known = path ? activations_hosts(api->activations, path, &describe->known) : 0;
    api_job_init(&describe->job, api, rpc, request->store, destroy_describe);
    api_job_run(&describe->job, path ? describe_written : describe_read, reply_described);
}
