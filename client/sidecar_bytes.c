#include "sidecar_bytes.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/sidecar_name.h"

struct received {
    char *bytes;
    size_t length;
    uint64_t total; /* as the list says; UINT64_MAX = it has not come */
};

static int on_event(void *data, ProtobufCMessage *answer, struct arena *arena, struct error *error)
{
    const Tensorcast__Daemon__V1__SidecarEvent *event = (const void *)answer;
    struct received *received = data;
    bool is_list = event->event_case == TENSORCAST__DAEMON__V1__SIDECAR_EVENT__EVENT_LIST;
    bool is_chunk = event->event_case == TENSORCAST__DAEMON__V1__SIDECAR_EVENT__EVENT_CHUNK, is_sound = true;
    if (is_list) {
        is_sound =
            received->total == UINT64_MAX && event->list->n_files == 1 && event->list->files[0]->bytes <= SIDECAR_MAX_BYTES;
        if (is_sound) {
            received->total = event->list->files[0]->bytes;
            received->bytes = memory_alloc(received->total + 1);
        }
    } else if (is_chunk) {
        const ProtobufCBinaryData *chunk = &event->chunk->data;
        is_sound =
            received->bytes && event->chunk->offset == received->length && chunk->len <= received->total - received->length;
        if (is_sound && chunk->len)
            memcpy(received->bytes + received->length, chunk->data, chunk->len);
        received->length += is_sound ? chunk->len : 0;
    }
    arena_fini(arena);
    arena_init(arena, 0);
    return is_sound ? 0 : fail(error, ERROR_INTERNAL, "BAD_ANSWER", "the daemon's answer to FetchSidecars makes no sense");
}

int sidecar_bytes(struct tc_client *client, const char *artifact, const char *name, const struct tc_options *options,
                  char **bytes, size_t *length, struct error *error)
{
    struct arena scratch, arena; /* of one event */
    const struct wait wait = client_patient_wait(client, options);
    struct received received = {.total = UINT64_MAX};
    Tensorcast__Daemon__V1__FetchSidecarsRequest request = TENSORCAST__DAEMON__V1__FETCH_SIDECARS_REQUEST__INIT;
    const struct rpc_question question = {"FetchSidecars", &request.base, &tensorcast__daemon__v1__sidecar_event__descriptor,
                                          on_event, &received};
    request.names = &name;
    request.n_names = 1;
    *bytes = NULL;
    *length = 0;
    arena_init(&scratch, 0);
    arena_init(&arena, 0);
    request.artifact = client_reference(artifact, &scratch, error);
    int failed = request.artifact ? rpc_client_ask(client->rpc, &question, &wait, &arena, error) : -1;
    arena_fini(&arena);
    arena_fini(&scratch);
    if (!failed && received.length != received.total)
        failed = fail(error, ERROR_INTERNAL, "BAD_ANSWER", "not all of %s came", name);
    if (!failed) {
        *bytes = received.bytes;
        *length = received.length;
        return 0;
    }
    free(received.bytes);
    return error->code == ERROR_NOT_FOUND ? 0 : -1;
}
