#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "command.h"
#include "selection_build.h"

static int explain(const struct args *args, struct backend *backend, struct selection *selection, struct error *error)
{
    char *json = NULL, *text = NULL;
    if (selection_build(args, backend, selection, error) < 0 ||
        backend_explain(backend, selection_view(selection), &json, &text, error) < 0)
        return -1;
    const char *result = args->json ? json : text;
    size_t length = strlen(result);
    printf("%s%s", result, length && result[length - 1] == '\n' ? "" : "\n");
    free(json);
    free(text);
    return 0;
}

int command_explain(const struct args *args, struct error *error)
{
    struct backend backend;
    struct selection selection = {0};
    int status = backend_create(&backend, args, error);
    if (status == 0)
        status = explain(args, &backend, &selection, error);
    selection_fini(&selection);
    backend_destroy(&backend);
    return status;
}
