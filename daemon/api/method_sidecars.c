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
#include "resolve/sidecar.h"
#include "tensorcast/daemon/v1/store_daemon.pb-c.h"

enum { CHUNK_BYTES = 1 << 20 };

typedef Tensorcast__Daemon__V1__SidecarEvent sidecar_event;

struct fetch {
    struct api_job job; /* first */
    const Tensorcast__Daemon__V1__FetchSidecarsRequest *request;
    struct sidecars *sidecars;
    size_t file; /* that is being sent */
    uint64_t offset, sent_bytes;
    size_t n_bytes; /* in buffer */
    unsigned char *buffer;
};

static void destroy_fetch(struct api_job *job)
{
    struct fetch *fetch = (struct fetch *)job;
    sidecars_close(fetch->sidecars);
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

static void read_next(void *data)
{
    struct fetch *fetch = data;
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

/* Goes on when the client has taken what was sent. */
static void continue_later(struct fetch *fetch)
{
    if (rpc_call_idle(fetch->job.call))
        read_next(fetch);
    else
        rpc_call_on_idle(fetch->job.call, read_next, fetch);
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
    continue_later(fetch);
}

/* --- the list --- */

static int open_sidecars(struct api_job *job)
{
    struct fetch *fetch = (struct fetch *)job;
    fetch->sidecars = sidecars_open(fetch->request->artifact, &job->source, (const char *const *)fetch->request->names,
                                    fetch->request->n_names, &job->cancel, &job->error);
    return fetch->sidecars ? 0 : -1;
}

static void send_list(struct api_job *job)
{
    struct fetch *fetch = (struct fetch *)job;
    sidecar_event event = TENSORCAST__DAEMON__V1__SIDECAR_EVENT__INIT;
    Tensorcast__Daemon__V1__SidecarList list = TENSORCAST__DAEMON__V1__SIDECAR_LIST__INIT;
    Tensorcast__Daemon__V1__File files[SIDECAR_MAX_FILES], *pointers[SIDECAR_MAX_FILES];
    if (job->is_cancelled) {
        end_call(fetch);
        return;
    }
    for (size_t i = 0; i < fetch->sidecars->n_files; i++) {
        tensorcast__daemon__v1__file__init(&files[i]);
        files[i].name = fetch->sidecars->files[i].name;
        files[i].bytes = fetch->sidecars->files[i].size_bytes;
        pointers[i] = &files[i];
    }
    list.n_files = fetch->sidecars->n_files;
    list.files = pointers;
    event.event_case = TENSORCAST__DAEMON__V1__SIDECAR_EVENT__EVENT_LIST;
    event.list = &list;
    rpc_call_send(job->call, &event.base);
    if (fetch->request->list_only) {
        end_call(fetch);
        return;
    }
    fetch->buffer = memory_alloc(CHUNK_BYTES);
    continue_later(fetch);
}

void method_sidecars(struct rpc_call *call, const ProtobufCMessage *request, void *context)
{
    struct fetch *fetch = memory_alloc(sizeof *fetch);
    fetch->request = (const Tensorcast__Daemon__V1__FetchSidecarsRequest *)request;
    api_job_init(&fetch->job, context, call, fetch->request->artifact, destroy_fetch);
    api_job_run(&fetch->job, open_sidecars, send_list);
}
