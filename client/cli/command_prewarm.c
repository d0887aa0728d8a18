#include <stdio.h>
#include <stdlib.h>

#include "client/client.h"
#include "client/report_json.h"
#include "command.h"
#include "selection_build.h"
#include "served.h"
#include "summary.h"

int command_prewarm(struct backend *backend, struct error *error)
{
    const struct args *args = backend->args;
    struct tc_options options;
    struct arena arena;
    if (selection_build(backend, error) < 0 || served_options(backend, &options, error) < 0)
        return -1;
    arena_init(&arena, 0);
    const Tensorcast__Daemon__V1__LoadReport *report =
        client_prewarm(served_client(backend), args->artifact, selection_view(&backend->selection), &options, &arena, error);
    progress_end(&backend->progress);
    if (report && args->json) {
        char *json = report_json(report, NULL, 0, false);
        puts(json);
        free(json);
    } else if (report && !args->quiet) {
        summary_print(report, 0, stdout);
    }
    arena_fini(&arena);
    return report ? 0 : -1;
}
