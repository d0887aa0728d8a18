/* What both backends have in common: the choice, the deadline, and that an interrupted load is CANCELLED. */
#include "backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "client/wait.h"
#include "client/variant.h"
#include "interrupt.h"
#include "out_file.h"

bool backend_is_unwanted(const struct backend *backend)
{
    return interrupt_seen() || (backend->gives_stdout && cancel_reader_left(STDOUT_FILENO));
}

static bool should_stop(void *data)
{
    struct error late;
    uint64_t left_ms;
    return backend_is_unwanted(data) || backend_time_left(data, &left_ms, &late) < 0;
}

int backend_create(struct backend *backend, const struct args *args, struct error *error)
{
    *backend = (struct backend){.ops = args->standalone ? &backend_standalone : &backend_served,
                                .args = args,
                                .deadline_ns = UINT64_MAX,
                                .cancel = {should_stop, backend}};
    if (args->timeout_ms)
        backend->deadline_ns = clock_now_ns() + args->timeout_ms * NS_PER_MS;
    backend->gives_stdout = args->output.path && out_file_is_stdout(args->output.path);
    /* a report on standard error stays by itself */
    bool is_plain_report = args->json && backend->gives_stdout && args->progress == PROGRESS_AUTO;
    progress_init(&backend->progress, is_plain_report ? PROGRESS_NONE : (enum progress_kind)args->progress, args->quiet);
    if (args->load.group)
        progress_set_rank(&backend->progress, (uint64_t)args->load.rank, (uint64_t)args->load.world_size);
    else if (args->view.has_tp)
        progress_set_rank(&backend->progress, (uint64_t)args->view.tp.rank, (uint64_t)args->view.tp.size);
    return backend->ops->open(backend, error);
}

void backend_destroy(struct backend *backend)
{
    selection_fini(&backend->selection);
    tc_variant_release(backend->variant);
    input_fini(&backend->standard_input);
    backend->ops->close(backend);
}

/* What the command line says, else the view's file, else the order that was asked for; everything, also split for a rank, has none
 * but the files'. The same for all commands, so that they share replicas, and without an order the same as the libraries. */
static enum tc_placement choose_placement(const struct backend *backend)
{
    const struct args *args = backend->args;
    if (args->load.placement != PLACEMENT_UNSET)
        return (enum tc_placement)args->load.placement;
    if (backend->selection.has_placement)
        return backend->selection.placement;
    bool has_order = !backend->selection.whole && (args->view.file || args->view.n_selectors);
    return has_order ? TC_PLACEMENT_PACKED : TC_PLACEMENT_SOURCE;
}

struct tc_options backend_options(const struct backend *backend)
{
    const struct args *args = backend->args;
    return (struct tc_options){
        .executor = (enum tc_executor)args->load.executor,
        .collective = (enum tc_collective)args->load.collective,
        .source_locality = (enum tc_locality)args->load.source_locality,
        .source_sharing_domain = args->load.source_sharing_domain,
        .device = args->load.device,
        .memory = (enum tc_memory)args->load.memory,
        .allow_missing_shards = args->allow_missing_shards,
        .variant = backend->variant,
        .placement = choose_placement(backend),
        .group_id = args->load.group,
        .rank = args->load.group ? args->load.rank : 0,
        .world_size = args->load.group ? args->load.world_size : 0,
    };
}

int backend_time_left(const struct backend *backend, uint64_t *left_ms, struct error *error)
{
    *left_ms = 0;
    if (backend->deadline_ns == UINT64_MAX)
        return 0;
    uint64_t now_ns = clock_now_ns();
    if (now_ns >= backend->deadline_ns) {
        char limit[TEXT_SIZE_CHARS];
        return fail(error, ERROR_DEADLINE_EXCEEDED, REASON(DEADLINE_EXCEEDED), "not done within --timeout %s",
                    text_format_duration_ms(backend->args->timeout_ms, limit));
    }
    *left_ms = (backend->deadline_ns - now_ns + NS_PER_MS - 1) / NS_PER_MS;
    return 0;
}

int backend_fail(const struct backend *backend, struct error *error)
{
    uint64_t left_ms;
    if (error->code != ERROR_CANCELLED || interrupt_seen())
        return -1;
    if (backend_is_unwanted(backend))
        return fail(error, ERROR_CANCELLED, "READER_LEFT", "the reader of standard output has left");
    backend_time_left(backend, &left_ms, error);
    return -1;
}

void backend_warn(const char *note)
{
    fprintf(stderr, "tensorcast: warning: %s\n", note);
}

int backend_read_config(struct backend *backend, const char *artifact, char **json, size_t *length, struct error *error)
{
    *json = NULL;
    *length = 0;
    return backend->ops->read_config(backend, artifact, json, length, error);
}

static int read_config(void *data, char **json, size_t *length, struct error *error)
{
    struct backend *backend = data;
    return backend_read_config(backend, backend->args->artifact, json, length, error);
}

static int read_recipe(struct backend *backend, struct error *error)
{
    const struct variant_args *args = &backend->args->variant;
    struct variant_input input = {.recipe = args->recipe,
                                  .settings = args->settings,
                                  .n_settings = args->n_settings,
                                  .config = read_config,
                                  .data = backend};
    char *text = NULL;
    if (input_is_standard(args->recipe)) {
        if (input_read(&backend->standard_input, args->recipe, VARIANT_MAX_FILE_BYTES, &text, &input.length, error) < 0)
            return -1;
        input.recipe = "standard input";
        input.text = text;
    }
    backend->variant = variant_read(&input, error);
    free(text);
    return backend->variant ? 0 : -1;
}

int backend_read_variant(struct backend *backend, struct error *error)
{
    const struct variant_args *args = &backend->args->variant;
    char step[128];
    if (args->recipe && read_recipe(backend, error) < 0)
        return -1;
    if (args->dtype) { /* what it is refused for is said when it is applied */
        snprintf(step, sizeof step, "{\"cast\":{\"tensors\":[\"*\"],\"dtype\":\"%s\"},\"optional\":true}", args->dtype);
        variant_append(&backend->variant, step);
    }
    return 0;
}

struct catalog *backend_resolve(struct backend *backend, int flags, struct error *error)
{
    return backend->ops->resolve(backend, flags, error);
}

int backend_load(struct backend *backend, const struct tc_view *view, struct loaded *loaded, struct error *error)
{
    *loaded = (struct loaded){0};
    int status = backend->ops->load(backend, view, loaded, error);
    if (status == 0)
        progress_finish(&backend->progress, loaded->report->view_bytes);
    progress_end(&backend->progress);
    return status;
}

void backend_release(struct backend *backend, struct loaded *loaded)
{
    if (loaded->owner)
        backend->ops->release(backend, loaded);
    *loaded = (struct loaded){0};
}

int backend_explain(struct backend *backend, const struct tc_view *view, char **json, char **text, struct error *error)
{
    return backend->ops->explain(backend, view, json, text, error);
}

int backend_fetch_sidecars(struct backend *backend, const char *folder, const struct sidecar_taker *taker,
                           struct error *error)
{
    return backend->ops->fetch_sidecars(backend, folder, taker, error);
}

int backend_list_files(struct backend *backend, enum file_set_kind kind, struct file_set *set, struct error *error)
{
    int failed = backend->ops->list_files(backend, kind, set, error);
    for (size_t i = 0; !failed && i < set->n_notes; i++)
        backend_warn(set->notes[i]);
    return failed;
}

int backend_fetch_files(struct backend *backend, const struct file_set *set, const struct file_sink *sink,
                        struct error *error)
{
    return backend->ops->fetch_files(backend, set, sink, error);
}

struct tc_verification *backend_verify(struct backend *backend, bool with_manifest, struct error *error)
{
    struct tc_verification *verification = backend->ops->verify(backend, with_manifest, error);
    if (verification && backend->progress.total_bytes) /* there was something to compare with */
        progress_finish(&backend->progress, backend->progress.total_bytes);
    progress_end(&backend->progress);
    return verification;
}

int backend_fail_damage(const struct tc_verification *verification, struct error *error)
{
    for (size_t i = 0; i < tc_verification_n_files(verification); i++) {
        struct tc_verified_file file;
        tc_verification_file(verification, i, &file);
        if (file.damage[0])
            return fail(error, ERROR_DATA_LOSS, "CHECKSUM_MISMATCH", "%s", file.damage);
    }
    return 0;
}

int backend_blame(struct backend *backend, const char *load_id, struct arena *arena,
                  const Tensorcast__Daemon__V1__BlameResponse **response, struct error *error)
{
    return backend->ops->blame(backend, load_id, arena, response, error);
}
