#include <stdio.h>
#include <stdlib.h>

#include "backend.h"
#include "command.h"
#include "selection_build.h"
#include "served.h"
#include "summary.h"

static int prewarm(const struct args *args, struct backend *backend, struct selection *selection, struct error *error)
{
    struct tc_options options;
    struct tc_error cause;
    char *json;
    if (selection_build(args, backend, selection, error) < 0 || served_options(backend, &options, error) < 0)
        return -1;
    if (tc_prewarm(served_client(backend), args->artifact, selection_view(selection), &options, &json, &cause) < 0)
        return served_fail(error, &cause);
    int status = 0;
    if (args->json)
        puts(json);
    else if (!args->quiet)
        status = summary_print(json, stdout, error);
    free(json);
    return status;
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
