/* FetchSidecars: list -> chunk -> chunk ... -> end.
 *
 *   OPENING (helper) --list sent--> READING (helper) --chunk sent--> WAITING (for the client) --> READING ... --> ended
 *
 * One chunk is in memory at a time: the next is read when the client has taken the last, so a slow client costs a buffer and
 * nothing else. A client that leaves is noticed in every state: between two reads, or by the read itself where it is remote.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/sidecar_name.h"
#include "daemon.h"
#include "observe/log.h"
#include "resolve/sidecar.h"
#include "api/methods.h"
#include "tensorcast/daemon/v1/store_daemon.pb-c.h"

enum { CHUNK_BYTES = 1 << 20 };

typedef Tensorcast__Daemon__V1__SidecarEvent sidecar_event;

struct fetch {
    struct loop_work work; /* first */
    struct rpc_call *call;
    struct daemon *daemon;
    const Tensorcast__Daemon__V1__FetchSidecarsRequest *request;
    const struct config *config;
    struct sidecars *sidecars;
    size_t file; /* that is being sent */
    uint64_t offset, sent_bytes;
    size_t n_bytes; /* in buffer */
    unsigned char *buffer;
    _Atomic bool cancelled;
    struct cancel cancel;
    bool failed;
    struct error error;
};

static bool is_cancelled(void *data)
{
    return ((struct fetch *)data)->cancelled;
}

static void on_cancel(void *data)
{
    struct fetch *fetch = data;
    fetch->cancelled = true;
    loop_cancel(fetch->daemon->loop, &fetch->work);
}

static void finish(struct fetch *fetch)
{
    if (fetch->failed)
        rpc_call_fail(fetch->call, &fetch->error);
    else
        rpc_call_end(fetch->call);
    sidecars_close(fetch->sidecars);
    free(fetch->buffer);
    free(fetch);
}

static void finish_sent(struct fetch *fetch)
{
    log_at_of(LOG_INFO, "sidecars_sent", rpc_call_uid(fetch->call), LOG_U64("pid", (uint64_t)rpc_call_pid(fetch->call)),
              LOG_TEXT("artifact", fetch->sidecars->source->reference), LOG_U64("files", fetch->sidecars->n_files),
              LOG_U64("bytes", fetch->sent_bytes));
    finish(fetch);
}

static void read_next(void *data);

/* Goes on when the client has taken what was sent. */
static void continue_later(struct fetch *fetch)
{
    if (rpc_call_idle(fetch->call))
        read_next(fetch);
    else
        rpc_call_on_idle(fetch->call, read_next, fetch);
}

/* --- chunks --- */

static void read_chunk(struct loop_work *work)
{
    struct fetch *fetch = (struct fetch *)work;
    uint64_t left = fetch->sidecars->files[fetch->file].size_bytes - fetch->offset;
    fetch->n_bytes = left < CHUNK_BYTES ? (size_t)left : CHUNK_BYTES;
    fetch->failed = sidecars_read(fetch->sidecars, fetch->file, fetch->offset, fetch->buffer, fetch->n_bytes, &fetch->cancel,
                                  &fetch->error) < 0;
}

static void send_chunk(struct loop_work *work)
{
    struct fetch *fetch = (struct fetch *)work;
    sidecar_event event = TENSORCAST__DAEMON__V1__SIDECAR_EVENT__INIT;
    Tensorcast__Daemon__V1__SidecarChunk chunk = TENSORCAST__DAEMON__V1__SIDECAR_CHUNK__INIT;
    if (fetch->failed || fetch->cancelled) {
        finish(fetch);
        return;
    }
    chunk.file = (uint32_t)fetch->file;
    chunk.offset = fetch->offset;
    chunk.data.data = fetch->buffer;
    chunk.data.len = fetch->n_bytes;
    event.event_case = TENSORCAST__DAEMON__V1__SIDECAR_EVENT__EVENT_CHUNK;
    event.chunk = &chunk;
    rpc_call_send(fetch->call, &event.base);
    fetch->sent_bytes += fetch->n_bytes;
    fetch->offset += fetch->n_bytes;
    if (fetch->offset == fetch->sidecars->files[fetch->file].size_bytes) {
        fetch->file++;
        fetch->offset = 0;
    }
    continue_later(fetch);
}

static void read_next(void *data)
{
    struct fetch *fetch = data;
    if (fetch->cancelled) {
        finish(fetch);
    } else if (fetch->file == fetch->sidecars->n_files) {
        finish_sent(fetch);
    } else {
        fetch->work.do_work = read_chunk;
        fetch->work.done = send_chunk;
        loop_continue(fetch->daemon->loop, &fetch->work);
    }
}

/* --- the list --- */

static void open_sidecars(struct loop_work *work)
{
    struct fetch *fetch = (struct fetch *)work;
    const struct source_options options = {.trusted_roots = fetch->config->disk.trusted_roots,
                                           .n_trusted_roots = fetch->config->disk.n_trusted_roots,
                                           .stores = fetch->daemon->services.stores,
                                           .uid = rpc_call_uid(fetch->call)};
    struct metadata_account before = metadata_enter(rpc_call_account(fetch->call));
    fetch->sidecars = sidecars_open(fetch->request->artifact, &options, (const char *const *)fetch->request->names,
                                    fetch->request->n_names, &fetch->cancel, &fetch->error);
    metadata_enter(before);
    fetch->failed = !fetch->sidecars;
}

static void send_list(struct loop_work *work)
{
    struct fetch *fetch = (struct fetch *)work;
    sidecar_event event = TENSORCAST__DAEMON__V1__SIDECAR_EVENT__INIT;
    Tensorcast__Daemon__V1__SidecarList list = TENSORCAST__DAEMON__V1__SIDECAR_LIST__INIT;
    Tensorcast__Daemon__V1__File files[SIDECAR_MAX_FILES], *pointers[SIDECAR_MAX_FILES];
    if (fetch->failed || fetch->cancelled) {
        finish(fetch);
        return;
    }
    for (size_t i = 0; i < fetch->sidecars->n_files; i++) {
        tensorcast__daemon__v1__file__init(&files[i]);
        files[i].name = (char *)fetch->sidecars->files[i].name;
        files[i].bytes = fetch->sidecars->files[i].size_bytes;
        pointers[i] = &files[i];
    }
    list.n_files = fetch->sidecars->n_files;
    list.files = pointers;
    event.event_case = TENSORCAST__DAEMON__V1__SIDECAR_EVENT__EVENT_LIST;
    event.list = &list;
    rpc_call_send(fetch->call, &event.base);
    if (fetch->request->list_only) {
        finish(fetch);
        return;
    }
    fetch->buffer = memory_alloc(CHUNK_BYTES);
    continue_later(fetch);
}

void method_sidecars(struct rpc_call *call, const ProtobufCMessage *request, void *context)
{
    struct fetch *fetch = memory_alloc(sizeof *fetch);
    fetch->call = call;
    fetch->daemon = context;
    fetch->request = (const Tensorcast__Daemon__V1__FetchSidecarsRequest *)request;
    fetch->work = (struct loop_work){.do_work = open_sidecars, .done = send_list, .uid = rpc_call_uid(call)};
    source_place_work(fetch->request->artifact, &fetch->work);
    fetch->config = fetch->daemon->config;
    fetch->cancel = (struct cancel){.is_set = is_cancelled, .data = fetch};
    rpc_call_on_cancel(call, on_cancel, fetch);
    if (loop_submit(fetch->daemon->loop, &fetch->work, &fetch->error) <
        0) { /* else a helper may have set `failed` already */
        fetch->failed = true;
        finish(fetch);
    }
}
