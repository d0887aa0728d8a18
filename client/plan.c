/* tc_explain and tc_prewarm: a load request that brings back a report instead of memory. */
#include "base/arena.h"
#include "base/memory.h"
#include "client.h"
#include "report_json.h"
#include "request.h"
#include "variant.h"

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
        response =
            (const void *)rpc_client_get(client->rpc, "Explain", &request.base,
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
    const Tensorcast__Daemon__V1__PrewarmResponse *response = (const void *)rpc_client_get(
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
