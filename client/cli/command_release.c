#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "client/client.h"
#include "command.h"
#include "interrupt.h"
#include "served.h"
#include "tmpfs_folder.h"

static const Tensorcast__Daemon__V1__ReleaseResponse *ask_folder(struct backend *backend, const char *path, bool is_gone,
                                                                 struct arena *arena, struct error *error)
{
    Tensorcast__Daemon__V1__ReleaseRequest request = TENSORCAST__DAEMON__V1__RELEASE_REQUEST__INIT;
    struct tc_options options = {0};
    if (backend_time_left(backend, &options.timeout_ms, error) < 0)
        return NULL;
    const struct wait wait = client_wait(&options);
    request.folder = path;
    request.folder_is_gone = is_gone;
    return rpc_client_get(served_client(backend)->rpc, "Release", &request.base,
                          &tensorcast__daemon__v1__release_response__descriptor, &wait, arena, error);
}

/* 1 = it was one and is gone, 0 = the daemon knows no folder of that path. */
static int release_folder(struct backend *backend, const char *path, struct error *error)
{
    struct arena arena;
    struct tmpfs_folder folder;
    struct error none;
    int status = 0;
    if (tmpfs_folder_open(&folder, path, &none) < 0) /* no place for one: it may be an artifact */
        return 0;
    arena_init(&arena, 0);
    const Tensorcast__Daemon__V1__ReleaseResponse *found = ask_folder(backend, folder.path, false, &arena, error);
    if (!found) {
        status = -1;
    } else if (found->folder) {
        interrupt_defer(NULL);
        bool is_done = tmpfs_folder_remove(&folder, found->folder->stamp_ns, error) == 0 &&
                       ask_folder(backend, folder.path, true, &arena, error) != NULL;
        status = is_done ? 1 : -1;
    }
    if (status == 1 && backend->args->json)
        printf("{\"released_folders\":1,\"released_bytes\":%" PRIu64 "}\n", found->folder->bytes);
    else if (status == 1 && !backend->args->quiet)
        printf("released %s, %s\n", text_show(folder.path), text_show_amount(found->folder->bytes));
    tmpfs_folder_close(&folder);
    arena_fini(&arena);
    return status;
}

int command_release(struct backend *backend, struct error *error)
{
    const struct args *args = backend->args;
    struct tc_error cause;
    struct tc_released released;
    uint64_t left_ms;
    const char *path = args->fetch.folder; /* NULL = it is no path */
    int is_folder = path ? release_folder(backend, path, error) : 0;
    if (is_folder)
        return is_folder < 0 ? -1 : 0;
    if (backend_time_left(backend, &left_ms, error) < 0)
        return -1;
    if (tc_release_counted(served_client(backend), args->artifact, left_ms, &released, &cause) < 0)
        return served_fail(error, &cause);
    if (path && released.replicas + released.leased_replicas + released.replicas_of_others + released.pinned_replicas == 0)
        return fail(error, ERROR_NOT_FOUND, "NOTHING_TO_RELEASE",
                    "the daemon has made no folder %s, and holds no replica of it", text_show(path));
    if (args->json) {
        printf("{\"released_replicas\":%" PRIu64 ",\"released_bytes\":%" PRIu64 ",\"leased_replicas\":%" PRIu64
               ",\"leased_bytes\":%" PRIu64 ",\"replicas_of_others\":%" PRIu64 ",\"pinned_replicas\":%" PRIu64
               ",\"pinned_bytes\":%" PRIu64 "}\n",
               released.replicas, released.bytes, released.leased_replicas, released.leased_bytes,
               released.replicas_of_others, released.pinned_replicas, released.pinned_bytes);
    } else if (!args->quiet) {
        printf("released %" PRIu64 " replica%s, %s", released.replicas, text_plural(released.replicas),
               text_show_amount(released.bytes));
        if (released.leased_replicas)
            printf("; %" PRIu64 " %s in use (%s), 'tensorcast status' lists by whom", released.leased_replicas,
                   released.leased_replicas == 1 ? "is" : "are", text_show_amount(released.leased_bytes));
        if (released.pinned_replicas)
            printf("; %" PRIu64 " %s pinned (%s), 'tensorcast unpin' lets go", released.pinned_replicas,
                   released.pinned_replicas == 1 ? "is" : "are", text_show_amount(released.pinned_bytes));
        if (released.replicas_of_others)
            printf("; %" PRIu64 " of other users %s left", released.replicas_of_others,
                   released.replicas_of_others == 1 ? "is" : "are");
        putchar('\n');
    }
    return 0;
}

int command_unpin(struct backend *backend, struct error *error)
{
    const struct args *args = backend->args;
    struct tc_error cause;
    struct tc_unpinned unpinned;
    uint64_t left_ms;
    if (backend_time_left(backend, &left_ms, error) < 0)
        return -1;
    if (tc_unpin(served_client(backend), args->artifact, left_ms, &unpinned, &cause) < 0)
        return served_fail(error, &cause);
    if (args->json)
        printf("{\"unpinned_replicas\":%" PRIu64 ",\"unpinned_bytes\":%" PRIu64 "}\n", unpinned.replicas, unpinned.bytes);
    else if (!args->quiet)
        printf("unpinned %" PRIu64 " replica%s, %s\n", unpinned.replicas, text_plural(unpinned.replicas),
               text_show_amount(unpinned.bytes));
    return 0;
}
