#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "served.h"

int command_status(struct backend *backend, struct error *error)
{
    const struct args *args = backend->args;
    struct tc_error cause;
    uint64_t left_ms;
    char *result;
    if (backend_time_left(backend, &left_ms, error) < 0)
        return -1;
    if (tc_status(served_client(backend), left_ms, args->json ? &result : NULL, args->json ? NULL : &result, &cause) < 0)
        return served_fail(error, &cause);
    size_t length = strlen(result);
    printf("%s%s", result, length && result[length - 1] == '\n' ? "" : "\n");
    free(result);
    return 0;
}
