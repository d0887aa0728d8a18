#include <inttypes.h>
#include <stdio.h>

#include "backend.h"
#include "base/text.h"
#include "command.h"
#include "served.h"

static int release(const struct args *args, struct backend *backend, struct error *error)
{
    struct tc_error cause;
    uint64_t left_ms, replicas, bytes;
    char size[TEXT_SIZE_CHARS];
    if (backend_time_left(backend, &left_ms, error) < 0)
        return -1;
    if (tc_release(served_client(backend), args->artifact, left_ms, &replicas, &bytes, &cause) < 0)
        return served_fail(error, &cause);
    if (args->json)
        printf("{\"released_replicas\":%" PRIu64 ",\"released_bytes\":%" PRIu64 "}\n", replicas, bytes);
    else if (!args->quiet)
        printf("released %" PRIu64 " replica%s, %s\n", replicas, replicas == 1 ? "" : "s", text_people_bytes(bytes, size));
    return 0;
}

int command_release(const struct args *args, struct error *error)
{
    struct backend backend;
    int status = backend_create(&backend, args, error);
    if (status == 0)
        status = release(args, &backend, error);
    backend_destroy(&backend);
    return status;
}
