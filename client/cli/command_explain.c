#include <stdio.h>
#include <stdlib.h>

#include "command.h"
#include "fit_text.h"
#include "selection_build.h"

int command_explain(struct backend *backend, struct error *error)
{
    char *json = NULL, *text = NULL;
    if (selection_build(backend, error) < 0 ||
        backend_explain(backend, selection_view(&backend->selection), &json, &text, error) < 0)
        return -1;
    if (backend->args->json)
        puts(json);
    else
        fit_text(text, terminal_columns(), stdout);
    free(json);
    free(text);
    return 0;
}
