#include <inttypes.h>
#include <stdio.h>

#include "base/text.h"
#include "command.h"
#include "served.h"

int command_release(struct backend *backend, struct error *error)
{
    const struct args *args = backend->args;
    struct tc_error cause;
    struct tc_released released;
    uint64_t left_ms;
    char size[TEXT_SIZE_CHARS], in_use[TEXT_SIZE_CHARS];
    if (backend_time_left(backend, &left_ms, error) < 0)
        return -1;
    if (tc_release_counted(served_client(backend), args->artifact, left_ms, &released, &cause) < 0)
        return served_fail(error, &cause);
    if (args->json) {
        printf("{\"released_replicas\":%" PRIu64 ",\"released_bytes\":%" PRIu64 ",\"leased_replicas\":%" PRIu64
               ",\"leased_bytes\":%" PRIu64 ",\"replicas_of_others\":%" PRIu64 ",\"pinned_replicas\":%" PRIu64
               ",\"pinned_bytes\":%" PRIu64 "}\n",
               released.replicas, released.bytes, released.leased_replicas, released.leased_bytes,
               released.replicas_of_others, released.pinned_replicas, released.pinned_bytes);
    } else if (!args->quiet) {
        printf("released %" PRIu64 " replica%s, %s", released.replicas, released.replicas == 1 ? "" : "s",
               text_people_bytes(released.bytes, size));
        if (released.leased_replicas)
            printf("; %" PRIu64 " %s in use (%s), 'tensorcast status' lists by whom", released.leased_replicas,
                   released.leased_replicas == 1 ? "is" : "are", text_people_bytes(released.leased_bytes, in_use));
        if (released.pinned_replicas)
            printf("; %" PRIu64 " %s pinned (%s), 'tensorcast unpin' lets go", released.pinned_replicas,
                   released.pinned_replicas == 1 ? "is" : "are", text_people_bytes(released.pinned_bytes, in_use));
        if (released.replicas_of_others)
            printf("; %" PRIu64 " of other users %s left", released.replicas_of_others,
                   released.replicas_of_others == 1 ? "is" : "are");
        putchar('\n');
    }
    return 0;
}
