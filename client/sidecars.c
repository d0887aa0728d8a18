/* tc_sidecars_list and tc_sidecars_fetch. Nothing the daemon says is believed before it is checked: names are plain file
 * names by our own rule, sizes are bounded, and chunks follow each other exactly. */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/memory.h"
#include "base/sidecar_name.h"
#include "client.h"
#include "folder_writer.h"
#include "request.h"
#include "tensorcast/daemon/v1/store_daemon.pb-c.h"

struct tc_sidecars {
    struct arena arena;
    char **names; /* NULL until the list has come */
    uint64_t *sizes;
    size_t n_files;
    char **notes;
    size_t n_notes;
};

struct sidecar_receiver {
    struct tc_sidecars *list;
    struct folder_writer *writer; /* NULL = the list only */
    size_t file;                  /* the next chunk belongs to */
    uint64_t offset;
};

static int fail_answer(const char *complaint, struct error *error)
{
    return fail(error, ERROR_INTERNAL, "BAD_ANSWER", "the daemon's answer to FetchSidecars makes no sense: %s", complaint);
}

static int take_list(struct sidecar_receiver *receiver, const Tensorcast__Daemon__V1__SidecarList *message,
                     struct error *error)
{
    struct tc_sidecars *list = receiver->list;
    if (list->names || message->n_files > SIDECAR_MAX_FILES)
        return fail_answer(list->names ? "two lists" : "too many files", error);
    list->names = arena_array(&list->arena, message->n_files + 1, sizeof *list->names);
    list->sizes = arena_array(&list->arena, message->n_files + 1, sizeof *list->sizes);
    for (size_t i = 0; i < message->n_files; i++) {
        const Tensorcast__Daemon__V1__File *file = message->files[i];
        if (!sidecar_name_is_valid(file->name) || file->bytes > sidecar_max_bytes(file->name))
            return fail_answer("a file of that name or size is no sidecar", error);
        list->names[i] = arena_text(&list->arena, file->name, strlen(file->name));
        list->sizes[i] = file->bytes;
    }
    list->n_files = message->n_files;
    list->notes = arena_array(&list->arena, message->n_notes + 1, sizeof *list->notes);
    for (size_t i = 0; i < message->n_notes; i++)
        list->notes[i] = arena_text(&list->arena, message->notes[i], strlen(message->notes[i]));
    list->n_notes = message->n_notes;
    return 0;
}

static int take_chunk(struct sidecar_receiver *receiver, const Tensorcast__Daemon__V1__SidecarChunk *chunk,
                      struct error *error)
{
    const struct tc_sidecars *list = receiver->list;
    struct folder_writer *writer = receiver->writer;
    if (!writer || receiver->file >= list->n_files || chunk->file != receiver->file || chunk->offset != receiver->offset)
        return fail_answer("a chunk that nobody asked for", error);
    uint64_t left = list->sizes[receiver->file] - receiver->offset;
    if (chunk->data.len > left || (chunk->data.len == 0 && left))
        return fail_answer("a chunk that is too long, or empty", error);
    if (receiver->offset == 0 && folder_writer_begin(writer, list->names[receiver->file], error) < 0)
        return -1;
    if (folder_writer_add(writer, chunk->data.data, chunk->data.len, error) < 0)
        return -1;
    receiver->offset += chunk->data.len;
    if (chunk->data.len < left)
        return 0;
    receiver->file++;
    receiver->offset = 0;
    return folder_writer_commit(writer, error);
}

/* What was taken is copied or written, so that the memory of one event is enough for all. */
static int on_event(void *data, ProtobufCMessage *answer, struct arena *arena, struct error *error)
{
    const Tensorcast__Daemon__V1__SidecarEvent *event = (const void *)answer;
    struct sidecar_receiver *receiver = data;
    int failed = 0;
    if (event->event_case == TENSORCAST__DAEMON__V1__SIDECAR_EVENT__EVENT_LIST)
        failed = take_list(receiver, event->list, error);
    else if (event->event_case == TENSORCAST__DAEMON__V1__SIDECAR_EVENT__EVENT_CHUNK)
        failed = take_chunk(receiver, event->chunk, error);
    arena_fini(arena);
    arena_init(arena, 0);
    return failed;
}

static struct tc_sidecars *fetch_sidecars(struct tc_client *client, const char *artifact, struct folder_writer *writer,
                                          const struct tc_options *options, struct tc_error *error)
{
    struct error cause;
    struct arena scratch, arena; /* of one event */
    const struct wait wait = client_patient_wait(client, options);
    struct tc_sidecars *list = memory_alloc(sizeof *list);
    struct sidecar_receiver receiver = {.list = list, .writer = writer};
    Tensorcast__Daemon__V1__FetchSidecarsRequest request = TENSORCAST__DAEMON__V1__FETCH_SIDECARS_REQUEST__INIT;
    const struct rpc_question question = {"FetchSidecars", &request.base, &tensorcast__daemon__v1__sidecar_event__descriptor,
                                          on_event, &receiver};
    request.list_only = !writer;
    if (options && options->variant)
        request.variant = request_variant(options->variant);
    arena_init(&list->arena, 0);
    arena_init(&scratch, 0);
    arena_init(&arena, 0);
    request.artifact = client_reference(artifact, &scratch, &cause);
    int failed = request.artifact ? rpc_client_ask(client->rpc, &question, &wait, &arena, &cause) : -1;
    arena_fini(&arena);
    arena_fini(&scratch);
    if (!failed && !list->names)
        failed = fail_answer("no list", &cause);
    else if (!failed && writer && receiver.file < list->n_files)
        failed = fail_answer("not every file came", &cause);
    if (!failed)
        return list;
    client_fail(error, &cause);
    tc_sidecars_release(list);
    return NULL;
}

struct tc_sidecars *tc_sidecars_list(struct tc_client *client, const char *artifact, const struct tc_options *options,
                                     struct tc_error *error)
{
    return fetch_sidecars(client, artifact, NULL, options, error);
}

struct tc_sidecars *tc_sidecars_fetch(struct tc_client *client, const char *artifact, const char *folder,
                                      const struct tc_options *options, struct tc_error *error)
{
    struct error cause;
    struct folder_writer writer;
    struct tc_sidecars *list = NULL;
    if (folder_writer_open(&writer, folder, &cause) == 0)
        list = fetch_sidecars(client, artifact, &writer, options, error);
    else
        client_fail(error, &cause);
    folder_writer_close(&writer);
    return list;
}

void tc_sidecars_release(struct tc_sidecars *sidecars)
{
    if (!sidecars)
        return;
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
    *bytes = sidecars->sizes[file];
    return sidecars->names[file];
}
