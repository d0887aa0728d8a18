/* Verify: resolve, then read everything that there is a checksum for, on a helper thread, which a client that leaves stops
 * between two pieces. Meanwhile the loop tells how far it is. */
#include <stdlib.h>
#include <string.h>

#include "api/api_job.h"
#include "api/codec.h"
#include "base/clock.h"
#include "base/memory.h"
#include "integrity/scrub.h"
#include "observe/log.h"
#include "tensorcast/daemon/v1/store_daemon.pb-c.h"

typedef Tensorcast__Daemon__V1__VerifyResponse verify_response;

enum { PROGRESS_MS = 100 };

struct verify {
    struct api_job job; /* first */
    const Tensorcast__Daemon__V1__VerifyRequest *request;
    struct artifact *artifact;
    struct scrub *scrub;
    char *manifest_json, *manifest_name;
    uint64_t started_ns, read_bytes, total_bytes; /* the last two: atomic */
    struct loop_timer *progress_timer;            /* NULL = the client wants no progress */
    struct arena arena;                           /* the answer */
};

static int resolve_to_verify(struct api_job *job)
{
    struct verify *verify = (struct verify *)job;
    unsigned flags = RESOLVE_FRESH | (verify->request->allow_missing_shards ? RESOLVE_ALLOW_MISSING_SHARDS : 0);
    if (artifact_resolve(verify->request->artifact, &job->source, job->api->services.headers, flags, &verify->artifact,
                         &job->error))
        return -1;
    if (!verify->artifact->manifest_problem.code || verify->request->make_manifest)
        return 0;
    job->error = verify->artifact->manifest_problem;
    return -1;
}

static int scrub_artifact(struct api_job *job)
{
    struct verify *verify = (struct verify *)job;
    const struct scrub_options options = {verify->artifact, verify->request->make_manifest, &verify->read_bytes,
                                          &job->cancel, rpc_call_uid(job->call)};
    __atomic_store_n(&verify->read_bytes, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&verify->total_bytes, scrub_total_bytes(&options), __ATOMIC_RELAXED);
    verify->scrub = scrub_run(&options, &job->error);
    if (!verify->scrub)
        return -1;
    verify->manifest_name = artifact_manifest_name(verify->artifact);
    if (!verify->request->make_manifest || scrub_damage(verify->scrub))
        return 0;
    verify->manifest_json = scrub_manifest_json(verify->scrub, &job->error);
    return verify->manifest_json ? 0 : -1;
}

static void tell_progress(void *data)
{
    struct verify *verify = data;
    verify_response response = TENSORCAST__DAEMON__V1__VERIFY_RESPONSE__INIT;
    Tensorcast__Daemon__V1__Progress progress = TENSORCAST__DAEMON__V1__PROGRESS__INIT;
    progress.total_bytes = __atomic_load_n(&verify->total_bytes, __ATOMIC_RELAXED);
    if (!progress.total_bytes || verify->job.is_cancelled || !rpc_call_idle(verify->job.call))
        return;
    progress.stage = "read";
    progress.done_bytes = __atomic_load_n(&verify->read_bytes, __ATOMIC_RELAXED);
    response.progress = &progress;
    rpc_call_send(verify->job.call, &response.base);
}

static void reply_verified(struct api_job *job)
{
    struct verify *verify = (struct verify *)job;
    const struct scrub *scrub = verify->scrub;
    const verify_response *response =
        codec_verification(scrub, verify->manifest_json, verify->manifest_name, &verify->arena);
    const struct error *damage = scrub_damage(scrub);
    log_at_of(damage ? LOG_ERROR : LOG_INFO, "verify_done", rpc_call_uid(job->call),
              LOG_U64("pid", (uint64_t)rpc_call_pid(job->call)), LOG_TEXT("artifact", verify->artifact->reference),
              LOG_U64("files", scrub->n_files), LOG_U64("read_bytes", verify->read_bytes),
              LOG_BOOL("manifest", verify->manifest_json != NULL), LOG_TEXT("damage", damage ? damage->message : ""),
              LOG_MS("total_ms", clock_now_ns() - verify->started_ns));
    rpc_call_send(job->call, &response->base);
    rpc_call_end(job->call);
    api_job_end(job);
}

static void scrub_next(struct api_job *job)
{
    api_job_run(job, scrub_artifact, reply_verified);
}

static void destroy_verify(struct api_job *job)
{
    struct verify *verify = (struct verify *)job;
    loop_timer_destroy(verify->progress_timer);
    scrub_destroy(verify->scrub);
    artifact_unref(verify->artifact);
    arena_fini(&verify->arena);
    free(verify->manifest_json);
    free(verify->manifest_name);
    free(verify);
}

void method_verify(struct rpc_call *call, const ProtobufCMessage *request, void *context)
{
    struct verify *verify = memory_alloc(sizeof *verify);
    verify->request = (const Tensorcast__Daemon__V1__VerifyRequest *)request;
    verify->started_ns = clock_now_ns();
    arena_init(&verify->arena, 0);
    api_job_init(&verify->job, context, call, verify->request->artifact, destroy_verify);
    verify->job.work.pool = LOOP_VERIFY;
    if (verify->request->tell_progress) {
        verify->progress_timer = loop_timer_create(verify->job.api->services.loop, tell_progress, verify);
        loop_timer_start(verify->progress_timer, PROGRESS_MS, PROGRESS_MS);
    }
    api_job_run(&verify->job, resolve_to_verify, scrub_next);
}
