/* ActivationStore: a call to a writer, and its answer. What becomes of writers is activations/activation_writer.h's. */
#include <stdlib.h>
#include <string.h>

#include "activations/store_listing.h"
#include "api/api_job.h"
#include "api/codec_activations.h"
#include "base/memory.h"
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
        .is_member = rpc_call_is_of_group(rpc, api->shared_group),
        .is_overlapped = request->overlapped,
        .account = rpc_call_account(rpc),
        .upload = {*request->upload ? memory_copy_text(request->upload) : NULL, rpc_call_uid(rpc), request->drop_local}};
    char *path = store_path_parse(request->store, &error);
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

struct describe_job {
    struct api_job job; /* first */
    char *path;
    struct store_roots roots;
    struct listed_host *hosts;
    struct upload_counts *uploads; /* of each */
    size_t n_hosts;
};

static void destroy_describe(struct api_job *job)
{
    struct describe_job *describe = (struct describe_job *)job;
    free(describe->hosts);
    free(describe->uploads);
    free(describe->path);
    free(describe);
}

static int list_store(struct api_job *job)
{
    struct describe_job *describe = (struct describe_job *)job;
    if (store_list_hosts(&describe->roots, describe->path, &describe->hosts, &describe->n_hosts, &job->error) < 0)
        return -1;
    describe->uploads = memory_alloc_array(describe->n_hosts + 1, sizeof *describe->uploads);
    for (size_t i = 0; i < describe->n_hosts; i++)
        activations_upload_counts(job->api->activations, describe->path, describe->hosts[i].host, &describe->uploads[i]);
    return 0;
}

static void fill_uploads(const struct describe_job *describe, size_t i, Tensorcast__Daemon__V1__ActivationUploads *wire)
{
    tensorcast__daemon__v1__activation_uploads__init(wire);
    wire->pending = describe->uploads[i].pending;
    wire->done = describe->hosts[i].n_uploaded;
    wire->failed = describe->uploads[i].failed;
    wire->error = describe->uploads[i].error;
}

static void answer_describe(struct api_job *job)
{
    struct describe_job *describe = (struct describe_job *)job;
    Tensorcast__Daemon__V1__DescribeActivationsResponse response =
        TENSORCAST__DAEMON__V1__DESCRIBE_ACTIVATIONS_RESPONSE__INIT;
    struct arena arena = {0};
    size_t n = describe->n_hosts;
    response.n_hosts = n;
    response.hosts = arena_array(&arena, n + 1, sizeof *response.hosts);
    for (size_t i = 0; i < n; i++) {
        Tensorcast__Daemon__V1__ActivationHost *host = arena_alloc(&arena, sizeof *host);
        tensorcast__daemon__v1__activation_host__init(host);
        host->resume = arena_alloc(&arena, sizeof *host->resume);
        host->uploads = arena_alloc(&arena, sizeof *host->uploads);
        fill_uploads(describe, i, host->uploads);
        codec_resume(&describe->hosts[i].resume, host->resume);
        host->host = describe->hosts[i].host;
        host->is_open = activations_has_writer(job->api->activations, describe->path, host->host);
        response.hosts[i] = host;
    }
    rpc_call_reply(job->call, &response.base);
    arena_fini(&arena);
    api_job_end(job);
}

void method_activations_describe(struct rpc_call *rpc, const ProtobufCMessage *message, void *context)
{
    const Tensorcast__Daemon__V1__DescribeActivationsRequest *request =
        (const Tensorcast__Daemon__V1__DescribeActivationsRequest *)message;
    const struct api *api = context;
    struct error error;
    char *path = store_path_parse(request->store, &error);
    if (!path) {
        rpc_call_fail(rpc, &error);
        return;
    }
    struct describe_job *describe = memory_alloc(sizeof *describe);
    describe->path = path;
    describe->roots =
        (struct store_roots){api->services.config->activations.roots.items, api->services.config->activations.roots.n_items};
    api_job_init(&describe->job, api, rpc, request->store, destroy_describe);
    api_job_run(&describe->job, list_store, answer_describe);
}
