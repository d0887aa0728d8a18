/* ActivationStore: a call to a writer, and its answer. What becomes of writers is activations/activation_writer.h's. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "activations/activation_writer.h"
#include "api/api_job.h"
#include "api/codec_activations.h"
#include "base/memory.h"
#include "base/metadata.h"
#include "base/quota.h"
#include "resolve/activation_store.h"
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

/* --- Open --------------------------------------------------------------------------------------------------------------- */

static void answer_open(struct writer_call *done)
{
    struct activation_call *call = (struct activation_call *)done;
    Tensorcast__Daemon__V1__OpenActivationsResponse response = TENSORCAST__DAEMON__V1__OPEN_ACTIVATIONS_RESPONSE__INIT;
    Tensorcast__Daemon__V1__ActivationsResume resume;
    unsigned char id[WRITER_ID_BYTES];
    if (done->has_failed) {
        rpc_call_fail(call->rpc, &done->error);
        free(call);
        return;
    }
    memcpy(id, activation_writer_id(done->writer), sizeof id);
    codec_resume(&done->resume, &resume);
    response.writer = (ProtobufCBinaryData){sizeof id, id};
    response.resume = &resume;
    rpc_call_reply(call->rpc, &response.base);
    free(call);
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

static int check_memory(const struct device_region *region, struct error *error)
{
    if (region->kind == DEVICE_REGION_HOST && region->bytes <= MAX_MEMORY_BYTES)
        return 0;
    return fail(error, ERROR_INVALID_ARGUMENT, "BAD_MEMORY", "samples are appended from a memfd of at most 4 GiB");
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
                                     &error) < 0 ||
                 check_memory(options.region, &error) < 0;
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
    struct activation_call *call = (struct activation_call *)done;
    Tensorcast__Daemon__V1__AppendActivationsResponse response = TENSORCAST__DAEMON__V1__APPEND_ACTIVATIONS_RESPONSE__INIT;
    response.block_offset = done->block_offset;
    if (done->has_failed)
        rpc_call_fail(call->rpc, &done->error);
    else
        rpc_call_reply(call->rpc, &response.base);
    free(call);
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
    int failed = codec_append_part(request, &part, &error);
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
    struct activation_call *call = (struct activation_call *)done;
    Tensorcast__Daemon__V1__ActivationsResume response;
    codec_resume(&done->resume, &response);
    if (done->has_failed)
        rpc_call_fail(call->rpc, &done->error);
    else
        rpc_call_reply(call->rpc, &response.base);
    free(call);
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
