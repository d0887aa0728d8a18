/* tc_verify: one question, whose answer is kept as it came. */
#include <stdlib.h>

#include "base/arena.h"
#include "base/memory.h"
#include "client.h"
#include "tensorcast/daemon/v1/store_daemon.pb-c.h"

struct tc_verification {
    struct arena arena;
    const Tensorcast__Daemon__V1__VerifyResponse *response; /* in the arena */
};

struct tc_verification *tc_verify(struct tc_client *client, const char *artifact, bool with_manifest,
                                  const struct tc_options *options, struct tc_error *error)
{
    struct error cause;
    struct tc_verification *verification = memory_alloc(sizeof *verification);
    Tensorcast__Daemon__V1__VerifyRequest request = TENSORCAST__DAEMON__V1__VERIFY_REQUEST__INIT;
    const struct wait wait = wait_begin(options ? options->timeout_ms : 0, options ? options->cancel : NULL);
    arena_init(&verification->arena, 0);
    request.artifact = (char *)artifact;
    request.make_manifest = with_manifest;
    verification->response = (const void *)rpc_client_get(client->rpc, "Verify", &request.base,
                                                          &tensorcast__daemon__v1__verify_response__descriptor, &wait,
                                                          &verification->arena, &cause);
    if (verification->response)
        return verification;
    tc_verification_release(verification);
    client_fail(error, &cause);
    return NULL;
}

void tc_verification_release(struct tc_verification *verification)
{
    if (!verification)
        return;
    arena_fini(&verification->arena);
    free(verification);
}

size_t tc_verification_n_files(const struct tc_verification *verification)
{
    return verification->response->n_files;
}

void tc_verification_file(const struct tc_verification *verification, size_t index, struct tc_verified_file *file)
{
    const Tensorcast__Daemon__V1__VerifiedFile *from = verification->response->files[index];
    *file = (struct tc_verified_file){from->name, from->bytes, from->status, from->by, from->damage, from->healed};
}

const char *tc_verification_manifest(const struct tc_verification *verification)
{
    return verification->response->manifest_json;
}

const char *tc_verification_manifest_name(const struct tc_verification *verification)
{
    return verification->response->manifest_name;
}
