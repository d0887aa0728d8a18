#include <stdio.h>
#include <stdlib.h>

#include "backend.h"
#include "client/client.h"
#include "client/report_json.h"
#include "command.h"
#include "selection_build.h"
#include "served.h"
#include "summary.h"

static int prewarm(const struct args *args, struct backend *backend, struct selection *selection, struct error *error)
{
    struct tc_options options;
    struct arena arena;
    if (selection_build(args, backend, selection, error) < 0 || served_options(backend, &options, error) < 0)
        return -1;
    arena_init(&arena, 0);
    const Tensorcast__Daemon__V1__LoadReport *report =
        client_prewarm(served_client(backend), args->artifact, selection_view(selection), &options, &arena, error);
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

int command_prewarm(const struct args *args, struct error *error)
{
    struct backend backend;
    struct selection selection = {0};
    int status = backend_create(&backend, args, error);
    if (status == 0)
        status = prewarm(args, &backend, &selection, error);
    progress_end(&backend.progress);
    selection_fini(&selection);
    backend_destroy(&backend);
    return status;
}
