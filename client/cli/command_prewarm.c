/* One artifact after the other: what fails is said, the rest is tried all the same, and the first failure is the command's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "base/text.h"
#include "client/client.h"
#include "client/report_json.h"
#include "command.h"
#include "failure.h"
#include "interrupt.h"
#include "selection.h"
#include "served.h"
#include "summary.h"

/* What was done, as one object: for the end, since nothing is printed where something failed. */
static char *result_json(const struct args *args, const Tensorcast__Daemon__V1__PrewarmResponse *response)
{
    struct json_writer json = {0};
    if (response->report)
        return report_json(response->report, NULL, 0, false);
    json_write_open(&json, '{');
    json_put_text(&json, "artifact", args->artifact);
    json_put_bool(&json, "detached", true);
    json_put_bool(&json, "pin", args->serve.pin);
    json_write_close(&json, '}');
    return json.text;
}

static void print_result(const struct args *args, const Tensorcast__Daemon__V1__PrewarmResponse *response)
{
    if (response->report)
        summary_print(response->report, 0, stdout);
    else
        printf("%s: begun; 'tensorcast status' tells what becomes of it\n", text_show(args->artifact));
    if (response->report && args->serve.pin)
        printf("  pinned    until 'tensorcast unpin %s'\n", text_show(args->artifact));
}

/* With --json, *json is the result; the caller frees. */
static int prewarm_one(struct backend *backend, char **json, struct error *error)
{
    const struct args *args = backend->args;
    int flags = (args->serve.pin ? TC_PREWARM_PIN : 0) | (args->serve.detach ? TC_PREWARM_DETACH : 0);
    struct tc_options options;
    struct arena arena;
    if (backend_read_variant(backend, error) < 0 || selection_build(backend, error) < 0 ||
        served_options(backend, &options, error) < 0)
        return -1;
    arena_init(&arena, 0);
    const Tensorcast__Daemon__V1__PrewarmResponse *response = client_prewarm(
        served_client(backend), args->artifact, selection_view(&backend->selection), &options, flags, &arena, error);
    if (response && response->report)
        progress_finish(&backend->progress, response->report->view_bytes);
    progress_end(&backend->progress);
    if (response && args->json)
        *json = result_json(args, response);
    else if (response && !args->quiet)
        print_result(args, response);
    arena_fini(&arena);
    return response ? 0 : -1;
}

static void print_json(char *const *results, size_t n, bool has_failed)
{
    if (n > 1 && !has_failed)
        fputs("{\"prewarmed\":[", stdout);
    for (size_t i = 0; i < n && !has_failed; i++)
        printf("%s%s", i ? "," : "", results[i]);
    if (!has_failed)
        puts(n > 1 ? "]}" : "");
}

int command_prewarm(struct backend *backend, struct error *error)
{
    const struct args *all = backend->args;
    struct args one = *all;
    arena_init(&one.arena, 0);
    size_t n = 1 + all->n_more_artifacts, n_failed = 0;
    char **results = memory_alloc_array(n, sizeof *results);
    backend->args = &one;
    for (size_t i = 0; i < n && !interrupt_seen(); i++) {
        struct error problem;
        one.artifact = client_reference(i ? all->more_artifacts[i - 1] : all->artifact, &one.arena, &problem);
        bool has_failed = !one.artifact || prewarm_one(backend, &results[i], &problem) < 0;
        if (has_failed && n_failed++ == 0)
            *error = problem; /* its line is the command's */
        else if (has_failed)
            failure_print(&problem);
        selection_fini(&backend->selection);
        backend->selection = (struct selection){0};
        tc_variant_release(backend->variant);
        backend->variant = NULL;
    }
    backend->args = all;
    arena_fini(&one.arena);
    if (all->json)
        print_json(results, n, n_failed > 0 || interrupt_seen());
    for (size_t i = 0; i < n; i++)
        free(results[i]);
    free(results);
    return n_failed ? -1 : 0;
}
