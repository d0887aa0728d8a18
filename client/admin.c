/* tc_release, tc_unpin and tc_status. */
#include "base/arena.h"
#include "client.h"
#include "status_json.h"
#include "status_text.h"

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
        response =
            (const void *)rpc_client_get(client->rpc, "Release", &request.base,
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
        response = (const void *)rpc_client_get(client->rpc, "Unpin", &request.base,
                                                &tensorcast__daemon__v1__unpin_response__descriptor, &wait, &arena, &cause);
    int failed = response ? 0 : client_fail(error, &cause);
    if (response && unpinned)
        *unpinned = (struct tc_unpinned){response->replicas, response->bytes};
    arena_fini(&arena);
    return failed;
}

int client_status(struct tc_client *client, uint64_t timeout_ms, size_t columns, char **json, char **text,
                  struct tc_error *error)
{
    struct error cause;
    struct arena arena;
    const struct wait wait = wait_begin(timeout_ms, NULL);
    Tensorcast__Daemon__V1__StatusRequest request = TENSORCAST__DAEMON__V1__STATUS_REQUEST__INIT;
    arena_init(&arena, 0);
    const Tensorcast__Daemon__V1__StatusResponse *response = (const void *)rpc_client_get(
        client->rpc, "Status", &request.base, &tensorcast__daemon__v1__status_response__descriptor, &wait, &arena, &cause);
    int failed = response ? 0 : client_fail(error, &cause);
    if (response && json)
        *json = status_json(response);
    if (response && text)
        *text = status_text(response, columns);
    arena_fini(&arena);
    return failed;
}

int tc_status(struct tc_client *client, uint64_t timeout_ms, char **json, char **text, struct tc_error *error)
{
    return client_status(client, timeout_ms, 0, json, text, error);
}
