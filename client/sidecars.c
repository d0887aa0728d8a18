/* The stream of FetchSidecars, to a list, into a folder or into memory. Nothing the daemon says is believed before it is
 * checked: names are plain file names by our own rule, sizes are bounded, and chunks follow each other exactly. */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/memory.h"
#include "base/sidecar_name.h"
#include "client.h"
#include "folder_writer.h"
#include "request.h"
#include "sidecars.h"
#include "tensorcast/daemon/v1/store_daemon.pb-c.h"

struct receiver {
    struct tc_sidecars *list;
    struct folder_writer *writer; /* NULL: into memory, or the list only */
    bool has_list, wants_bytes;
    size_t file; /* the next chunk belongs to */
    uint64_t offset;
};

static int fail_answer(const char *complaint, struct error *error)
{
    return fail(error, ERROR_INTERNAL, "BAD_ANSWER", "the daemon's answer to FetchSidecars makes no sense: %s", complaint);
}

static int take_list(struct receiver *receiver, const Tensorcast__Daemon__V1__SidecarList *message, struct error *error)
{
    struct tc_sidecars *list = receiver->list;
    if (receiver->has_list || message->n_files > SIDECAR_MAX_FILES)
        return fail_answer(receiver->has_list ? "two lists" : "too many files", error);
    receiver->has_list = true;
    list->files = arena_array(&list->arena, message->n_files + 1, sizeof *list->files);
    for (size_t i = 0; i < message->n_files; i++) {
        const Tensorcast__Daemon__V1__File *file = message->files[i];
        if (!sidecar_name_is_valid(file->name) || file->bytes > sidecar_max_bytes(file->name))
            return fail_answer("a file of that name or size is no sidecar", error);
        list->files[list->n_files++] =
            (struct sidecar_file){.name = arena_text(&list->arena, file->name, strlen(file->name)), .length = file->bytes};
    }
    list->notes = arena_array(&list->arena, message->n_notes + 1, sizeof *list->notes);
    for (; list->n_notes < message->n_notes; list->n_notes++)
        list->notes[list->n_notes] =
            arena_text(&list->arena, message->notes[list->n_notes], strlen(message->notes[list->n_notes]));
    return 0;
}

static int take_chunk(struct receiver *receiver, const Tensorcast__Daemon__V1__SidecarChunk *chunk, struct error *error)
{
    struct folder_writer *writer = receiver->writer;
    if (!receiver->wants_bytes || receiver->file >= receiver->list->n_files || chunk->file != receiver->file ||
        chunk->offset != receiver->offset)
        return fail_answer("a chunk that was not asked for", error);
    struct sidecar_file *file = &receiver->list->files[receiver->file];
    uint64_t left = file->length - receiver->offset;
    if (chunk->data.len > left || (chunk->data.len == 0 && left))
        return fail_answer("a chunk that is too long, or empty", error);
    if (!writer && !file->bytes)
        file->bytes = memory_alloc(file->length + 1);
    if (writer && receiver->offset == 0 && folder_writer_begin(writer, file->name, error) < 0)
        return -1;
    if (writer && folder_writer_add(writer, chunk->data.data, chunk->data.len, error) < 0)
        return -1;
    if (!writer && chunk->data.len)
        memcpy(file->bytes + receiver->offset, chunk->data.data, chunk->data.len);
    receiver->offset += chunk->data.len;
    if (chunk->data.len < left)
        return 0;
    receiver->file++;
    receiver->offset = 0;
    return writer ? folder_writer_commit(writer, error) : 0;
}

/* What was taken is copied or written, so that the memory of one event is enough for all. */
static int on_event(void *data, ProtobufCMessage *answer, struct arena *arena, struct error *error)
{
    const Tensorcast__Daemon__V1__SidecarEvent *event = (const void *)answer;
    struct receiver *receiver = data;
    int failed = 0;
    if (event->event_case == TENSORCAST__DAEMON__V1__SIDECAR_EVENT__EVENT_LIST)
        failed = take_list(receiver, event->list, error);
    else if (event->event_case == TENSORCAST__DAEMON__V1__SIDECAR_EVENT__EVENT_CHUNK)
        failed = take_chunk(receiver, event->chunk, error);
    arena_fini(arena);
    arena_init(arena, 0);
    return failed;
}

static struct tc_sidecars *receive_sidecars(struct receiver *receiver, struct tc_client *client, const char *artifact,
                                            const char *const *names, size_t n_names, const struct tc_options *options,
                                            struct error *error)
{
    struct arena scratch, arena; /* of one event */
    const struct wait wait = client_patient_wait(client, options);
    struct tc_sidecars *list = receiver->list = memory_alloc(sizeof *list);
    Tensorcast__Daemon__V1__FetchSidecarsRequest request = TENSORCAST__DAEMON__V1__FETCH_SIDECARS_REQUEST__INIT;
    const struct rpc_question question = {"FetchSidecars", &request.base, &tensorcast__daemon__v1__sidecar_event__descriptor,
                                          on_event, receiver};
    arena_init(&list->arena, 0);
    arena_init(&scratch, 0);
    arena_init(&arena, 0);
    request.list_only = !receiver->wants_bytes;
    request.n_names = n_names;
    request.names = arena_array(&scratch, n_names + 1, sizeof *request.names);
    for (size_t i = 0; i < n_names; i++)
        request.names[i] = arena_text(&scratch, names[i], strlen(names[i]));
    if (options && options->variant)
        request.variant = request_variant(options->variant);
    request.artifact = client_reference(artifact, &scratch, error);
    int failed = request.artifact ? rpc_client_ask(client->rpc, &question, &wait, &arena, error) : -1;
    arena_fini(&arena);
    arena_fini(&scratch);
    if (!failed && !receiver->has_list)
        failed = fail_answer("no list", error);
    else if (!failed && receiver->wants_bytes && receiver->file < list->n_files)
        failed = fail_answer("not every file came", error);
    if (!failed)
        return list;
    tc_sidecars_release(list);
    return NULL;
}

struct tc_sidecars *sidecars_fetch(struct tc_client *client, const char *artifact, const char *const *names, size_t n_names,
                                   const struct tc_options *options, struct error *error)
{
    return receive_sidecars(&(struct receiver){.wants_bytes = true}, client, artifact, names, n_names, options, error);
}

int sidecars_stored_config(struct tc_client *client, const char *artifact, const struct tc_options *options, char **bytes,
                           size_t *length, struct error *error)
{
    static const char *const name = "config.json";
    struct tc_options stored = options ? *options : (struct tc_options){0};
    stored.variant = NULL;
    *bytes = NULL;
    *length = 0;
    struct tc_sidecars *set = sidecars_fetch(client, artifact, &name, 1, options ? &stored : NULL, error);
    if (!set)
        return error->code == ERROR_NOT_FOUND ? 0 : -1;
    if (set->n_files == 1) {
        *bytes = set->files[0].bytes;
        *length = set->files[0].length;
        set->files[0].bytes = NULL;
    }
    tc_sidecars_release(set);
    return 0;
}

struct tc_sidecars *tc_sidecars_list(struct tc_client *client, const char *artifact, const struct tc_options *options,
                                     struct tc_error *error)
{
    struct error cause;
    struct tc_sidecars *list = receive_sidecars(&(struct receiver){0}, client, artifact, NULL, 0, options, &cause);
    if (!list)
        client_fail(error, &cause);
    return list;
}

struct tc_sidecars *tc_sidecars_fetch(struct tc_client *client, const char *artifact, const char *folder,
                                      const struct tc_options *options, struct tc_error *error)
{
    struct error cause;
    struct folder_writer writer;
    struct receiver receiver = {.writer = &writer, .wants_bytes = true};
    struct tc_sidecars *list = NULL;
    if (folder_writer_open(&writer, folder, &cause) == 0)
        list = receive_sidecars(&receiver, client, artifact, NULL, 0, options, &cause);
    if (!list)
        client_fail(error, &cause);
    folder_writer_close(&writer);
    return list;
}

void tc_sidecars_release(struct tc_sidecars *sidecars)
{
    if (!sidecars)
        return;
    for (size_t i = 0; i < sidecars->n_files; i++)
        free(sidecars->files[i].bytes);
    arena_fini(&sidecars->arena);
    free(sidecars);
}

const char *tc_sidecars_note(const struct tc_sidecars *sidecars, size_t index)
{
    return index < sidecars->n_notes ? sidecars->notes[index] : NULL;
}

size_t tc_sidecars_n_files(const struct tc_sidecars *sidecars)
{
    return sidecars->n_files;
}

const char *tc_sidecars_file(const struct tc_sidecars *sidecars, size_t file, uint64_t *bytes)
{
    *bytes = sidecars->files[file].length;
    return sidecars->files[file].name;
}
