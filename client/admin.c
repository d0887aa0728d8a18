/* The calls that bring back a report or figures: tc_explain, tc_prewarm, tc_release, tc_unpin and tc_status. */
#include "base/arena.h"
#include "base/memory.h"
#include "client.h"
#include "report_json.h"
#include "request.h"
#include "message/status_json.h"
#include "status_text.h"
#include "variant.h"

/* --- a load request that brings back a report instead of memory --- */

static int no_report(struct error *error)
{
    return fail(error, ERROR_INTERNAL, "BAD_ANSWER", "the daemon's answer holds no report");
}

int tc_explain(struct tc_client *client, const char *artifact, const struct tc_view *view, const struct tc_options *options,
               char **json, char **text, struct tc_error *error)
{
    struct error cause;
    struct arena arena;
    const struct wait wait = client_patient_wait(client, options);
    Tensorcast__Daemon__V1__ExplainRequest request = TENSORCAST__DAEMON__V1__EXPLAIN_REQUEST__INIT;
    arena_init(&arena, 0);
    request.load = request_build(artifact, view, options, &arena, &cause);
    const Tensorcast__Daemon__V1__ExplainResponse *response = NULL;
    if (request.load)
        response = rpc_client_get(client->rpc, "Explain", &request.base,
                                  &tensorcast__daemon__v1__explain_response__descriptor, &wait, &arena, &cause);
    int failed = !response ? -1 : response->report ? 0 : no_report(&cause);
    if (failed)
        variant_locate(options ? options->variant : NULL, &cause);
    if (failed)
        client_fail(error, &cause);
    if (!failed && json)
        *json = report_json(response->report, NULL, 0, false);
    if (!failed && text)
        *text = memory_copy_text(response->text);
    arena_fini(&arena);
    return failed;
}

const Tensorcast__Daemon__V1__PrewarmResponse *client_prewarm(struct tc_client *client, const char *artifact,
                                                              const struct tc_view *view, const struct tc_options *options,
                                                              int flags, struct arena *arena, struct error *error)
{
    const struct wait wait = client_patient_wait(client, options);
    Tensorcast__Daemon__V1__PrewarmRequest request = TENSORCAST__DAEMON__V1__PREWARM_REQUEST__INIT;
    request.load = request_build(artifact, view, options, arena, error);
    if (!request.load)
        return NULL;
    request.pin = (flags & TC_PREWARM_PIN) != 0;
    request.detach = (flags & TC_PREWARM_DETACH) != 0;
    const Tensorcast__Daemon__V1__PrewarmResponse *response = rpc_client_get(
        client->rpc, "Prewarm", &request.base, &tensorcast__daemon__v1__prewarm_response__descriptor, &wait, arena, error);
    if (!response)
        variant_locate(options ? options->variant : NULL, error);
    if (!response || response->report || request.detach)
        return response;
    no_report(error);
    return NULL;
}

int tc_prewarm_with(struct tc_client *client, const char *artifact, const struct tc_view *view,
                    const struct tc_options *options, int flags, char **json, struct tc_error *error)
{
    struct error cause;
    struct arena arena;
    arena_init(&arena, 0);
    const Tensorcast__Daemon__V1__PrewarmResponse *response =
        client_prewarm(client, artifact, view, options, flags, &arena, &cause);
    if (!response)
        client_fail(error, &cause);
    else if (json)
        *json = response->report ? report_json(response->report, NULL, 0, false) : NULL;
    arena_fini(&arena);
    return response ? 0 : -1;
}

int tc_prewarm(struct tc_client *client, const char *artifact, const struct tc_view *view, const struct tc_options *options,
               char **json, struct tc_error *error)
{
    return tc_prewarm_with(client, artifact, view, options, 0, json, error);
}

/* --- what the daemon holds --- */

int tc_release(struct tc_client *client, const char *artifact, uint64_t timeout_ms, uint64_t *released_replicas,
               uint64_t *released_bytes, struct tc_error *error)
{
    struct tc_released released;
    int failed = tc_release_counted(client, artifact, timeout_ms, &released, error);
    if (!failed && released_replicas)
        *released_replicas = released.replicas;
    if (!failed && released_bytes)
        *released_bytes = released.bytes;
    return failed;
}

int tc_release_counted(struct tc_client *client, const char *artifact, uint64_t timeout_ms, struct tc_released *released,
                       struct tc_error *error)
{
    struct error cause;
    struct arena arena;
    const struct wait wait = wait_begin(timeout_ms, NULL);
    Tensorcast__Daemon__V1__ReleaseRequest request = TENSORCAST__DAEMON__V1__RELEASE_REQUEST__INIT;
    arena_init(&arena, 0);
    request.all = !artifact;
    if (artifact)
        request.artifact = client_reference(artifact, &arena, &cause);
    const Tensorcast__Daemon__V1__ReleaseResponse *response = NULL;
    if (request.artifact)
        response = rpc_client_get(client->rpc, "Release", &request.base,
                                  &tensorcast__daemon__v1__release_response__descriptor, &wait, &arena, &cause);
    int failed = response ? 0 : client_fail(error, &cause);
    if (response)
        *released = (struct tc_released){
            response->released_replicas,  response->released_bytes,  response->leased_replicas, response->leased_bytes,
            response->replicas_of_others, response->pinned_replicas, response->pinned_bytes};
    arena_fini(&arena);
    return failed;
}

int tc_unpin(struct tc_client *client, const char *artifact, uint64_t timeout_ms, struct tc_unpinned *unpinned,
             struct tc_error *error)
{
    struct error cause;
    struct arena arena;
    const struct wait wait = wait_begin(timeout_ms, NULL);
    Tensorcast__Daemon__V1__UnpinRequest request = TENSORCAST__DAEMON__V1__UNPIN_REQUEST__INIT;
    arena_init(&arena, 0);
    request.all = !artifact;
    if (artifact)
        request.artifact = client_reference(artifact, &arena, &cause);
    const Tensorcast__Daemon__V1__UnpinResponse *response = NULL;
    if (request.artifact)
        response = rpc_client_get(client->rpc, "Unpin", &request.base, &tensorcast__daemon__v1__unpin_response__descriptor,
                                  &wait, &arena, &cause);
    int failed = response ? 0 : client_fail(error, &cause);
    if (response && unpinned)
        *unpinned = (struct tc_unpinned){response->replicas, response->bytes};
    arena_fini(&arena);
    return failed;
}

const Tensorcast__Daemon__V1__StatusResponse *client_status(struct tc_client *client, bool is_short, uint64_t timeout_ms,
                                                            struct arena *arena, struct error *error)
{
    const struct wait wait = wait_begin(timeout_ms, NULL);
    Tensorcast__Daemon__V1__StatusRequest request = TENSORCAST__DAEMON__V1__STATUS_REQUEST__INIT;
    request.own_requests_only = is_short;
    return rpc_client_get(client->rpc, "Status", &request.base, &tensorcast__daemon__v1__status_response__descriptor, &wait,
                          arena, error);
}

const Tensorcast__Daemon__V1__BlameResponse *client_blame(struct tc_client *client, const char *load_id, uint64_t timeout_ms,
                                                          struct arena *arena, struct error *error)
{
    const struct wait wait = wait_begin(timeout_ms, NULL);
    Tensorcast__Daemon__V1__BlameRequest request = TENSORCAST__DAEMON__V1__BLAME_REQUEST__INIT;
    request.load_id = load_id;
    const Tensorcast__Daemon__V1__BlameResponse *response = rpc_client_get(
        client->rpc, "Blame", &request.base, &tensorcast__daemon__v1__blame_response__descriptor, &wait, arena, error);
    if (!response || !*load_id || response->n_loads)
        return response;
    fail(error, ERROR_INTERNAL, "BAD_ANSWER", "the daemon's answer holds no trace");
    return NULL;
}

int tc_status(struct tc_client *client, uint64_t timeout_ms, char **json, char **text, struct tc_error *error)
{
    struct error cause;
    struct arena arena;
    arena_init(&arena, 0);
    const Tensorcast__Daemon__V1__StatusResponse *response = client_status(client, false, timeout_ms, &arena, &cause);
    int failed = response ? 0 : client_fail(error, &cause);
    if (response && json)
        *json = status_json(response);
    if (response && text)
        *text = status_text(response, 0);
    arena_fini(&arena);
    return failed;
}
