/* A list, newest first. One of the configuration may have to be resolved before its view is known, on a helper. Rows that have
 * ended stay until a newer one needs their place; they are dropped only when one is added, so that walks may end others. */
#include "api/prewarms.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/codec.h"
#include "base/arena.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/message_decode.h"
#include "base/redact.h"
#include "base/reference.h"
#include "base/state.h"
#include "base/text.h"
#include "config/config.h"
#include "normalize/load_spec.h"
#include "observe/log.h"
#include "replica/replica.h"
#include "resolve/artifact.h"
#include "resolve/sidecar.h"
#include "resolve/tp_part.h"
#include "resolve/usual_split.h"

static void on_resolved(void *data)
{
    const struct prewarm *prewarm = data;
    if (prewarm->call)
        rpc_call_drop_request(prewarm->call);
}

/* A ticket's pin is let go only after the user's is there. */
static void end_prewarm(void *data, const struct error *error)
{
    struct prewarm *prewarm = data;
    struct error problem;
    struct ticket *ticket = prewarm->ticket;
    const struct load_result *result = ticket_result(ticket);
    if (!error && prewarm->pin && user_pins_add(result->replica, prewarm->uid, prewarm->label, &problem) != 0)
        error = &problem;
    prewarm->ended(prewarm, result, error);
    ticket_destroy(ticket);
}

/* Files that no client takes: their pages are brought into the page cache, and locked there if the budget has room. */
static void on_done(void *data, const struct load_result *result, const struct error *error)
{
    struct prewarm *prewarm = data;
    struct error problem;
    if (error || result->origin != LOAD_MAPPED) {
        end_prewarm(prewarm, error);
        return;
    }
    struct replica *replica = result->replica;
    struct mapped_files *files = replica->files;
    const struct load_services *services = &prewarm->api->services;
    const struct page_reading reading = {.loop = services->loop,
                                         .artifact = replica->mapping->artifact,
                                         .ranges = files->ranges,
                                         .uid = prewarm->uid,
                                         .is_awaited = true,
                                         .quota = services->quota,
                                         .done = end_prewarm,
                                         .data = prewarm};
    mapped_files_sent(files, files->view->n_files);
    if ((prewarm->call && rpc_call_is_left(prewarm->call)) || !files->ranges.n ||
        replica_has_pages(replica->table, &replica->key)) {
        end_prewarm(prewarm, NULL);
        return;
    }
    files->ranges = (struct page_ranges){0};
    replica->reader = page_reader_start(&reading, &problem);
    if (!replica->reader)
        end_prewarm(prewarm, &problem);
}

void prewarm_run(struct prewarm *prewarm, struct ticket *ticket)
{
    static const struct ticket_events events = {.resolved = on_resolved, .done = on_done};
    prewarm->ticket = ticket;
    ticket_submit(ticket, GOAL_REPLICA, &events, prewarm);
}

/* Of pages that are being read the reader ends with the replica, which ends with the ticket. */
void prewarm_cancel(struct prewarm *prewarm)
{
    struct error error;
    if (ticket_state(prewarm->ticket) != TICKET_DONE) {
        ticket_cancel(prewarm->ticket);
        return;
    }
    fail(&error, ERROR_CANCELLED, "CLIENT_LEFT", "the client cancelled, disconnected or passed its deadline");
    end_prewarm(prewarm, &error);
}

enum { DROPPED_FOR_ONE = 4 }; /* more may have ended at once; they go with the next */

enum row_state { ROW_RUNNING, ROW_DONE, ROW_FAILED };

struct row {
    struct prewarm prewarm; /* first */
    struct prewarms *all;
    struct row *older;
    enum row_state state;
    char *artifact, *message; /* as shown */
    uint64_t asked_ns;
    const struct config_prewarm *entry; /* NULL = it is detached */
    struct loop_work work;              /* that resolves the artifact of an entry */
    bool has_work, has_view;
    _Atomic bool is_cancelled;
    struct cancel cancel;
    struct artifact *resolved;
    struct ticket_input input;
    struct error error;
    struct quota_charge turn; /* while a detached one runs */
};

struct prewarms {
    const struct api *api;
    struct row *newest;
    bool is_stopped;
};

struct prewarms *prewarms_create(const struct api *api)
{
    struct prewarms *prewarms = memory_alloc(sizeof *prewarms);
    prewarms->api = api;
    return prewarms;
}

static void free_row(struct row *row)
{
    free(row->artifact);
    free(row->message);
    free(row);
}

void prewarms_destroy(struct prewarms *prewarms)
{
    while (prewarms && prewarms->newest) {
        struct row *row = prewarms->newest;
        prewarms->newest = row->older;
        free_row(row);
    }
    free(prewarms);
}

bool prewarms_are_idle(const struct prewarms *prewarms)
{
    const struct row *row = prewarms->newest;
    while (row && row->state != ROW_RUNNING)
        row = row->older;
    return row == NULL;
}

/* The oldest one of the user with most of them goes, so that no user's failures push out those of another. False: there is
 * room. */
static bool drop_oldest(struct prewarms *prewarms)
{
    size_t n_ended = 0, most = 0;
    struct row **oldest = NULL;
    for (struct row **link = &prewarms->newest; *link; link = &(*link)->older) {
        size_t n = 0; /* that have ended, of its user */
        if ((*link)->state == ROW_RUNNING)
            continue;
        for (const struct row *row = prewarms->newest; row; row = row->older)
            n += row->state != ROW_RUNNING && row->prewarm.uid == (*link)->prewarm.uid;
        n_ended++;
        if (n >= most) {
            most = n;
            oldest = link;
        }
    }
    if (n_ended < PREWARMS_REMEMBERED)
        return false;
    struct row *row = *oldest;
    *oldest = row->older;
    free_row(row);
    return true;
}

static void on_ended(struct prewarm *prewarm, const struct load_result *result, const struct error *error)
{
    static const struct state_row states[] = {[ROW_RUNNING] = {"running", STATE_BIT(ROW_DONE) | STATE_BIT(ROW_FAILED)},
                                              [ROW_DONE] = {"done", 0},
                                              [ROW_FAILED] = {"failed", 0}};
    static const struct state_machine machine = {"prewarm", states, 3};
    struct row *row = (struct row *)prewarm;
    enum row_state state = error ? ROW_FAILED : ROW_DONE;
    (void)result;
    prewarm->ticket = NULL;
    artifact_unref(row->resolved);
    row->resolved = NULL;
    quota_charge_end(&row->turn);
    state_check(&machine, row->state, state);
    row->state = state;
    if (!error)
        return;
    row->message = memory_print("%s: %s", error_code_name(error->code), error->message);
    log_at_of(row->entry ? LOG_WARN : log_level_of_error(error), "prewarm_failed", prewarm->uid,
              LOG_TEXT("artifact", row->artifact), LOG_BOOL("configured", row->entry != NULL),
              LOG_TEXT("code", error_code_name(error->code)), LOG_TEXT("reason", error->reason),
              LOG_TEXT("message", error->message));
}

static struct row *add_row(struct prewarms *prewarms, uid_t uid, const char *reference, bool pin)
{
    for (int i = 0; i < DROPPED_FOR_ONE && drop_oldest(prewarms); i++)
        continue;
    struct row *row = memory_alloc(sizeof *row);
    row->prewarm = (struct prewarm){.api = prewarms->api, .uid = uid, .pin = pin, .ended = on_ended};
    row->all = prewarms;
    row->older = prewarms->newest;
    row->artifact = redact_copy(reference);
    row->asked_ns = clock_now_ns();
    prewarms->newest = row;
    return row;
}

/* --- detached ------------------------------------------------------------------------------------------------------- */

int prewarms_detach(struct prewarms *prewarms, struct rpc_call *call, const Tensorcast__Daemon__V1__LoadRequest *load,
                    bool pin, struct error *error)
{
    const struct api *api = prewarms->api;
    struct ticket_input input = {.uid = rpc_call_uid(call),
                                 .pid = rpc_call_pid(call),
                                 .shares_groups = rpc_call_is_of_group(call, api->shared_group)};
    if (prewarms->is_stopped)
        return fail(error, ERROR_UNAVAILABLE, "DAEMON_STOPPING", "the daemon is stopping");
    struct quota_charge turn = {.quota = api->services.quota, .kind = QUOTA_PREWARMS, .uid = input.uid};
    if (quota_charge_add(&turn, 1, error) != 0)
        return -1;
    struct metadata_account before = metadata_enter(rpc_call_account(call));
    size_t n_bytes = protobuf_c_message_get_packed_size(&load->base);
    unsigned char *bytes = (unsigned char *)arena_try_bytes(&input.arena, n_bytes, error);
    const ProtobufCMessage *copy = NULL; /* the request goes with the call */
    bool is_out_of_memory;
    if (bytes) {
        protobuf_c_message_pack(&load->base, bytes);
        copy = message_decode(load->base.descriptor, bytes, n_bytes, &input.arena, &is_out_of_memory, error);
    }
    int failed = !copy || codec_load_request((const Tensorcast__Daemon__V1__LoadRequest *)copy, &input.arena, &input.request,
                                             error) != 0;
    metadata_enter(before);
    if (failed) {
        quota_charge_end(&turn);
        arena_fini(&input.arena);
        return -1;
    }
    struct row *row = add_row(prewarms, input.uid, load->artifact, pin);
    row->turn = turn;
    prewarm_run(&row->prewarm, ticket_create(api->loads, &input));
    return 0;
}

struct choice {
    const struct config_prewarm *entry;
    const struct artifact *artifact;
    const struct tp_model *model;
    struct arena *arena;
    bool *is_chosen; /* per tensor */
    struct view_item *items;
    size_t n_items;
};

static bool find_tensor(const void *data, const char *name, size_t length, struct tp_tensor *found)
{
    const struct artifact *artifact = data;
    uint32_t at = map_find(&artifact->by_name, name, length);
    if (at == MAP_NONE)
        return false;
    const struct tensor_record *tensor = &artifact->tensors[at];
    *found = (struct tp_tensor){tensor->name, tensor->name_length, tensor->shape, tensor->rank};
    return true;
}

static int split(const struct choice *choice, const struct tensor_record *tensor, struct view_item *item,
                 struct error *error)
{
    const struct tp_group group = {choice->model, choice->entry->tp_size, choice->entry->tp_rank, find_tensor,
                                   choice->artifact};
    const struct tp_tensor it = {tensor->name, tensor->name_length, tensor->shape, tensor->rank};
    struct tp_part part;
    if (tp_part_find(&group, &it, &part, error) < 0)
        return -1;
    if (part.dimension == USUAL_SPLIT_NONE)
        return 0;
    struct slice *slices = arena_try_array(choice->arena, tensor->rank, sizeof *slices, error);
    if (!slices)
        return -1;
    for (uint32_t d = 0; d < tensor->rank; d++)
        slices[d] = (struct slice){0, INT64_MAX};
    slices[part.dimension] = (struct slice){(int64_t)part.start, (int64_t)part.stop};
    item->slices = slices;
    item->n_slices = tensor->rank;
    return 0;
}

/* A pattern means the tensors of files that are not there, too. NULL = all. */
static int check_absent(const struct artifact *artifact, const char *pattern, struct error *error)
{
    const struct artifact_absent *absent = artifact_absent(artifact);
    for (size_t i = 0; pattern && i < absent->n_tensors; i++) {
        const struct absent_tensor *tensor = &absent->tensors[i];
        if (strcmp(pattern, tensor->name) == 0 || text_glob(pattern, tensor->name, tensor->name_length))
            return artifact_check_complete(artifact, error);
    }
    return pattern ? 0 : artifact_check_complete(artifact, error);
}

/* pattern NULL = all. */
static int choose_matches(struct choice *choice, const char *pattern, struct error *error)
{
    char shown[TEXT_NAME_CHARS];
    size_t n_matches = 0;
    if (check_absent(choice->artifact, pattern, error) != 0)
        return -1;
    for (size_t i = 0; i < choice->artifact->n_tensors; i++) {
        const struct tensor_record *tensor = &choice->artifact->tensors[i];
        bool is_name = pattern && strlen(pattern) == tensor->name_length && strcmp(pattern, tensor->name) == 0;
        if (pattern && !is_name && !text_glob(pattern, tensor->name, tensor->name_length))
            continue;
        n_matches++;
        if (choice->is_chosen[i])
            continue;
        choice->is_chosen[i] = true;
        struct view_item *item = &choice->items[choice->n_items++];
        *item = (struct view_item){.name = tensor->name, .name_length = tensor->name_length};
        if (split(choice, tensor, item, error) != 0)
            return -1;
    }
    return n_matches || !pattern ? 0
                                 : fail(error, ERROR_NOT_FOUND, "TENSOR_NOT_FOUND", "no tensor of it matches '%s'",
                                        text_escape(pattern, strlen(pattern), shown));
}

/* In the arena; names are the artifact's, whose config.json says what is in the model. */
static int prewarm_view_build(const struct config_prewarm *entry, const struct artifact *artifact,
                              const struct tp_model *model, struct arena *arena, struct view_spec *view, struct error *error)
{
    struct choice choice = {.entry = entry, .artifact = artifact, .model = model, .arena = arena};
    int failed = 0;
    choice.is_chosen = arena_try_array(arena, artifact->n_tensors, sizeof *choice.is_chosen, error);
    choice.items = choice.is_chosen ? arena_try_array(arena, artifact->n_tensors, sizeof *choice.items, error) : NULL;
    if (!choice.items)
        return -1;
    if (entry->n_tensors == 0)
        failed = choose_matches(&choice, NULL, error);
    for (size_t i = 0; i < entry->n_tensors && !failed; i++)
        failed = choose_matches(&choice, entry->tensors[i], error);
    *view = (struct view_spec){.whole = choice.n_items == 0,
                               .items = choice.items,
                               .n_items = choice.n_items,
                               .placement = entry->n_tensors ? PLACEMENT_PACKED : PLACEMENT_SOURCE};
    return failed;
}

/* --- of the configuration ------------------------------------------------------------------------------------------- */

static bool is_cancelled(void *data)
{
    return ((const struct row *)data)->is_cancelled;
}

static int read_model(struct row *row, const struct source_options *options, struct tp_model *model)
{
    const char *artifact = row->entry->artifact;
    char *json = NULL, *folder = reference_folder_of(artifact);
    size_t length = 0;
    int failed = 0;
    if (row->entry->tp_size > 1)
        failed = sidecar_read_config(artifact, options, &row->cancel, &json, &length, &row->error);
    if (row->entry->tp_size > 1 && !failed && !json && folder) /* a file has none; it lies beside it */
        failed = sidecar_read_config(folder, options, &row->cancel, &json, &length, &row->error) < 0 &&
                         row->error.code != ERROR_PERMISSION_DENIED
                     ? -1
                     : 0;
    failed = failed ? failed : tp_model_read(json, length, model, &row->error);
    free(folder);
    free(json);
    return failed;
}

static void resolve_entry(struct loop_work *work)
{
    struct row *row = (struct row *)((char *)work - offsetof(struct row, work));
    const struct load_services *services = &row->prewarm.api->services;
    const struct source_options options =
        load_services_source_options(services, services->config, row->prewarm.uid, &row->cancel);
    struct metadata_account before = metadata_enter((struct metadata_account){services->quota, row->prewarm.uid});
    struct tp_model model;
    row->has_view =
        read_model(row, &options, &model) == 0 &&
        artifact_resolve(row->entry->artifact, &options, services->headers, RESOLVE_ALLOW_ABSENT_FILES, &row->resolved,
                         &row->error) == 0 &&
        prewarm_view_build(row->entry, row->resolved, &model, &row->input.arena, &row->input.request.view, &row->error) == 0;
    metadata_enter(before);
}

static void run_entry(struct row *row)
{
    row->input.uid = row->prewarm.uid;
    row->input.artifact = row->resolved;
    row->input.request.artifact = row->entry->artifact;
    row->input.request.memory = MEMORY_COPIED;
    struct ticket *ticket = ticket_create(row->prewarm.api->loads, &row->input);
    row->input.arena = (struct arena){0}; /* the ticket's */
    prewarm_run(&row->prewarm, ticket);
}

static void on_entry_resolved(struct loop_work *work)
{
    struct row *row = (struct row *)((char *)work - offsetof(struct row, work));
    row->has_work = false;
    if (row->has_view && !row->is_cancelled) {
        run_entry(row);
        return;
    }
    if (row->is_cancelled)
        fail(&row->error, ERROR_CANCELLED, "PREWARM_ENDED", "the daemon is stopping, or its configuration has changed");
    arena_fini(&row->input.arena);
    on_ended(&row->prewarm, NULL, &row->error);
}

static void cancel_row(struct row *row)
{
    row->prewarm.pin = false;
    row->is_cancelled = true;
    if (row->has_work)
        loop_cancel(row->all->api->services.loop, &row->work);
    else if (row->prewarm.ticket)
        prewarm_cancel(&row->prewarm);
}

static bool is_listed(const void *data, const char *label)
{
    const struct config *config = data;
    size_t i = 0;
    while (i < config->prewarm.texts.n_items && strcmp(config->prewarm.entries[i].text, label) != 0)
        i++;
    return i < config->prewarm.texts.n_items;
}

void prewarms_configure(struct prewarms *prewarms, const struct config *config)
{
    const struct load_targets *targets = prewarms->api->services.targets;
    if (prewarms->is_stopped)
        return;
    for (struct row *row = prewarms->newest; row; row = row->older)
        if (row->state == ROW_RUNNING && row->entry && !is_listed(config, row->entry->text))
            cancel_row(row);
    for (size_t i = 0; i < targets->n; i++)
        user_pins_remove_labels(targets->list[i].replicas, is_listed, config);
    for (size_t i = 0; i < config->prewarm.texts.n_items; i++) {
        const struct config_prewarm *entry = &config->prewarm.entries[i];
        struct row *row = prewarms->newest;
        while (row && !(row->state == ROW_RUNNING && row->entry && strcmp(row->entry->text, entry->text) == 0))
            row = row->older;
        if (row)
            continue;
        row = add_row(prewarms, getuid(), entry->artifact, entry->pin);
        row->entry = entry;
        row->prewarm.label = entry->text;
        row->cancel = (struct cancel){is_cancelled, row};
        if (entry->n_tensors == 0 && entry->tp_size == 0) {
            row->input.request.view = (struct view_spec){.whole = true, .placement = PLACEMENT_SOURCE};
            run_entry(row);
            continue;
        }
        row->work = (struct loop_work){.do_work = resolve_entry, .done = on_entry_resolved, .uid = row->prewarm.uid};
        source_place_work(entry->artifact, &row->work);
        row->has_work = loop_submit(prewarms->api->services.loop, &row->work, &row->error) == 0;
        if (!row->has_work)
            on_ended(&row->prewarm, NULL, &row->error);
    }
}

/* --- all of them ---------------------------------------------------------------------------------------------------- */

void prewarms_stop(struct prewarms *prewarms)
{
    prewarms->is_stopped = true;
    for (struct row *row = prewarms->newest; row; row = row->older)
        if (row->state == ROW_RUNNING)
            cancel_row(row);
}

uint64_t prewarms_unpin(struct prewarms *prewarms, uid_t uid, const char *reference)
{
    uint64_t n = 0;
    for (struct row *row = prewarms->newest; row; row = row->older) {
        bool is_meant = row->state == ROW_RUNNING && row->prewarm.pin &&
                        (row->prewarm.uid == uid || quota_is_privileged(uid)) &&
                        (!reference || strcmp(row->artifact, reference) == 0);
        n += is_meant;
        row->prewarm.pin = row->prewarm.pin && !is_meant;
    }
    return n;
}

void prewarms_each(const struct prewarms *prewarms, void (*fn)(void *data, const struct prewarms_row *row), void *data)
{
    static const char *const names[] = {[ROW_RUNNING] = "running", [ROW_DONE] = "done", [ROW_FAILED] = "failed"};
    for (int running = 1; running >= 0; running--) {
        for (const struct row *row = prewarms->newest; row; row = row->older) {
            const struct prewarms_row told = {row->artifact,     names[row->state], row->message ? row->message : "",
                                              row->prewarm.uid,  row->asked_ns,     row->prewarm.pin,
                                              row->entry != NULL};
            if ((row->state == ROW_RUNNING) == running)
                fn(data, &told);
        }
    }
}
