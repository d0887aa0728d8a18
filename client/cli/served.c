#include "served.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "client/wait.h"
#include "client/client.h"
#include "client/sidecars.h"
#include "interrupt.h"

struct served {
    struct tc_client *client;
    struct tc_cancel *cancel;
};

int served_fail(struct error *error, const struct tc_error *cause)
{
    const char *value;
    fail(error, (enum error_code)cause->code, cause->reason, "%s", cause->message);
    for (const char *key = NULL; (key = tc_error_note(cause, key, &value)) != NULL;)
        error_note(error, key, "%s", value);
    return -1;
}

struct tc_client *served_client(const struct backend *backend)
{
    return ((struct served *)backend->state)->client;
}

static int served_open(struct backend *backend, struct error *error)
{
    struct tc_error cause;
    struct served *served = memory_alloc(sizeof *served);
    backend->state = served;
    served->cancel = tc_cancel_create();
    if (backend->gives_stdout)
        cancel_watch_reader(served->cancel, STDOUT_FILENO);
    served->client = tc_connect(backend->args->socket, &cause);
    if (!served->client)
        return served_fail(error, &cause);
    rpc_client_set_traceparent(served->client->rpc, getenv("TRACEPARENT")); /* as commands get it by custom */
    return 0;
}

static void served_close(struct backend *backend)
{
    struct served *served = backend->state;
    tc_disconnect(served->client);
    tc_cancel_destroy(served->cancel);
    free(served);
}

static int on_progress(void *data, const char *stage, uint64_t done_bytes, uint64_t total_bytes)
{
    struct backend *backend = data;
    progress_show(&backend->progress, stage, done_bytes, total_bytes);
    return backend_is_unwanted(backend);
}

static struct catalog *served_resolve(struct backend *backend, int flags, struct error *error)
{
    struct tc_error cause;
    struct tc_options options = {.variant = backend->variant,
                                 .progress = on_progress,
                                 .data = backend,
                                 .cancel = ((struct served *)backend->state)->cancel};
    if (backend_time_left(backend, &options.timeout_ms, error) < 0)
        return NULL;
    flags |= backend->args->allow_missing_shards ? TC_RESOLVE_ALLOW_MISSING_SHARDS : 0;
    struct tc_artifact *artifact = tc_resolve_with(served_client(backend), backend->args->artifact, flags, &options, &cause);
    progress_end(&backend->progress);
    if (artifact)
        return catalog_create(artifact, NULL);
    served_fail(error, &cause);
    backend_fail(backend, error);
    return NULL;
}

int served_options(struct backend *backend, struct tc_options *options, struct error *error)
{
    *options = backend_options(backend);
    options->progress = on_progress;
    options->data = backend;
    options->cancel = ((struct served *)backend->state)->cancel;
    return backend_time_left(backend, &options->timeout_ms, error);
}

/* GPU memory is copied when the bytes are to be seen. */
static int copy_memory(const struct args *args, const struct tc_load *load, struct loaded *loaded, struct error *error)
{
    struct tc_error cause;
    uint64_t bytes;
    tc_load_memory(load, &bytes);
    if (!*tc_load_device(load) || (!args->output.digest && !args->output.path))
        return 0;
    loaded->copy = malloc(bytes);
    if (!loaded->copy)
        return fail(error, ERROR_RESOURCE_EXHAUSTED, "OUT_OF_MEMORY", "no host memory for a copy of %llu bytes",
                    (unsigned long long)bytes);
    return tc_load_read(load, 0, bytes, loaded->copy, &cause) ? served_fail(error, &cause) : 0;
}

static int served_load(struct backend *backend, const struct tc_view *view, struct loaded *loaded, struct error *error)
{
    struct tc_error cause;
    struct tc_options options;
    uint64_t bytes;
    if (served_options(backend, &options, error) < 0)
        return -1;
    interrupt_defer(options.cancel);
    struct tc_load *load = tc_load_view(served_client(backend), backend->args->artifact, view, &options, &cause);
    interrupt_defer(NULL);
    if (!load) {
        served_fail(error, &cause);
        return backend_fail(backend, error);
    }
    loaded->owner = load;
    if (copy_memory(backend->args, load, loaded, error) < 0)
        return -1;
    loaded->n_tensors = tc_load_n_tensors(load);
    loaded->tensors = client_load_tensors(load, loaded->copy ? loaded->copy : tc_load_memory(load, &bytes));
    loaded->report = client_load_report(load);
    return 0;
}

static void served_release(struct backend *backend, struct loaded *loaded)
{
    (void)backend;
    tc_load_release(loaded->owner);
    free(loaded->tensors);
    free(loaded->copy);
}

static int served_explain(struct backend *backend, const struct tc_view *view, char **json, char **text, struct error *error)
{
    struct tc_error cause;
    struct tc_options options;
    if (served_options(backend, &options, error) < 0)
        return -1;
    if (tc_explain(served_client(backend), backend->args->artifact, view, &options, json, text, &cause) < 0)
        return served_fail(error, &cause);
    return 0;
}

static int served_blame(struct backend *backend, const char *load_id, struct arena *arena,
                        const Tensorcast__Daemon__V1__BlameResponse **response, struct error *error)
{
    uint64_t left_ms;
    if (backend_time_left(backend, &left_ms, error) < 0)
        return -1;
    *response = client_blame(served_client(backend), load_id, left_ms, arena, error);
    return *response ? 0 : -1;
}

static int served_fetch_sidecars(struct backend *backend, const char *folder, const struct sidecar_taker *taker,
                                 struct error *error)
{
    struct tc_error cause;
    struct tc_options options;
    if (served_options(backend, &options, error) < 0)
        return -1;
    interrupt_defer(options.cancel);
    struct tc_sidecars *sidecars =
        tc_sidecars_fetch(served_client(backend), backend->args->artifact, folder, &options, &cause);
    interrupt_defer(NULL);
    if (!sidecars)
        return served_fail(error, &cause);
    for (size_t i = 0; i < tc_sidecars_n_files(sidecars); i++) {
        uint64_t bytes;
        const char *name = tc_sidecars_file(sidecars, i, &bytes);
        taker->take(taker->data, name, bytes);
    }
    for (size_t i = 0; tc_sidecars_note(sidecars, i); i++)
        backend_warn(tc_sidecars_note(sidecars, i));
    tc_sidecars_release(sidecars);
    return 0;
}

static int served_list_files(struct backend *backend, enum file_set_kind kind, struct file_set *set, struct error *error)
{
    struct tc_options options;
    if (served_options(backend, &options, error) < 0)
        return -1;
    options.allow_missing_shards = backend->args->allow_missing_shards;
    interrupt_defer(options.cancel);
    int failed = file_set_list(served_client(backend), backend->args->artifact, kind, &options, set, error);
    interrupt_defer(NULL);
    return failed;
}

static int served_fetch_files(struct backend *backend, const struct file_set *set, const struct file_sink *sink,
                              struct error *error)
{
    struct tc_options options;
    if (served_options(backend, &options, error) < 0)
        return -1;
    interrupt_defer(options.cancel);
    int failed = file_set_fetch(served_client(backend), set, sink, &options, error);
    interrupt_defer(NULL);
    return failed;
}

static struct tc_verification *served_verify(struct backend *backend, bool with_manifest, struct error *error)
{
    struct tc_error cause;
    struct tc_options options;
    if (served_options(backend, &options, error) < 0)
        return NULL;
    interrupt_defer(options.cancel);
    struct tc_verification *verification =
        tc_verify(served_client(backend), backend->args->artifact, with_manifest, &options, &cause);
    interrupt_defer(NULL);
    if (!verification)
        served_fail(error, &cause);
    return verification;
}

static int served_read_config(struct backend *backend, const char *artifact, char **json, size_t *length,
                              struct error *error)
{
    struct tc_options options;
    if (served_options(backend, &options, error) < 0)
        return -1;
    return sidecars_stored_config(served_client(backend), artifact, &options, json, length, error);
}

const struct backend_ops backend_served = {
    .name = "served",
    .open = served_open,
    .resolve = served_resolve,
    .load = served_load,
    .explain = served_explain,
    .fetch_sidecars = served_fetch_sidecars,
    .list_files = served_list_files,
    .fetch_files = served_fetch_files,
    .verify = served_verify,
    .read_config = served_read_config,
    .blame = served_blame,
    .release = served_release,
    .close = served_close,
};
