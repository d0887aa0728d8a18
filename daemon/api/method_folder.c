/* MakeFolder and KeepFolder: the client writes files, this side says whose turn it is, charges, records and lists.
 *
 * A MakeFolder call is open while its client works. What it began and did not keep ends with it, however it ended. */
#include <stdlib.h>
#include <string.h>

#include "api/api_job.h"
#include "base/memory.h"
#include "observe/log.h"
#include "replica/folder_record.h"
#include "replica/folder_watch.h"
#include "replica/folders.h"

struct making {
    struct folder_waiter waiter; /* first */
    const struct api *api;
    struct rpc_call *call;
    char *path; /* of what was begun; NULL = it waits */
};

void api_folder_status(const struct folder *folder, Tensorcast__Daemon__V1__FolderStatus *row)
{
    row->path = folder->path;
    row->artifact = folder->artifact;
    row->bytes = folder->bytes;
    row->uid = (uint32_t)folder->uid;
    row->device = folder->device;
    row->inode = folder->inode;
    row->stamp_ns = folder->stamp_ns;
}

static void end_making(struct making *making)
{
    free(making->path);
    free(making);
}

/* The client has left, or is done. */
static void on_left(void *data)
{
    struct making *making = data;
    struct folders *folders = making->api->folders;
    struct folder *folder = making->path ? folders_find(folders, rpc_call_uid(making->call), making->path) : NULL;
    folders_wait_no_more(&making->waiter);
    if (folder && folder->is_kept) {
        folder->is_open = false;
        folder_watch_now(making->api->folder_watch);
    } else if (folder) {
        folders_drop(folders, folder);
    }
    rpc_call_end(making->call);
    end_making(making);
}

static const Tensorcast__Daemon__V1__FolderTurn turns[] = {
    [FOLDER_THERE] = TENSORCAST__DAEMON__V1__FOLDER_TURN__FOLDER_TURN_THERE,
    [FOLDER_SHARE] = TENSORCAST__DAEMON__V1__FOLDER_TURN__FOLDER_TURN_SHARE,
    [FOLDER_MAKE] = TENSORCAST__DAEMON__V1__FOLDER_TURN__FOLDER_TURN_MAKE,
};

static void send_turn(struct making *making, enum folder_turn turn, const struct folder *shown)
{
    Tensorcast__Daemon__V1__FolderEvent event = TENSORCAST__DAEMON__V1__FOLDER_EVENT__INIT;
    Tensorcast__Daemon__V1__FolderStatus row = TENSORCAST__DAEMON__V1__FOLDER_STATUS__INIT;
    event.turn = turns[turn];
    if (shown) {
        api_folder_status(shown, &row);
        event.folder = &row;
    }
    rpc_call_send(making->call, &event.base);
}

static void try_to_begin(struct folder_waiter *waiter)
{
    struct making *making = (struct making *)waiter;
    enum folder_turn turn;
    struct folder *folder;
    const struct folder *other;
    struct error error;
    if (folders_begin(making->api->folders, &waiter->wish, &turn, &folder, &other, &error) < 0) {
        rpc_call_fail(making->call, &error);
        end_making(making);
    } else if (turn == FOLDER_WAIT) {
        folders_wait(folder, waiter);
    } else if (turn == FOLDER_THERE) {
        send_turn(making, turn, folder);
        rpc_call_end(making->call);
        end_making(making);
    } else {
        making->path = memory_copy_text(folder->path);
        send_turn(making, turn, other);
    }
}

void method_make_folder(struct rpc_call *call, const ProtobufCMessage *request, void *context)
{
    const Tensorcast__Daemon__V1__MakeFolderRequest *wished = (const Tensorcast__Daemon__V1__MakeFolderRequest *)request;
    struct making *making = memory_alloc(sizeof *making);
    *making = (struct making){.waiter = {.wish = {.path = wished->path,
                                                  .artifact = wished->artifact,
                                                  .identity = wished->identity,
                                                  .uid = rpc_call_uid(call),
                                                  .bytes = wished->bytes,
                                                  .alone = wished->alone},
                                         .retry = try_to_begin},
                              .api = context,
                              .call = call};
    rpc_call_on_cancel(call, on_left, making);
    try_to_begin(&making->waiter);
}

/* --- keeping --- */

struct keeping {
    struct api_job job; /* first */
    struct folder record;
    char *state_dir;
};

static void destroy_keeping(struct api_job *job)
{
    struct keeping *keeping = (struct keeping *)job;
    free(keeping->record.path);
    free(keeping->record.artifact);
    free(keeping->record.identity);
    free(keeping->state_dir);
    free(keeping);
}

/* Before it has its name: whether this process sees what the client sees, see folder_watch.h. */
static bool sees_hidden(const struct folder *record)
{
    int parent_chars = (int)(strrchr(record->path, '/') - record->path);
    char *hidden = memory_print("%.*s/.%s.tensorcast", parent_chars, record->path, record->path + parent_chars + 1);
    bool sees = folder_watch_look(hidden, record->uid, record->device, record->inode) == SIGHT_THERE;
    free(hidden);
    return sees;
}

static int write_record(struct api_job *job)
{
    struct keeping *keeping = (struct keeping *)job;
    keeping->record.is_seen = sees_hidden(&keeping->record);
    return folder_record_write(keeping->state_dir, &keeping->record, &job->error);
}

static struct folder *find_own(const struct api *api, struct rpc_call *call, const char *path, struct error *error)
{
    struct folder *folder = folders_find(api->folders, rpc_call_uid(call), path);
    if (folder)
        return folder;
    fail(error, ERROR_NOT_FOUND, "NO_SUCH_FOLDER", "nobody is making that folder");
    return NULL;
}

static void on_recorded(struct api_job *job)
{
    struct keeping *keeping = (struct keeping *)job;
    const struct folder *record = &keeping->record;
    Tensorcast__Daemon__V1__KeepFolderResponse response = TENSORCAST__DAEMON__V1__KEEP_FOLDER_RESPONSE__INIT;
    struct error error;
    struct folder *folder = find_own(job->api, job->call, record->path, &error);
    if (!folder || folder->is_kept || folder->copy != record->copy) { /* its call has ended meanwhile */
        folder_record_remove(keeping->state_dir, record->uid, record->device, record->inode);
        fail(&error, ERROR_ABORTED, "FOLDER_GIVEN_UP", "the call that made the folder has ended");
        rpc_call_fail(job->call, &error);
        api_job_end(job);
        return;
    }
    folder->device = record->device;
    folder->inode = record->inode;
    folder->stamp_ns = record->stamp_ns;
    folder->is_seen = record->is_seen;
    folders_keep(job->api->folders, folder);
    log_at_of(LOG_INFO, "folder_made", folder->uid, LOG_TEXT("path", folder->path), LOG_TEXT("artifact", folder->artifact),
              LOG_U64("bytes", folder->bytes));
    rpc_call_reply(job->call, &response.base);
    api_job_end(job);
}

static void confirm(struct rpc_call *call, struct folders *folders, struct folder *folder)
{
    Tensorcast__Daemon__V1__KeepFolderResponse response = TENSORCAST__DAEMON__V1__KEEP_FOLDER_RESPONSE__INIT;
    folders_confirm(folders, folder);
    rpc_call_reply(call, &response.base);
}

void method_keep_folder(struct rpc_call *call, const ProtobufCMessage *message, void *context)
{
    const Tensorcast__Daemon__V1__KeepFolderRequest *request = (const Tensorcast__Daemon__V1__KeepFolderRequest *)message;
    const struct api *api = context;
    struct error error;
    struct folder *folder = find_own(api, call, request->path, &error);
    bool is_same = folder && folder->is_kept && folder->device == request->device && folder->inode == request->inode;
    if (is_same && request->is_there) {
        confirm(call, api->folders, folder);
        return;
    }
    if (folder && (folder->is_kept || request->is_there)) {
        fail(&error, ERROR_FAILED_PRECONDITION, "FOLDER_NOT_MADE", "the folder is kept already, or was not recorded");
        folder = NULL;
    }
    if (!folder) {
        rpc_call_fail(call, &error);
        return;
    }
    struct keeping *keeping = memory_alloc(sizeof *keeping);
    keeping->record = *folder;
    keeping->record.path = memory_copy_text(folder->path);
    keeping->record.artifact = memory_copy_text(folder->artifact);
    keeping->record.identity = memory_copy_text(folder->identity);
    keeping->record.device = request->device;
    keeping->record.inode = request->inode;
    keeping->record.stamp_ns = request->stamp_ns;
    keeping->state_dir = memory_copy_text(folders_state_dir(api->folders));
    api_job_init(&keeping->job, api, call, "disk:/", destroy_keeping);
    keeping->job.work.lane = 0;
    api_job_run(&keeping->job, write_record, on_recorded);
}
