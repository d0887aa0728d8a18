/* A list, newest first. One of the configuration may have to be resolved before its view is known, on a helper. Rows that have
 * ended stay until a newer one needs their place; they are dropped only when one is added, so that walks may end others. */
#include "api/prewarms.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/codec.h"
#include "api/prewarm.h"
#include "api/prewarm_view.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/reference.h"
#include "base/state.h"
#include "base/text.h"
#include "observe/log.h"
#include "replica/user_pins.h"
#include "resolve/sidecar.h"

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

static size_t count_ended(const struct prewarms *prewarms, uid_t uid)
{
    size_t n = 0;
    for (const struct row *row = prewarms->newest; row; row = row->older)
        n += row->state != ROW_RUNNING && row->prewarm.uid == uid;
    return n;
}

/* The oldest of who has most of them goes, so that nobody's failures push out those of another user. False: there is room. */
static bool drop_oldest(struct prewarms *prewarms)
{
    size_t n_ended = 0, most = 0;
    struct row **oldest = NULL;
    for (struct row **link = &prewarms->newest; *link; link = &(*link)->older) {
        size_t n = (*link)->state != ROW_RUNNING ? count_ended(prewarms, (*link)->prewarm.uid) : 0;
        n_ended += n > 0;
        if (n && n >= most) {
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

static void set_row_state(struct row *row, enum row_state state)
{
    static const struct state_row states[] = {[ROW_RUNNING] = {"running", STATE_BIT(ROW_DONE) | STATE_BIT(ROW_FAILED)},
                                              [ROW_DONE] = {"done", 0},
                                              [ROW_FAILED] = {"failed", 0}};
    static const struct state_machine machine = {"prewarm", states, 3};
    state_check(&machine, row->state, state);
    row->state = state;
}

static void on_ended(struct prewarm *prewarm, const struct load_result *result, const struct error *error)
{
    struct row *row = (struct row *)prewarm;
    (void)result;
    prewarm->ticket = NULL;
    artifact_unref(row->resolved);
    row->resolved = NULL;
    quota_charge_end(&row->turn);
    set_row_state(row, error ? ROW_FAILED : ROW_DONE);
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
    row->artifact = source_shown(reference);
    row->asked_ns = clock_now_ns();
    prewarms->newest = row;
    return row;
}

/* --- detached ------------------------------------------------------------------------------------------------------- */

struct copying {
    struct arena *arena;
    struct error *error;
};

static void *take_memory(void *data, size_t bytes)
{
    const struct copying *copying = data;
    return arena_try(copying->arena, bytes, copying->error);
}

static void keep_memory(void *data, void *piece) /* it goes with the arena */
{
    (void)data;
    (void)piece;
}

static Tensorcast__Daemon__V1__LoadRequest *copy_request(const Tensorcast__Daemon__V1__LoadRequest *load,
                                                         struct arena *arena, struct error *error)
{
    struct copying copying = {arena, error};
    ProtobufCAllocator allocator = {take_memory, keep_memory, &copying};
    size_t n_bytes = tensorcast__daemon__v1__load_request__get_packed_size(load);
    unsigned char *bytes = (unsigned char *)arena_try_bytes(arena, n_bytes, error);
    if (!bytes)
        return NULL;
    tensorcast__daemon__v1__load_request__pack(load, bytes);
    fail(error, ERROR_RESOURCE_EXHAUSTED, "OUT_OF_MEMORY", "no memory for a copy of the request");
    return tensorcast__daemon__v1__load_request__unpack(&allocator, n_bytes, bytes);
}

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
    const Tensorcast__Daemon__V1__LoadRequest *copy = copy_request(load, &input.arena, error);
    int failed = !copy || codec_load_request(copy, &input.arena, &input.request, error) != 0;
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

static void start_entry(struct prewarms *prewarms, const struct config_prewarm *entry)
{
    struct row *row = add_row(prewarms, getuid(), entry->artifact, entry->pin);
    row->entry = entry;
    row->prewarm.label = entry->text;
    row->cancel = (struct cancel){is_cancelled, row};
    if (prewarm_view_is_whole(entry)) {
        row->input.request.view = (struct view_spec){.whole = true, .placement = PLACEMENT_SOURCE};
        run_entry(row);
        return;
    }
    row->work = (struct loop_work){.do_work = resolve_entry, .done = on_entry_resolved, .uid = row->prewarm.uid};
    source_place_work(entry->artifact, &row->work);
    row->has_work = loop_submit(prewarms->api->services.loop, &row->work, &row->error) == 0;
    if (!row->has_work)
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

static bool is_running(const struct prewarms *prewarms, const char *label)
{
    const struct row *row = prewarms->newest;
    while (row && !(row->state == ROW_RUNNING && row->entry && strcmp(row->entry->text, label) == 0))
        row = row->older;
    return row != NULL;
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
    for (size_t i = 0; i < config->prewarm.texts.n_items; i++)
        if (!is_running(prewarms, config->prewarm.entries[i].text))
            start_entry(prewarms, &config->prewarm.entries[i]);
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
