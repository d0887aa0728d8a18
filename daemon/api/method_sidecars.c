/* FetchSidecars: list -> chunk -> chunk ... -> end.
 *
 *   OPENING (helper) --list sent--> READING (helper) --chunk sent--> WAITING (for the client) --> READING ... --> ended
 *
 * One chunk is in memory at a time: the next is read when the client has taken the last, so a slow client costs a buffer and
 * nothing else. A client that leaves is noticed in every state: between two reads, or by the read itself where it is remote.
 */
#include <stdlib.h>
#include <string.h>

#include "api/api_job.h"
#include "base/memory.h"
#include "base/sidecar_name.h"
#include "observe/log.h"
#include "resolve/artifact_files.h"
#include "resolve/sidecar.h"
#include "variant/documents.h"
#include "variant/variant.h"
#include "tensorcast/daemon/v1/store_daemon.pb-c.h"

enum { CHUNK_BYTES = 1 << 20 };

typedef Tensorcast__Daemon__V1__SidecarEvent sidecar_event;

struct fetch {
    struct api_job job; /* first */
    const Tensorcast__Daemon__V1__FetchSidecarsRequest *request;
    struct sidecars *sidecars; /* of those whose bytes are sent */
    struct artifact *listed;   /* of those that are only listed */
    size_t file;               /* that is being sent */
    uint64_t offset, sent_bytes;
    size_t n_bytes; /* in buffer */
    unsigned char *buffer;
    struct arena arena; /* of the list */
};

static void destroy_fetch(struct api_job *job)
{
    struct fetch *fetch = (struct fetch *)job;
    sidecars_close(fetch->sidecars);
    artifact_unref(fetch->listed);
    arena_fini(&fetch->arena);
    free(fetch->buffer);
    free(fetch);
}

static void end_call(struct fetch *fetch)
{
    rpc_call_end(fetch->job.call);
    api_job_end(&fetch->job);
}

static int read_chunk(struct api_job *job);
static void send_chunk(struct api_job *job);

/* Once the client has taken what was sent. */
static void read_next(void *data)
{
    struct fetch *fetch = data;
    if (!fetch->job.is_cancelled && !rpc_call_idle(fetch->job.call)) {
        rpc_call_on_idle(fetch->job.call, read_next, fetch);
        return;
    }
    if (!fetch->job.is_cancelled && fetch->file < fetch->sidecars->n_files) {
        api_job_run(&fetch->job, read_chunk, send_chunk);
        return;
    }
    if (!fetch->job.is_cancelled)
        log_at_of(LOG_INFO, "sidecars_sent", rpc_call_uid(fetch->job.call),
                  LOG_U64("pid", (uint64_t)rpc_call_pid(fetch->job.call)),
                  LOG_TEXT("artifact", fetch->sidecars->source->reference), LOG_U64("files", fetch->sidecars->n_files),
                  LOG_U64("bytes", fetch->sent_bytes));
    end_call(fetch);
}

/* --- chunks --- */

static int read_chunk(struct api_job *job)
{
    struct fetch *fetch = (struct fetch *)job;
    uint64_t left = fetch->sidecars->files[fetch->file].size_bytes - fetch->offset;
    fetch->n_bytes = left < CHUNK_BYTES ? (size_t)left : CHUNK_BYTES;
    return sidecars_read(fetch->sidecars, fetch->file, fetch->offset, fetch->buffer, fetch->n_bytes, &job->cancel,
                         &job->error);
}

static void send_chunk(struct api_job *job)
{
    struct fetch *fetch = (struct fetch *)job;
    sidecar_event event = TENSORCAST__DAEMON__V1__SIDECAR_EVENT__INIT;
    Tensorcast__Daemon__V1__SidecarChunk chunk = TENSORCAST__DAEMON__V1__SIDECAR_CHUNK__INIT;
    if (job->is_cancelled) {
        end_call(fetch);
        return;
    }
    chunk.file = (uint32_t)fetch->file;
    chunk.offset = fetch->offset;
    chunk.data.data = fetch->buffer;
    chunk.data.len = fetch->n_bytes;
    event.event_case = TENSORCAST__DAEMON__V1__SIDECAR_EVENT__EVENT_CHUNK;
    event.chunk = &chunk;
    rpc_call_send(job->call, &event.base);
    fetch->sent_bytes += fetch->n_bytes;
    fetch->offset += fetch->n_bytes;
    if (fetch->offset == fetch->sidecars->files[fetch->file].size_bytes) {
        fetch->file++;
        fetch->offset = 0;
    }
    read_next(fetch);
}

/* --- the list --- */

static const enum artifact_file_kind kinds[] = {
    [TENSORCAST__DAEMON__V1__FILE_KIND__FILE_KIND_SIDECARS] = ARTIFACT_FILES_SIDECARS,
    [TENSORCAST__DAEMON__V1__FILE_KIND__FILE_KIND_TENSORS] = ARTIFACT_FILES_TENSORS,
    [TENSORCAST__DAEMON__V1__FILE_KIND__FILE_KIND_ALL] = ARTIFACT_FILES_ALL,
};

/* What is not true of the variant. */
static int correct_documents(struct fetch *fetch)
{
    const Tensorcast__Daemon__V1__FetchSidecarsRequest *request = fetch->request;
    struct api_job *job = &fetch->job;
    struct header_cache *headers = job->api->services.headers;
    const char *recipe = (const char *)request->variant.data;
    unsigned flags = request->allow_missing_shards ? RESOLVE_ALLOW_MISSING_SHARDS : 0;
    struct artifact *artifact;
    if (artifact_resolve(request->artifact, &job->source, headers, flags, &artifact, &job->error) != 0 ||
        variant_apply(&artifact, recipe, request->variant.len, headers, &job->cancel, &job->error) != 0)
        return -1;
    const struct documents_of of = {artifact, recipe, request->variant.len};
    int failed = documents_correct(fetch->sidecars, &of, &job->cancel, &job->error);
    artifact_unref(artifact);
    return failed;
}

static int open_sidecars(struct api_job *job)
{
    struct fetch *fetch = (struct fetch *)job;
    const Tensorcast__Daemon__V1__FetchSidecarsRequest *request = fetch->request;
    struct source_options options = job->source;
    if ((size_t)request->kind >= sizeof kinds / sizeof kinds[0] || (request->kind && !request->list_only))
        return fail(&job->error, ERROR_INVALID_ARGUMENT, "FILE_KIND",
                    "there is no such kind of files, or their bytes do not come this way");
    if (request->list_only && request->n_names == 0 && !request->variant.len)
        return artifact_files_list(request->artifact, &options, job->api->services.headers,
                                   request->allow_missing_shards ? RESOLVE_ALLOW_MISSING_SHARDS : 0, kinds[request->kind],
                                   &fetch->listed, &job->error);
    fetch->sidecars = sidecars_open(request->artifact, &options, (const char *const *)request->names, request->n_names,
                                    request->list_only, &job->cancel, &job->error);
    if (!fetch->sidecars)
        return -1;
    return request->variant.len ? correct_documents(fetch) : 0;
}

static void fill_list(struct fetch *fetch, Tensorcast__Daemon__V1__SidecarList *list)
{
    const struct artifact *listed = fetch->listed;
    struct arena *arena = &fetch->arena;
    list->n_files = listed ? listed->source->n_files : fetch->sidecars->n_files;
    list->files = arena_array(arena, list->n_files + 1, sizeof *list->files);
    for (size_t i = 0; i < list->n_files; i++) {
        const struct sidecar *sidecar = listed ? NULL : &fetch->sidecars->files[i]; /* what of the file is sent */
        const struct source_file *file = listed ? &listed->source->files[i] : &fetch->sidecars->source->files[sidecar->file];
        Tensorcast__Daemon__V1__File *row = list->files[i] = arena_alloc(arena, sizeof *row);
        tensorcast__daemon__v1__file__init(row);
        row->name = arena_text(arena, file->name, strlen(file->name));
        row->bytes = sidecar ? sidecar->size_bytes : file->size_bytes;
        row->pin = arena_text(arena, file->pin ? file->pin : "", file->pin ? strlen(file->pin) : 0);
        row->checksums = arena_array(arena, CHECKSUM_PER_FILE, sizeof *row->checksums);
        for (size_t k = 0; k < CHECKSUM_PER_FILE && !(sidecar && sidecar->bytes); k++) {
            if (file->checksums[k].kind == CHECKSUM_NONE)
                continue;
            char *text = arena_alloc(arena, CHECKSUM_TEXT_CHARS);
            row->checksums[row->n_checksums++] = checksum_print(&file->checksums[k], text);
        }
        if (listed) {
            char *identity = arena_alloc(arena, DIGEST_HEX_CHARS + 1);
            artifact_file_identity(listed, i, identity);
            row->identity = identity;
        }
    }
    const struct notes *notes = listed ? &listed->notes : &fetch->sidecars->notes;
    list->n_notes = notes->n;
    list->notes = arena_array(arena, notes->n + 1, sizeof *list->notes);
    for (size_t i = 0; i < notes->n; i++)
        list->notes[i] = notes->texts[i];
    if (listed)
        list->identity = arena_text(arena, listed->identity, strlen(listed->identity));
}

static void send_list(struct api_job *job)
{
    struct fetch *fetch = (struct fetch *)job;
    sidecar_event event = TENSORCAST__DAEMON__V1__SIDECAR_EVENT__INIT;
    Tensorcast__Daemon__V1__SidecarList list = TENSORCAST__DAEMON__V1__SIDECAR_LIST__INIT;
    if (job->is_cancelled) {
        end_call(fetch);
        return;
    }
    fill_list(fetch, &list);
    event.event_case = TENSORCAST__DAEMON__V1__SIDECAR_EVENT__EVENT_LIST;
    event.list = &list;
    rpc_call_send(job->call, &event.base);
    if (fetch->request->list_only) {
        end_call(fetch);
        return;
    }
    fetch->buffer = memory_alloc(CHUNK_BYTES);
    read_next(fetch);
}

void method_sidecars(struct rpc_call *call, const ProtobufCMessage *request, void *context)
{
    struct fetch *fetch = memory_alloc(sizeof *fetch);
    fetch->request = (const Tensorcast__Daemon__V1__FetchSidecarsRequest *)request;
    arena_init(&fetch->arena, 0);
    api_job_init(&fetch->job, context, call, fetch->request->artifact, destroy_fetch);
    api_job_run(&fetch->job, open_sidecars, send_list);
}
