#include <inttypes.h>
#include <stdio.h>

#include "base/text.h"
#include "command.h"
#include "served.h"

int command_unpin(struct backend *backend, struct error *error)
{
    const struct args *args = backend->args;
    struct tc_error cause;
    struct tc_unpinned unpinned;
    uint64_t left_ms;
    char size[TEXT_SIZE_CHARS];
    if (backend_time_left(backend, &left_ms, error) < 0)
        return -1;
    if (tc_unpin(served_client(backend), args->artifact, left_ms, &unpinned, &cause) < 0)
        return served_fail(error, &cause);
    if (args->json)
        printf("{\"unpinned_replicas\":%" PRIu64 ",\"unpinned_bytes\":%" PRIu64 "}\n", unpinned.replicas, unpinned.bytes);
    else if (!args->quiet)
        printf("unpinned %" PRIu64 " replica%s, %s\n", unpinned.replicas, unpinned.replicas == 1 ? "" : "s",
               text_people_bytes(unpinned.bytes, size));
    return 0;
}
