/* ActivationStore: a call to a writer, and its answer. What becomes of writers is activations/activation_writer.h's. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "activations/store_listing.h"
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

/* The daemon would have to remember for whom it wrote each file. What it knows of stores is not told to others either. */
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

struct described_host {
    struct upload_counts uploads;
    bool is_open;
};

/* A store may have as many folders as its owner likes: their list is read and packed on helpers. */
struct describe_job {
    struct api_job job; /* first */
    char *path;         /* NULL = of a store that is only read, nothing but its hosts */
    struct store_roots roots;
    struct listed_host *hosts;
    struct described_host *told; /* of each */
    size_t n_hosts;
    struct rpc_out *answer;
};

static void drop_hosts(struct describe_job *describe)
{
    metadata_free(describe->hosts);
    metadata_free(describe->told);
    describe->hosts = NULL;
    describe->told = NULL;
}

static void destroy_describe(struct api_job *job)
{
    struct describe_job *describe = (struct describe_job *)job;
    drop_hosts(describe);
    free(describe->path);
    free(describe);
}

static int list_hosts_only(struct describe_job *describe)
{
    struct api_job *job = &describe->job;
    uint32_t *hosts;
    if (activation_store_hosts(job->reference, &job->source, &hosts, &describe->n_hosts, &job->error) < 0)
        return -1;
    describe->hosts = metadata_array(describe->n_hosts + 1, sizeof *describe->hosts, &job->error);
    describe->told = describe->hosts ? metadata_array(describe->n_hosts + 1, sizeof *describe->told, &job->error) : NULL;
    for (size_t i = 0; describe->told && i < describe->n_hosts; i++)
        describe->hosts[i].host = hosts[i];
    metadata_free(hosts);
    return describe->told ? 0 : -1;
}

static int list_store(struct api_job *job)
{
    struct describe_job *describe = (struct describe_job *)job;
    drop_hosts(describe); /* of an earlier try, for which there was no room */
    if (!describe->path)
        return list_hosts_only(describe);
    if (store_list_hosts(&describe->roots, describe->path, &describe->hosts, &describe->n_hosts, &job->error) < 0)
        return -1;
    describe->told = metadata_array(describe->n_hosts + 1, sizeof *describe->told, &job->error);
    for (size_t i = 0; describe->told && i < describe->n_hosts; i++)
        activations_upload_counts(job->api->activations, describe->path, describe->hosts[i].host,
                                  &describe->told[i].uploads);
    return describe->told ? 0 : -1;
}

struct host_rows { /* of one host's message */
    Tensorcast__Daemon__V1__ActivationHost host;
    Tensorcast__Daemon__V1__ActivationsResume resume;
    Tensorcast__Daemon__V1__ActivationUploads uploads;
};

static void fill_host(const struct describe_job *describe, size_t i, struct host_rows *rows)
{
    const struct listed_host *listed = &describe->hosts[i];
    struct described_host *told = &describe->told[i];
    tensorcast__daemon__v1__activation_host__init(&rows->host);
    tensorcast__daemon__v1__activation_uploads__init(&rows->uploads);
    codec_resume(&listed->resume, &rows->resume);
    rows->uploads.pending = told->uploads.pending;
    rows->uploads.done = listed->n_uploaded;
    rows->uploads.failed = told->uploads.failed;
    rows->uploads.error = told->uploads.error;
    rows->host.host = listed->host;
    rows->host.is_open = told->is_open;
    rows->host.resume = &rows->resume;
    rows->host.uploads = &rows->uploads;
}

static int pack_hosts(struct api_job *job)
{
    struct describe_job *describe = (struct describe_job *)job;
    Tensorcast__Daemon__V1__DescribeActivationsResponse response =
        TENSORCAST__DAEMON__V1__DESCRIBE_ACTIVATIONS_RESPONSE__INIT;
    size_t n = describe->n_hosts;
    struct host_rows *rows = metadata_array(n + 1, sizeof *rows, &job->error);
    response.hosts = rows ? metadata_array(n + 1, sizeof *response.hosts, &job->error) : NULL;
    for (size_t i = 0; response.hosts && i < n; i++) {
        fill_host(describe, i, &rows[i]);
        response.hosts[response.n_hosts++] = &rows[i].host;
    }
    describe->answer = response.hosts ? rpc_pack(&response.base, &job->error) : NULL;
    metadata_free(response.hosts);
    metadata_free(rows);
    return describe->answer ? 0 : -1;
}

static void reply_described(struct api_job *job)
{
    rpc_call_reply_packed(job->call, ((struct describe_job *)job)->answer);
    api_job_end(job);
}

/* Writers are the loop's. */
static void add_writers(struct api_job *job)
{
    struct describe_job *describe = (struct describe_job *)job;
    for (size_t i = 0; describe->path && i < describe->n_hosts; i++)
        describe->told[i].is_open = activations_has_writer(job->api->activations, describe->path, describe->hosts[i].host);
    api_job_run(job, pack_hosts, reply_described);
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
    describe->roots =
        (struct store_roots){api->services.config->activations.roots.items, api->services.config->activations.roots.n_items};
    api_job_init(&describe->job, api, rpc, request->store, destroy_describe);
    api_job_run(&describe->job, list_store, add_writers);
}
