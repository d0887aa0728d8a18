#include "sidecar_bytes.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/sidecar_name.h"
#include "request.h"

struct receiving {
    struct sidecar_set *set;
    uint64_t *sizes; /* NULL: the list has not come */
    size_t at;       /* the file that the next chunk is of */
};

static bool take_list(struct receiving *receiving, const Tensorcast__Daemon__V1__SidecarList *list)
{
    struct sidecar_set *set = receiving->set;
    if (receiving->sizes || list->n_files > SIDECAR_MAX_FILES)
        return false;
    receiving->sizes = memory_alloc_array(list->n_files + 1, sizeof *receiving->sizes);
    set->files = memory_alloc_array(list->n_files + 1, sizeof *set->files);
    set->notes = memory_alloc_array(list->n_notes + 1, sizeof *set->notes);
    for (; set->n_notes < list->n_notes; set->n_notes++)
        set->notes[set->n_notes] = memory_copy_text(list->notes[set->n_notes]);
    for (size_t i = 0; i < list->n_files; i++) {
        const Tensorcast__Daemon__V1__File *file = list->files[i];
        if (!sidecar_name_is_valid(file->name) || file->bytes > sidecar_max_bytes(file->name))
            return false;
        receiving->sizes[i] = file->bytes;
        set->files[set->n_files++] = (struct sidecar_file){memory_copy_text(file->name), memory_alloc(file->bytes + 1), 0};
    }
    return true;
}

static bool take_chunk(struct receiving *receiving, const Tensorcast__Daemon__V1__SidecarChunk *chunk)
{
    struct sidecar_set *set = receiving->set;
    if (receiving->at >= set->n_files || chunk->file != receiving->at)
        return false;
    struct sidecar_file *file = &set->files[receiving->at];
    uint64_t left = receiving->sizes[receiving->at] - file->length;
    if (chunk->offset != file->length || chunk->data.len > left || (left && !chunk->data.len))
        return false;
    if (chunk->data.len)
        memcpy(file->bytes + file->length, chunk->data.data, chunk->data.len);
    file->length += chunk->data.len;
    receiving->at += chunk->data.len == left;
    return true;
}

static int on_event(void *data, ProtobufCMessage *answer, struct arena *arena, struct error *error)
{
    const Tensorcast__Daemon__V1__SidecarEvent *event = (const void *)answer;
    bool is_sound = true;
    if (event->event_case == TENSORCAST__DAEMON__V1__SIDECAR_EVENT__EVENT_LIST)
        is_sound = take_list(data, event->list);
    else if (event->event_case == TENSORCAST__DAEMON__V1__SIDECAR_EVENT__EVENT_CHUNK)
        is_sound = take_chunk(data, event->chunk);
    arena_fini(arena);
    arena_init(arena, 0);
    return is_sound ? 0 : fail(error, ERROR_INTERNAL, "BAD_ANSWER", "the daemon's answer to FetchSidecars makes no sense");
}

int sidecar_set_fetch(struct tc_client *client, const char *artifact, const char *const *names, size_t n_names,
                      const struct tc_options *options, struct sidecar_set *set, struct error *error)
{
    struct arena scratch, arena; /* of one event */
    const struct wait wait = client_patient_wait(client, options);
    struct receiving receiving = {.set = set};
    Tensorcast__Daemon__V1__FetchSidecarsRequest request = TENSORCAST__DAEMON__V1__FETCH_SIDECARS_REQUEST__INIT;
    const struct rpc_question question = {"FetchSidecars", &request.base, &tensorcast__daemon__v1__sidecar_event__descriptor,
                                          on_event, &receiving};
    *set = (struct sidecar_set){0};
    arena_init(&scratch, 0);
    arena_init(&arena, 0);
    request.n_names = n_names;
    request.names = arena_array(&scratch, n_names + 1, sizeof *request.names);
    for (size_t i = 0; i < n_names; i++)
        request.names[i] = arena_text(&scratch, names[i], strlen(names[i]));
    if (options && options->variant)
        request.variant = request_variant(options->variant);
    request.artifact = client_reference(artifact, &scratch, error);
    int failed = request.artifact ? rpc_client_ask(client->rpc, &question, &wait, &arena, error) : -1;
    if (!failed && (!receiving.sizes || receiving.at < set->n_files))
        failed = fail(error, ERROR_INTERNAL, "BAD_ANSWER", "not every sidecar came");
    free(receiving.sizes);
    arena_fini(&arena);
    arena_fini(&scratch);
    return failed;
}

void sidecar_set_fini(struct sidecar_set *set)
{
    for (size_t i = 0; i < set->n_files; i++) {
        free(set->files[i].name);
        free(set->files[i].bytes);
    }
    for (size_t i = 0; i < set->n_notes; i++)
        free(set->notes[i]);
    free(set->notes);
    free(set->files);
    *set = (struct sidecar_set){0};
}

int sidecar_stored_config(struct tc_client *client, const char *artifact, const struct tc_options *options, char **bytes,
                          size_t *length, struct error *error)
{
    static const char *const name = "config.json";
    struct tc_options stored = options ? *options : (struct tc_options){0};
    struct sidecar_set set;
    stored.variant = NULL;
    *bytes = NULL;
    *length = 0;
    int failed = sidecar_set_fetch(client, artifact, &name, 1, options ? &stored : NULL, &set, error);
    if (!failed && set.n_files == 1) {
        *bytes = set.files[0].bytes;
        *length = set.files[0].length;
        set.files[0].bytes = NULL;
    }
    sidecar_set_fini(&set);
    return failed && error->code == ERROR_NOT_FOUND ? 0 : failed;
}
