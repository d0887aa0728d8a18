/* tc_verify: one question; what comes before the answer is progress, the answer is kept as it came. */
#include <stdlib.h>

#include "base/arena.h"
#include "base/memory.h"
#include "client.h"
#include "tensorcast/daemon/v1/store_daemon.pb-c.h"

struct tc_verification {
    struct arena arena;
    const Tensorcast__Daemon__V1__VerifyResponse *response; /* in the arena */
};

struct listener {
    const struct tc_options *options; /* may be NULL */
    const Tensorcast__Daemon__V1__VerifyResponse *answer;
};

static int on_message(void *data, ProtobufCMessage *message, struct arena *arena, struct error *error)
{
    struct listener *listener = data;
    const struct tc_options *options = listener->options;
    const Tensorcast__Daemon__V1__VerifyResponse *response = (const void *)message;
    if (!response->progress) {
        listener->answer = response;
        return 0;
    }
    const Tensorcast__Daemon__V1__Progress *progress = response->progress;
    int stop = options && options->progress &&
               options->progress(options->data, progress->stage, progress->done_bytes, progress->total_bytes);
    arena_fini(arena); /* hours of progress need no memory */
    arena_init(arena, 0);
    return stop ? wait_cancelled(error) : 0;
}

struct tc_verification *client_verification(struct arena *arena, const Tensorcast__Daemon__V1__VerifyResponse *response)
{
    struct tc_verification *verification = memory_alloc(sizeof *verification);
    *verification = (struct tc_verification){*arena, response};
    arena_init(arena, 0);
    return verification;
}

struct tc_verification *tc_verify(struct tc_client *client, const char *artifact, bool with_manifest,
                                  const struct tc_options *options, struct tc_error *error)
{
    struct error cause;
    struct listener listener = {.options = options};
    const struct wait wait = client_patient_wait(client, options);
    Tensorcast__Daemon__V1__VerifyRequest request = TENSORCAST__DAEMON__V1__VERIFY_REQUEST__INIT;
    const struct rpc_question question = {"Verify", &request.base, &tensorcast__daemon__v1__verify_response__descriptor,
                                          on_message, &listener};
    struct arena arena;
    arena_init(&arena, 0);
    request.artifact = client_reference(artifact, &arena, &cause);
    request.make_manifest = with_manifest;
    request.tell_progress = options && options->progress;
    request.allow_missing_shards = options && options->allow_missing_shards;
    int failed = request.artifact ? rpc_client_ask(client->rpc, &question, &wait, &arena, &cause) : -1;
    if (!failed && listener.answer)
        return client_verification(&arena, listener.answer);
    if (!failed)
        fail(&cause, ERROR_INTERNAL, "BAD_ANSWER", "the daemon's answer to Verify holds no message");
    arena_fini(&arena);
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
