/* How much memory a host needs for models: from their headers alone, in this process. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/operand.h"
#include "base/text.h"
#include "client/client.h"
#include "command.h"
#include "config/memory_budgets.h"
#include "host_size.h"
#include "selection.h"

struct model {
    const char *reference;
    uint64_t n_views, bytes; /* of all views */
};

static bool is_split(const struct tc_view *view)
{
    for (size_t i = 0; view && i < view->n_items; i++)
        if (view->items[i].n_slices)
            return true;
    return false;
}

/* Ranks that want the same share it. */
static int measure_views(struct backend *backend, struct args *args, struct model *model, struct error *error)
{
    int64_t n_ranks = args->view.tp.size;
    struct catalog *catalog = backend_resolve(backend, 0, error);
    int failed = catalog ? 0 : -1;
    for (int64_t rank = 0; !failed && rank < n_ranks; rank++) {
        args->view.tp.rank = rank;
        failed = selection_build(backend, error);
        const struct tc_view *view = failed ? NULL : selection_view(&backend->selection);
        bool is_for_all = !is_split(view);
        if (!failed) {
            model->n_views++;
            model->bytes += host_size_view(catalog, view);
        }
        selection_fini(&backend->selection);
        backend->selection = (struct selection){0};
        if (is_for_all)
            break;
    }
    catalog_destroy(catalog);
    return failed;
}

/* In a backend of its own, since one knows one artifact. */
static int measure_model(const struct args *all, const char *word, struct model *model, struct error *error)
{
    struct args args = *all;
    struct backend backend;
    arena_init(&args.arena, 0);
    args.artifact = client_reference(word, &args.arena, error);
    bool is_file = args.artifact && strncmp(args.artifact, "disk:", strlen("disk:")) == 0;
    int failed = !args.artifact ? -1 : is_file ? operand_check(args.artifact + strlen("disk:"), error) : 0;
    if (!failed) {
        failed = backend_create(&backend, &args, error) < 0 || measure_views(&backend, &args, model, error) < 0 ? -1 : 0;
        backend_destroy(&backend);
    }
    model->reference = word;
    arena_fini(&args.arena);
    return failed;
}

static void print_json(const struct host_size *size, uint64_t clients_bytes, const struct model *models, size_t n)
{
    struct json_writer json = {0};
    json_write_open(&json, '{');
    json_put_open(&json, "models", '[');
    for (size_t i = 0; i < n; i++) {
        json_write_open(&json, '{');
        json_put_text(&json, "artifact", models[i].reference);
        json_put_u64(&json, "views", models[i].n_views);
        json_put_u64(&json, "bytes", models[i].bytes);
        json_write_close(&json, '}');
    }
    json_write_close(&json, ']');
    json_put_u64(&json, "views_bytes", size->views_bytes);
    json_put_u64(&json, "host_budget_bytes", size->host_budget_bytes);
    json_put_u64(&json, "metadata_bytes", size->metadata_bytes);
    json_put_u64(&json, "staging_bytes", size->staging_bytes);
    json_put_u64(&json, "extent_cache_bytes", size->extent_cache_bytes);
    json_put_u64(&json, "container_limit_bytes", size->container_limit_bytes);
    json_put_u64(&json, "clients_bytes", clients_bytes);
    json_write_close(&json, '}');
    printf("%s\n", json.text);
    free(json.text);
}

static void print_row(const char *name, uint64_t bytes, const char *words)
{
    printf("%-16s %10s  %s\n", name, text_show_amount(bytes), words);
}

static void print_text(const struct args *args, const struct host_size *size, uint64_t clients_bytes,
                       const struct model *models, size_t n)
{
    char words[TEXT_NAME_CHARS];
    for (size_t i = 0; i < n; i++) {
        snprintf(words, sizeof words, "%" PRIu64 " view%s of %s", models[i].n_views, text_plural(models[i].n_views),
                 text_show(models[i].reference));
        print_row("", models[i].bytes, words);
    }
    print_row("views", size->views_bytes, "in memory at once; engines that want the same view share it");
    print_row("host_budget", size->host_budget_bytes, "views / 0.9, since one user leaves a tenth to others");
    print_row("metadata_budget", size->metadata_bytes, "a quarter of that, from 256 MiB to 1 GiB");
    print_row("staging_budget", size->staging_bytes, "reads on their way");
    print_row("extent_cache", size->extent_cache_bytes, "an eighth of host_budget, up to 1 GiB; disks use none of it");
    print_row("the daemon", MEMORY_OF_ITS_OWN, "its code, threads and libraries");
    print_row("container", size->container_limit_bytes, "host_budget to the daemon: MemoryHigh=, or limits.memory of a pod");
    snprintf(words, sizeof words, "beside it, copies of %" PRId64 " engine%s, as on GPUs; none without a copy",
             args->serve.engines, text_plural((uint64_t)args->serve.engines));
    print_row("clients", clients_bytes, words);
    printf("\nmemory.host_budget: %" PRIu64 "MiB\n", size->host_budget_bytes >> 20);
}

int command_size(struct backend *backend, struct error *error)
{
    const struct args *args = backend->args;
    size_t n = 1 + args->n_more_artifacts;
    struct model *models = memory_alloc_array(n, sizeof *models);
    uint64_t views_bytes = 0, clients_bytes = 0;
    int failed = 0;
    for (size_t i = 0; i < n && !failed; i++) {
        failed = measure_model(args, i ? args->more_artifacts[i - 1] : args->artifact, &models[i], error);
        if (!failed && (models[i].bytes > HOST_SIZE_MAX_BYTES || !checked_add(views_bytes, models[i].bytes, &views_bytes) ||
                        views_bytes > HOST_SIZE_MAX_BYTES))
            failed = fail(error, ERROR_INVALID_ARGUMENT, "VIEW_TOO_LARGE", "the models are larger than any memory");
    }
    if (!failed && !checked_mul(views_bytes, (uint64_t)args->serve.engines, &clients_bytes))
        failed = fail(error, ERROR_INVALID_ARGUMENT, "VIEW_TOO_LARGE", "so many engines are larger than any memory");
    if (!failed) {
        const struct host_size size = host_size_of(views_bytes);
        if (args->json)
            print_json(&size, clients_bytes, models, n);
        else
            print_text(args, &size, clients_bytes, models, n);
    }
    free(models);
    return failed;
}
