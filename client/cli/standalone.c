/* The daemon's loads in this process: one ticket of its load table, on a loop that runs until the ticket is done. No roots
 * are enforced and relative paths work, because the files are opened with the rights of the command's user. Nothing
 * is cached: every resolve checks every header. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "api/codec.h"
#include "api/report_fill.h"
#include "api/trace_fill.h"
#include "backend.h"
#include "base/clock.h"
#include "base/host_headroom.h"
#include "base/loop.h"
#include "base/memory.h"
#include "blocks/blocks.h"
#include "client/client.h"
#include "client/report_json.h"
#include "client/request.h"
#include "client/variant.h"
#include "folder_writer.h"
#include "integrity/scrub.h"
#include "interrupt.h"
#include "load/ticket.h"
#include "observe/log.h"
#include "plan/explain.h"
#include "resolve/artifact_files.h"
#include "resolve/sidecar.h"
#include "source/stores.h"
#include "variant/documents.h"
#include "variant/variant.h"

enum { TICK_MS = 10 };

struct standalone {
    struct backend *backend;
    struct artifact *artifact; /* once it was asked for */
    struct artifact *listed;   /* its files, once they were */
    uint64_t resolve_ns;
    struct load_services services; /* stores: once something else than disk: is asked for */
    struct load_table *loads;
    struct ticket *ticket;
    bool is_cancelled, is_done, has_failed;
    struct error error;
    struct arena arena; /* the request and the report */
};

/* --- life --- */

static int standalone_open(struct backend *backend, struct error *error)
{
    struct standalone *state = memory_alloc(sizeof *state);
    state->backend = backend;
    state->services.config = config_defaults();
    state->services.of_one_user = true;
    backend->state = state;
    log_set_level(backend->args->quiet ? LOG_ERROR : LOG_WARN);
    if (backend->args->load.device)
        return fail(error, ERROR_INVALID_ARGUMENT, "STANDALONE_DEVICE",
                    "--standalone loads into host memory only; leave out --device");
    return 0;
}

static void standalone_close(struct backend *backend)
{
    struct standalone *state = backend->state;
    ticket_destroy(state->ticket);
    load_table_destroy(state->loads);
    load_services_close(&state->services);
    loop_destroy(state->services.loop);
    artifact_unref(state->artifact);
    artifact_unref(state->listed);
    stores_destroy(state->services.stores);
    arena_fini(&state->arena);
    free(state);
}

/* --- resolve --- */

/* Stores take their settings from the environment alone: there is no configuration here. */
static int open_stores(struct standalone *state, struct error *error)
{
    if (!source_is_remote(state->backend->args->artifact) || state->services.stores)
        return 0;
    return stores_create(state->services.config, &state->backend->cancel, &state->services.stores, error);
}

static struct source_options source_options_of(const struct standalone *state)
{
    return load_services_source_options(&state->services, state->services.config, getuid(), NULL);
}

static int find_artifact(struct standalone *state, struct error *error)
{
    uint64_t before_ns = clock_now_ns(), left_ms;
    unsigned flags = RESOLVE_FRESH | (state->backend->args->allow_missing_shards ? RESOLVE_ALLOW_MISSING_SHARDS : 0) |
                     (state->backend->variant ? 0 : RESOLVE_ALLOW_ABSENT_FILES); /* callers that take all of it check that */
    if (state->artifact)
        return 0;
    if (open_stores(state, error) < 0)
        return backend_fail(state->backend, error);
    const struct source_options options = source_options_of(state);
    if (artifact_resolve(state->backend->args->artifact, &options, NULL, flags, &state->artifact, error) < 0)
        return backend_fail(state->backend, error);
    const struct tc_variant *variant = state->backend->variant;
    if (variant && variant_apply(&state->artifact, variant->json, variant->length, NULL, NULL, error) < 0)
        return variant_locate(variant, error);
    state->resolve_ns = clock_now_ns() - before_ns;
    return backend_time_left(state->backend, &left_ms, error);
}

/* Told as the daemon would tell it. */
static struct catalog *standalone_resolve(struct backend *backend, int flags, struct error *error)
{
    struct standalone *state = backend->state;
    struct tc_artifact *told = NULL;
    struct arena arena;
    if (find_artifact(state, error) < 0 ||
        (!(flags & TC_RESOLVE_ALLOW_ABSENT_FILES) && artifact_check_complete(state->artifact, error) < 0))
        return NULL;
    arena_init(&arena, 0);
    Tensorcast__Daemon__V1__ResolveResponse *response = codec_artifact(state->artifact, "", &arena, error);
    char *source = flags & TC_RESOLVE_INDEXES ? artifact_source_index_json(state->artifact) : NULL;
    char *canonical = flags & TC_RESOLVE_INDEXES ? artifact_canonical_index_json(state->artifact) : NULL;
    if (response && source)
        response->source_index_json = arena_text(&arena, source, strlen(source));
    if (response && canonical)
        response->canonical_index_json = arena_text(&arena, canonical, strlen(canonical));
    free(source);
    free(canonical);
    if (response)
        told = client_artifact(&arena, response, error);
    arena_fini(&arena);
    return told ? catalog_create(told, artifact_ref(state->artifact)) : NULL;
}

/* --- plan and load --- */

static void on_progress(void *data, const struct load_info *info)
{
    struct standalone *state = data;
    char stage[WAITING_TEXT_CHARS + 16];
    snprintf(stage, sizeof stage, "%s%s", info->waiting_for[0] ? "waiting for " : info->stage, info->waiting_for);
    progress_show(&state->backend->progress, stage, info->done_bytes, info->total_bytes);
}

static void on_done(void *data, const struct load_result *result, const struct error *error)
{
    struct standalone *state = data;
    (void)result;
    state->is_done = true;
    state->has_failed = error != NULL;
    if (error)
        state->error = *error;
    if (!state->is_cancelled) /* a load goes on for a moment after its ticket was cancelled, see on_tick() */
        loop_stop(state->services.loop);
}

static void on_tick(void *data)
{
    struct standalone *state = data;
    if (!state->is_done && !state->is_cancelled && cancel_is_set(&state->backend->cancel)) {
        state->is_cancelled = true;
        ticket_cancel(state->ticket);
    }
    if (state->is_done && load_table_idle(state->loads))
        loop_stop(state->services.loop);
}

static const struct load_result *run_ticket(struct standalone *state, const struct tc_view *view, enum load_goal goal,
                                            struct error *error)
{
    static const struct ticket_events events = {.progress = on_progress, .done = on_done};
    const struct tc_options options = backend_options(state->backend);
    struct ticket_input input = {.uid = getuid(), .artifact = state->artifact};
    const struct load_room room = {.host_budget_bytes = host_headroom_at("").available_bytes};
    uint64_t left_ms;
    state->services.loop = loop_create();
    if (open_stores(state, error) < 0 || load_services_open(&state->services, &room, error) < 0)
        return NULL;
    state->loads = load_table_create(&state->services);
    const Tensorcast__Daemon__V1__LoadRequest *request =
        request_build(state->backend->args->artifact, view, &options, &state->arena, error);
    if (!request || codec_load_request(request, &state->arena, &input.request, error) < 0)
        return NULL;
    state->ticket = ticket_create(state->loads, &input);
    ticket_submit(state->ticket, goal, &events, state);
    struct loop_timer *timer = loop_timer_create(state->services.loop, on_tick, state);
    loop_timer_start(timer, TICK_MS, TICK_MS);
    loop_run(state->services.loop);
    loop_timer_destroy(timer);
    if (state->has_failed) {
        *error = state->error;
        variant_locate(state->backend->variant, error);
        backend_fail(state->backend, error);
        return NULL;
    }
    return backend_time_left(state->backend, &left_ms, error) < 0 ? NULL : ticket_result(state->ticket);
}

static Tensorcast__Daemon__V1__LoadReport *report(struct standalone *state, bool is_plan)
{
    const struct load_result *result = ticket_result(state->ticket);
    Tensorcast__Daemon__V1__LoadReport *report = report_fill(result, &state->arena);
    report->load_id = is_plan ? "" : report->load_id;
    if (!report->mapped) { /* a load that hands out no memory does not ask */
        report->mapped = arena_alloc(&state->arena, sizeof *report->mapped);
        tensorcast__daemon__v1__mapped_facts__init(report->mapped);
        report->mapped->reason = "a load without a daemon is copied";
    }
    report->resolve_ms += clock_ms(state->resolve_ns);
    report->total_ms += clock_ms(state->resolve_ns);
    return report;
}

static int standalone_load(struct backend *backend, const struct tc_view *view, struct loaded *loaded, struct error *error)
{
    struct standalone *state = backend->state;
    interrupt_defer(NULL);
    const struct load_result *result = run_ticket(state, view, GOAL_REPLICA, error);
    if (!result)
        return -1;
    const struct mapping *mapping = result->mapping;
    const char *memory = result->replica->segment->host_address;
    loaded->n_tensors = mapping->n_tensors;
    loaded->tensors = memory_alloc_array(mapping->n_tensors + 1, sizeof *loaded->tensors);
    for (size_t i = 0; i < mapping->n_tensors; i++) {
        const struct view_tensor *tensor = &mapping->tensors[i];
        loaded->tensors[i] = (struct report_json_tensor){.name = tensor->record->name,
                                                         .name_length = tensor->record->name_length,
                                                         .dtype = dtype_name(tensor->record->dtype),
                                                         .shape = tensor->shape,
                                                         .rank = tensor->record->rank,
                                                         .offset = tensor->offset,
                                                         .bytes = tensor->bytes,
                                                         .data = memory + tensor->offset};
    }
    loaded->report = report(state, false);
    loaded->owner = state;
    return 0;
}

/* The memory itself goes with the backend. */
static void standalone_release(struct backend *backend, struct loaded *loaded)
{
    (void)backend;
    free(loaded->tensors);
}

static int standalone_explain(struct backend *backend, const struct tc_view *view, char **json, char **text,
                              struct error *error)
{
    struct standalone *state = backend->state;
    const struct load_result *result = run_ticket(state, view, GOAL_PLAN, error);
    if (!result)
        return -1;
    const struct plan_facts facts = ticket_facts(state->ticket);
    *json = report_json(report(state, true), NULL, 0, false);
    *text = explain_text(result->plan, result->mapping, &facts);
    return 0;
}

/* Of the one load that this process has made. */
static int standalone_blame(struct backend *backend, const char *load_id, struct arena *arena,
                            const Tensorcast__Daemon__V1__BlameResponse **response, struct error *error)
{
    const struct standalone *state = backend->state;
    const struct trace *trace = ticket_result(state->ticket)->trace;
    Tensorcast__Daemon__V1__BlameResponse *told = CODEC_NEW(blame_response, arena);
    (void)load_id;
    (void)error;
    told->loads = arena_array(arena, 1, sizeof *told->loads);
    told->loads[told->n_loads++] = trace_fill(trace, TRACE_PART_LANES, trace_begin_ns(trace), arena);
    *response = told;
    return 0;
}

/* --- beside the tensors --- */

enum { CHUNK_BYTES = 1 << 20 };

static int copy_sidecar(struct sidecars *sidecars, size_t index, struct folder_writer *writer, void *buffer,
                        const struct cancel *cancel, struct error *error)
{
    const struct sidecar *sidecar = &sidecars->files[index];
    uint64_t offset = 0;
    if (folder_writer_begin(writer, sidecar->name, error) < 0)
        return -1;
    do {
        uint64_t left = sidecar->size_bytes - offset, count = left < CHUNK_BYTES ? left : CHUNK_BYTES;
        if (sidecars_read(sidecars, index, offset, buffer, count, cancel, error) < 0 ||
            folder_writer_add(writer, buffer, count, error) < 0)
            return -1;
        offset += count;
    } while (offset < sidecar->size_bytes);
    return folder_writer_commit(writer, error);
}

static int correct_documents(struct standalone *state, struct sidecars *sidecars, struct error *error)
{
    const struct tc_variant *variant = state->backend->variant;
    if (find_artifact(state, error) < 0)
        return -1;
    const struct documents_of of = {state->artifact, variant ? variant->json : NULL, variant ? variant->length : 0};
    return documents_correct(sidecars, &of, &state->backend->cancel, error);
}

static int standalone_fetch_sidecars(struct backend *backend, const char *folder, const struct sidecar_taker *taker,
                                     struct error *error)
{
    struct standalone *state = backend->state;
    const struct cancel *cancel = &backend->cancel;
    struct folder_writer writer;
    interrupt_defer(NULL);
    if (open_stores(state, error) < 0)
        return -1;
    const struct source_options options = source_options_of(state);
    struct sidecars *sidecars = sidecars_open(backend->args->artifact, &options, NULL, 0, false, cancel, error);
    int failed = sidecars ? folder_writer_open(&writer, folder, error) : -1;
    if (!failed && taker->is_anew)
        failed = correct_documents(state, sidecars, error);
    void *buffer = memory_alloc(CHUNK_BYTES);
    for (size_t i = 0; !failed && i < sidecars->n_files; i++) {
        failed = copy_sidecar(sidecars, i, &writer, buffer, cancel, error);
        if (!failed)
            taker->take(taker->data, sidecars->files[i].name, sidecars->files[i].size_bytes);
    }
    for (size_t i = 0; !failed && i < sidecars->notes.n; i++)
        backend_warn(sidecars->notes.texts[i]);
    for (size_t i = 0; !failed && i < sidecars->changes.n && !backend->args->quiet; i++)
        fprintf(stderr, "tensorcast: %s\n", sidecars->changes.texts[i]);
    if (sidecars)
        folder_writer_close(&writer);
    free(buffer);
    sidecars_close(sidecars);
    return failed ? backend_fail(backend, error) : 0;
}

struct watch { /* shows how far the reading is, until it is over */
    struct backend *backend;
    uint64_t done_bytes, total_bytes;
    bool is_over; /* atomic */
};

static void *show_progress(void *data)
{
    struct watch *watch = data;
    while (!__atomic_load_n(&watch->is_over, __ATOMIC_RELAXED)) {
        progress_show(&watch->backend->progress, "read", __atomic_load_n(&watch->done_bytes, __ATOMIC_RELAXED),
                      watch->total_bytes);
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
    return NULL;
}

static struct tc_verification *standalone_verify(struct backend *backend, bool with_manifest, struct error *error)
{
    struct standalone *state = backend->state;
    struct watch watch = {.backend = backend};
    struct tc_verification *verification = NULL;
    struct arena arena;
    pthread_t thread;
    interrupt_defer(NULL);
    if (find_artifact(state, error) < 0 || artifact_check_complete(state->artifact, error) < 0)
        return NULL;
    const struct scrub_options options = {state->artifact, with_manifest, &watch.done_bytes, &backend->cancel, getuid()};
    if (state->artifact->manifest_problem.code && !with_manifest) {
        *error = state->artifact->manifest_problem;
        return NULL;
    }
    watch.total_bytes = scrub_total_bytes(&options);
    bool is_shown = watch.total_bytes > 0 && pthread_create(&thread, NULL, show_progress, &watch) == 0;
    struct scrub *scrub = scrub_run(&options, error);
    __atomic_store_n(&watch.is_over, true, __ATOMIC_RELAXED);
    if (is_shown)
        pthread_join(thread, NULL);
    bool has_manifest = scrub && with_manifest && !scrub_damage(scrub);
    char *json = has_manifest ? scrub_manifest_json(scrub, error) : NULL, *name = artifact_manifest_name(state->artifact);
    if (scrub && (json || !has_manifest)) {
        arena_init(&arena, 0);
        verification = client_verification(&arena, codec_verification(scrub, json, name, &arena));
    } else {
        backend_fail(backend, error);
    }
    free(json);
    free(name);
    scrub_destroy(scrub);
    return verification;
}

static int standalone_read_config(struct backend *backend, const char *artifact, char **json, size_t *length,
                                  struct error *error)
{
    struct standalone *state = backend->state;
    if (open_stores(state, error) < 0)
        return -1;
    const struct source_options options = source_options_of(state);
    return sidecar_read_config(artifact, &options, &backend->cancel, json, length, error) < 0 ? backend_fail(backend, error)
                                                                                              : 0;
}

/* --- files --- */

#define READ_BYTES ((uint64_t)8 << 20) /* a look at the clock and the signals between two */

static const char *copy_text(struct arena *arena, const char *text)
{
    return arena_text(arena, text ? text : "", text ? strlen(text) : 0);
}

static void fill_set(const struct artifact *artifact, struct file_set *set)
{
    const struct source *source = artifact->source;
    set->files = arena_array(&set->arena, source->n_files + 1, sizeof *set->files);
    set->n_files = source->n_files;
    set->notes = arena_array(&set->arena, artifact->notes.n + 1, sizeof *set->notes);
    for (size_t i = 0; i < artifact->notes.n; i++)
        set->notes[set->n_notes++] = copy_text(&set->arena, artifact->notes.texts[i]);
    set->identity = copy_text(&set->arena, artifact->identity);
    for (size_t i = 0; i < source->n_files; i++) {
        struct set_file *file = &set->files[i];
        char *identity = arena_alloc(&set->arena, DIGEST_HEX_CHARS + 1);
        artifact_file_identity(artifact, i, identity);
        *file = (struct set_file){.name = copy_text(&set->arena, source->files[i].name),
                                  .identity = identity,
                                  .bytes = source->files[i].size_bytes};
        memcpy(file->sums, source->files[i].checksums, sizeof file->sums);
        set->total_bytes += file->bytes;
    }
}

static int standalone_list_files(struct backend *backend, enum file_set_kind kind, struct file_set *set, struct error *error)
{
    static const enum artifact_file_kind kinds[] = {[FILE_SET_SIDECARS] = ARTIFACT_FILES_SIDECARS,
                                                    [FILE_SET_TENSORS] = ARTIFACT_FILES_TENSORS,
                                                    [FILE_SET_ALL] = ARTIFACT_FILES_ALL};
    struct standalone *state = backend->state;
    unsigned flags = RESOLVE_FRESH | (backend->args->allow_missing_shards ? RESOLVE_ALLOW_MISSING_SHARDS : 0);
    *set = (struct file_set){.artifact = backend->args->artifact};
    arena_init(&set->arena, 0);
    interrupt_defer(NULL);
    if (open_stores(state, error) < 0)
        return backend_fail(backend, error);
    struct source_options options = source_options_of(state);
    options.cancel = &backend->cancel;
    if (artifact_files_list(backend->args->artifact, &options, NULL, flags, kinds[kind], &state->listed, error) < 0)
        return backend_fail(backend, error);
    fill_set(state->listed, set);
    return 0;
}

static int read_bytes(void *data, size_t file, uint64_t offset, void *memory, uint64_t count, struct error *error)
{
    struct backend *backend = data;
    struct source *source = ((struct standalone *)backend->state)->listed->source;
    const struct iovec iov = {memory, count};
    struct block_want want = {
        .source = source,
        .read = {.file = file, .offset = offset, .iov = &iov, .n_iov = 1, .cancel = &backend->cancel, .uid = source->uid}};
    if (count && blocks_get(&want, error) < 0)
        return -1;
    return offset + count == source->files[file].size_bytes ? source_check_unchanged(source, file, error) : 0;
}

static int on_fetched(void *data, const char *stage, uint64_t done_bytes, uint64_t total_bytes)
{
    struct backend *backend = data;
    progress_show(&backend->progress, stage, done_bytes, total_bytes);
    return 0;
}

static int standalone_fetch_files(struct backend *backend, const struct file_set *set, const struct file_sink *sink,
                                  struct error *error)
{
    const struct file_reader reader = {read_bytes, READ_BYTES, backend};
    struct tc_options options = {.progress = on_fetched, .data = backend};
    return file_set_read(set, &reader, sink, &options, error) < 0 ? backend_fail(backend, error) : 0;
}

const struct backend_ops backend_standalone = {
    .name = "standalone",
    .open = standalone_open,
    .resolve = standalone_resolve,
    .load = standalone_load,
    .explain = standalone_explain,
    .fetch_sidecars = standalone_fetch_sidecars,
    .list_files = standalone_list_files,
    .fetch_files = standalone_fetch_files,
    .verify = standalone_verify,
    .read_config = standalone_read_config,
    .blame = standalone_blame,
    .release = standalone_release,
    .close = standalone_close,
};
