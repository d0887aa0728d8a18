/* Verify: resolve, then read everything that there is a checksum for. Both on one helper thread, which a client that leaves
 * stops between two pieces. Meanwhile the loop tells how far it is. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "daemon.h"
#include "integrity/scrub.h"
#include "observe/log.h"
#include "api/codec.h"
#include "api/methods.h"
#include "tensorcast/daemon/v1/store_daemon.pb-c.h"

typedef Tensorcast__Daemon__V1__VerifyResponse verify_response;
typedef Tensorcast__Daemon__V1__VerifiedFile verified_file;

enum { PROGRESS_MS = 100 };

struct verify {
    struct loop_work work; /* first */
    struct rpc_call *call;
    struct loop *loop;
    const Tensorcast__Daemon__V1__VerifyRequest *request;
    const struct config *config;
    struct header_cache *headers;
    struct stores *stores;
    struct artifact *artifact;
    struct scrub *scrub; /* NULL = it failed */
    char *manifest_json, *manifest_name;
    uint64_t started_ns, read_bytes, total_bytes; /* the last two: atomic */
    struct loop_timer *progress_timer;            /* NULL = nobody wants to know */
    _Atomic bool cancelled;
    struct arena arena; /* the answer */
    struct error error;
};

static bool is_cancelled(void *data)
{
    return ((struct verify *)data)->cancelled;
}

static void on_cancel(void *data)
{
    struct verify *verify = data;
    verify->cancelled = true;
    loop_cancel(verify->loop, &verify->work);
}

static int resolve(struct verify *verify, const struct cancel *cancel)
{
    const struct source_options options = {.trusted_roots = verify->config->disk.trusted_roots,
                                           .n_trusted_roots = verify->config->disk.n_trusted_roots,
                                           .stores = verify->stores,
                                           .cancel = cancel,
                                           .uid = rpc_call_uid(verify->call)};
    if (artifact_resolve(verify->request->artifact, &options, verify->headers, true, &verify->artifact, &verify->error))
        return -1;
    if (!verify->artifact->manifest_problem.code || verify->request->make_manifest)
        return 0;
    verify->error = verify->artifact->manifest_problem;
    return -1;
}

static void resolve_and_scrub(struct verify *verify)
{
    const struct cancel cancel = {is_cancelled, verify};
    if (resolve(verify, &cancel))
        return;
    const struct scrub_options options = {verify->artifact, verify->request->make_manifest, &verify->read_bytes, &cancel,
                                          rpc_call_uid(verify->call)};
    __atomic_store_n(&verify->total_bytes, scrub_total_bytes(&options), __ATOMIC_RELAXED);
    verify->scrub = scrub_run(&options, &verify->error);
    if (verify->scrub && verify->request->make_manifest && !scrub_damage(verify->scrub))
        verify->manifest_json = scrub_manifest_json(verify->scrub);
    verify->manifest_name = artifact_manifest_name(verify->artifact);
}

static void verify_artifact(struct loop_work *work)
{
    struct verify *verify = (struct verify *)work;
    struct metadata_account before = metadata_enter(rpc_call_account(verify->call));
    resolve_and_scrub(verify);
    metadata_enter(before);
}

static void tell_progress(void *data)
{
    struct verify *verify = data;
    verify_response response = TENSORCAST__DAEMON__V1__VERIFY_RESPONSE__INIT;
    Tensorcast__Daemon__V1__Progress progress = TENSORCAST__DAEMON__V1__PROGRESS__INIT;
    progress.total_bytes = __atomic_load_n(&verify->total_bytes, __ATOMIC_RELAXED);
    if (!progress.total_bytes || verify->cancelled || !rpc_call_idle(verify->call))
        return;
    progress.stage = "read";
    progress.done_bytes = __atomic_load_n(&verify->read_bytes, __ATOMIC_RELAXED);
    response.progress = &progress;
    rpc_call_send(verify->call, &response.base);
}

static verified_file *fill_file(const struct scrub_file *file, struct arena *arena)
{
    verified_file *to = arena_alloc(arena, sizeof *to);
    char by[SCRUB_BY_CHARS];
    tensorcast__daemon__v1__verified_file__init(to);
    to->name = codec_file_name(file->part->name, arena);
    to->bytes = file->part->size_bytes;
    to->status = (char *)scrub_status(file);
    scrub_by(file, by);
    to->by = arena_text(arena, by, strlen(by));
    to->damage = (char *)file->error.message;
    to->healed = file->healed;
    return to;
}

static void reply(struct verify *verify)
{
    const struct scrub *scrub = verify->scrub;
    verify_response *response = arena_alloc(&verify->arena, sizeof *response);
    tensorcast__daemon__v1__verify_response__init(response);
    response->artifact = (char *)verify->artifact->reference;
    response->identity = verify->artifact->identity;
    response->n_files = scrub->n_files;
    response->files = arena_array(&verify->arena, scrub->n_files, sizeof *response->files);
    for (size_t i = 0; i < scrub->n_files; i++)
        response->files[i] = fill_file(&scrub->files[i], &verify->arena);
    response->manifest_name = verify->manifest_name;
    if (verify->manifest_json)
        response->manifest_json = verify->manifest_json;
    const struct error *damage = scrub_damage(scrub);
    log_at_of(damage ? LOG_ERROR : LOG_INFO, "verify_done", rpc_call_uid(verify->call),
              LOG_U64("pid", (uint64_t)rpc_call_pid(verify->call)), LOG_TEXT("artifact", verify->artifact->reference),
              LOG_U64("files", scrub->n_files), LOG_U64("read_bytes", verify->read_bytes),
              LOG_BOOL("manifest", verify->manifest_json != NULL), LOG_TEXT("damage", damage ? damage->message : ""),
              LOG_MS("total_ms", clock_now_ns() - verify->started_ns));
    rpc_call_send(verify->call, &response->base);
    rpc_call_end(verify->call);
}

static void answer(struct loop_work *work)
{
    struct verify *verify = (struct verify *)work;
    loop_timer_destroy(verify->progress_timer);
    if (verify->scrub)
        reply(verify);
    else
        rpc_call_fail(verify->call, &verify->error);
    scrub_destroy(verify->scrub);
    artifact_unref(verify->artifact);
    arena_fini(&verify->arena);
    free(verify->manifest_json);
    free(verify->manifest_name);
    free(verify);
}

void method_verify(struct rpc_call *call, const ProtobufCMessage *request, void *context)
{
    struct daemon *daemon = context;
    struct verify *verify = memory_alloc(sizeof *verify);
    verify->call = call;
    verify->loop = daemon->loop;
    verify->request = (const Tensorcast__Daemon__V1__VerifyRequest *)request;
    verify->work = (struct loop_work){.do_work = verify_artifact, .done = answer, .uid = rpc_call_uid(call)};
    source_place_work(verify->request->artifact, &verify->work);
    verify->work.pool = LOOP_VERIFY;
    verify->config = daemon->config;
    verify->headers = daemon->services.headers;
    verify->stores = daemon->services.stores;
    verify->started_ns = clock_now_ns();
    arena_init(&verify->arena, 0);
    if (verify->request->tell_progress) {
        verify->progress_timer = loop_timer_create(daemon->loop, tell_progress, verify);
        loop_timer_start(verify->progress_timer, PROGRESS_MS, PROGRESS_MS);
    }
    fail(&verify->error, ERROR_CANCELLED, "CLIENT_LEFT", "the client left before its request was looked at");
    rpc_call_on_cancel(call, on_cancel, verify);
    if (loop_submit(daemon->loop, &verify->work, &verify->error) != 0)
        answer(&verify->work);
}
