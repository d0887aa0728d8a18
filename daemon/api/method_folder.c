/* MakeFolder: the client writes files, this side says whose turn it is, charges, records and lists.
 *
 * A call is open while its client works. How it ended is not believed: a look says whether the folder is there. */
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/memory.h"
#include "observe/log.h"
#include "replica/folders.h"

enum { POLL_MS = 50 };

#define TURN(name) TENSORCAST__DAEMON__V1__FOLDER_TURN__FOLDER_TURN_##name

struct making {
    struct folder_wait wait; /* first */
    const struct api *api;
    struct rpc_call *call; /* NULL = the client has left */
    const Tensorcast__Daemon__V1__MakeFolderRequest *request;
    struct loop_timer *timer; /* until folders are known; NULL = they are */
    char *path;
    bool is_made, is_recording;
};

void api_folder_status(const struct folder *folder, Tensorcast__Daemon__V1__FolderStatus *row)
{
    row->path = folder->path;
    row->artifact = folder->artifact;
    row->bytes = folder->bytes;
    row->uid = (uint32_t)folder->uid;
    row->stamp_ns = folder->stamp_ns;
}

static void end_making(struct making *making)
{
    loop_timer_destroy(making->timer);
    free(making->path);
    free(making);
}

/* The folder that this call has begun; NULL if it was dropped meanwhile. */
static struct folder *own_folder(const struct making *making)
{
    struct folder *folder = folders_find(making->api->folders, rpc_call_uid(making->call), making->path);
    return folder && (making->is_made || folder->maker == making) ? folder : NULL;
}

/* The client has left, or is done. */
static void on_left(void *data)
{
    struct making *making = data;
    struct folder *folder = own_folder(making);
    if (folder && folder->maker == making)
        folders_leave(making->api->folders, folder);
    rpc_call_end(making->call);
    making->call = NULL;
    if (!making->is_recording)
        end_making(making);
}

static void send_turn(struct rpc_call *call, Tensorcast__Daemon__V1__FolderTurn turn, const struct folder *shown)
{
    Tensorcast__Daemon__V1__FolderEvent event = TENSORCAST__DAEMON__V1__FOLDER_EVENT__INIT;
    Tensorcast__Daemon__V1__FolderStatus row = TENSORCAST__DAEMON__V1__FOLDER_STATUS__INIT;
    event.turn = turn;
    if (shown) {
        api_folder_status(shown, &row);
        event.folder = &row;
    }
    rpc_call_send(call, &event.base);
}

/* The last answer: a turn, or an error. */
static void end_call(struct making *making, Tensorcast__Daemon__V1__FolderTurn turn, const struct folder *shown,
                     const struct error *error)
{
    if (error) {
        rpc_call_fail(making->call, error);
    } else {
        send_turn(making->call, turn, shown);
        rpc_call_end(making->call);
    }
    end_making(making);
}

static void on_recorded(struct folder_wait *wait, const struct error *cause)
{
    struct making *making = (struct making *)wait;
    struct error error;
    making->is_recording = false;
    if (!making->call) {
        end_making(making);
        return;
    }
    struct folder *folder = own_folder(making);
    if (!folder || cause) {
        if (folder)
            folders_drop(making->api->folders, folder);
        fail(&error, ERROR_ABORTED, "FOLDER_NOT_MADE", "the folder was released while it was made");
        end_call(making, 0, NULL, cause ? cause : &error);
    } else if (making->is_made) {
        log_at_of(LOG_INFO, "folder_made", folder->uid, LOG_TEXT("path", folder->path),
                  LOG_TEXT("artifact", folder->artifact), LOG_U64("bytes", folder->bytes));
        end_call(making, TURN(THERE), folder, NULL);
    } else {
        const struct folder *other = folders_copy_of(making->api->folders, folder);
        send_turn(making->call, other ? TURN(SHARE) : TURN(MAKE), other ? other : folder);
    }
}

static void start_making(struct making *making)
{
    const Tensorcast__Daemon__V1__MakeFolderRequest *request = making->request;
    const struct folder_wish wish = {.path = request->path,
                                     .artifact = request->artifact,
                                     .identity = request->identity,
                                     .uid = rpc_call_uid(making->call),
                                     .bytes = request->bytes,
                                     .device = request->device,
                                     .alone = request->alone};
    struct folder *folder;
    enum folder_turn turn;
    struct error error;
    if (request->is_made && (folder = own_folder(making))) {
        making->is_recording = true;
        folders_confirm(making->api->folders, folder, &making->wait);
    } else if (request->is_made) {
        fail(&error, ERROR_NOT_FOUND, "FOLDER_NOT_MADE", "the folder was not asked for, or was released while it was made");
        end_call(making, 0, NULL, &error);
    } else if (folders_begin(making->api->folders, &wish, &turn, &folder, &error) < 0) {
        end_call(making, 0, NULL, &error);
    } else if (turn == FOLDER_WAIT || turn == FOLDER_THERE) {
        end_call(making, turn == FOLDER_WAIT ? TURN(WAIT) : TURN(THERE), turn == FOLDER_WAIT ? NULL : folder, NULL);
    } else {
        folder->maker = making;
        making->is_recording = true;
        folders_record(making->api->folders, &making->wait);
    }
}

static void on_timer(void *data)
{
    struct making *making = data;
    if (!folders_are_restored(making->api->folders))
        return;
    loop_timer_destroy(making->timer);
    making->timer = NULL;
    start_making(making);
}

/* While the daemon before this one ends, only it knows which folders there are. */
void method_make_folder(struct rpc_call *call, const ProtobufCMessage *message, void *context)
{
    const Tensorcast__Daemon__V1__MakeFolderRequest *request = (const Tensorcast__Daemon__V1__MakeFolderRequest *)message;
    const struct api *api = context;
    struct making *making = memory_alloc(sizeof *making);
    *making = (struct making){.wait = {.done = on_recorded},
                              .api = api,
                              .call = call,
                              .request = request,
                              .path = memory_copy_text(request->path),
                              .is_made = request->is_made};
    rpc_call_on_cancel(call, on_left, making);
    if (folders_are_restored(api->folders)) {
        start_making(making);
        return;
    }
    making->timer = loop_timer_create(api->services.loop, on_timer, making);
    loop_timer_start(making->timer, POLL_MS, POLL_MS);
}
