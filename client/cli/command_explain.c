#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "selection_build.h"

int command_explain(struct backend *backend, struct error *error)
{
    char *json = NULL, *text = NULL;
    if (selection_build(backend, error) < 0 ||
        backend_explain(backend, selection_view(&backend->selection), &json, &text, error) < 0)
        return -1;
    const char *result = backend->args->json ? json : text;
    size_t length = strlen(result);
    printf("%s%s", result, length && result[length - 1] == '\n' ? "" : "\n");
    free(json);
    free(text);
    return 0;
}
