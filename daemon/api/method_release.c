/* Release: drops replicas that no client holds, of one artifact or of all, and, for root and the daemon's own user, the memory
 * that was prepared. */
#include "api/api.h"

#include <stdlib.h>
#include <string.h>

#include "base/quota.h"

/* First which one it is, for the client to remove; then that it is gone. */
static void release_folder(struct rpc_call *call, const Tensorcast__Daemon__V1__ReleaseRequest *request,
                           const struct api *api)
{
    Tensorcast__Daemon__V1__ReleaseResponse response = TENSORCAST__DAEMON__V1__RELEASE_RESPONSE__INIT;
    Tensorcast__Daemon__V1__FolderStatus row = TENSORCAST__DAEMON__V1__FOLDER_STATUS__INIT;
    uid_t uid = rpc_call_uid(call);
    struct folder *folder = folders_find_for(api->folders, uid, request->folder);
    struct error error;
    if (folder && folder->is_there && folder->uid != uid && uid != 0) {
        fail(&error, ERROR_PERMISSION_DENIED, "FOLDER_OF_ANOTHER_USER", "the folder was made by user %u",
             (unsigned)folder->uid);
        rpc_call_fail(call, &error);
        return;
    }
    if (folder && folder->uid != uid && uid != 0)
        folder = NULL;
    if (folder && request->folder_is_gone) {
        folders_drop(api->folders, folder);
    } else if (folder && folder->is_there) {
        api_folder_status(folder, &row);
        response.folder = &row;
    }
    rpc_call_reply(call, &response.base);
}

void method_release(struct rpc_call *call, const ProtobufCMessage *message, void *context)
{
    const Tensorcast__Daemon__V1__ReleaseRequest *request = (const Tensorcast__Daemon__V1__ReleaseRequest *)message;
    const struct api *api = context;
    uid_t uid = rpc_call_uid(call);
    struct error error;
    if (request->folder[0]) {
        release_folder(call, request, api);
        return;
    }
    if (request->all == (request->artifact[0] != '\0')) {
        fail(&error, ERROR_INVALID_ARGUMENT, "RELEASE_WHAT", "name one artifact, or all");
        rpc_call_fail(call, &error);
        return;
    }
    char *reference = request->all ? NULL : source_listed(request->artifact, &error);
    if (!reference && !request->all) {
        rpc_call_fail(call, &error);
        return;
    }
    const struct load_targets *targets = api->services.targets;
    Tensorcast__Daemon__V1__ReleaseResponse response = TENSORCAST__DAEMON__V1__RELEASE_RESPONSE__INIT;
    for (size_t i = 0; i < targets->n; i++) {
        struct replica_counts counts = replica_release(targets->list[i].replicas, uid, reference);
        response.released_replicas += counts.released;
        response.released_bytes += counts.released_bytes;
        response.leased_replicas += counts.kept;
        response.leased_bytes += counts.kept_bytes;
        response.replicas_of_others += counts.of_others;
        response.pinned_replicas += counts.pinned;
        response.pinned_bytes += counts.pinned_bytes;
    }
    free(reference);
    if (quota_is_privileged(uid)) /* it is ready for the next load of any user */
        device_trim(targets->list[LOAD_TARGET_HOST].device);
    rpc_call_reply(call, &response.base);
}
