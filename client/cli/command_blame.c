/* blame and plot: where the time of loads went that have ended. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "blame_text.h"
#include "client/client.h"
#include "command.h"
#include "fit_text.h"
#include "out_file.h"
#include "trace_svg.h"

int command_blame(struct backend *backend, struct error *error)
{
    const struct args *args = backend->args;
    const Tensorcast__Daemon__V1__BlameResponse *response;
    struct arena arena;
    char *text;
    arena_init(&arena, 0);
    int status = backend_blame(backend, args->artifact ? args->artifact : "", &arena, &response, error);
    if (status == 0) {
        if (args->artifact)
            text = args->json ? blame_load_json(response->loads[0]) : blame_load_text(response->loads[0]);
        else
            text = args->json ? blame_list_json(response) : blame_list_text(response, terminal_columns() > 0);
        printf("%s%s", text, args->json ? "\n" : "");
        free(text);
    }
    arena_fini(&arena);
    return status;
}

int command_plot(struct backend *backend, struct error *error)
{
    const struct args *args = backend->args;
    const Tensorcast__Daemon__V1__BlameResponse *response;
    struct arena arena;
    const char *path = args->output.path ? args->output.path : "-";
    if (out_file_check(path, error) < 0)
        return -1;
    arena_init(&arena, 0);
    int status = backend_blame(backend, args->artifact, &arena, &response, error);
    if (status == 0) {
        char *picture = trace_svg(response);
        status = out_file_put(path, picture, error);
        free(picture);
    }
    arena_fini(&arena);
    return status;
}
