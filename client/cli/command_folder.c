/* `folder`: an artifact's files, or a variant of it, as a folder on tmpfs. This process makes it, with its own rights; the daemon
 * charges, records and lists it (daemon/api/method_folder.c). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/file_io.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/process.h"
#include "base/redact.h"
#include "base/text.h"
#include "client/client.h"
#include "client/sidecars.h"
#include "client/variant.h"
#include "command.h"
#include "fetch_files.h"
#include "interrupt.h"
#include "served.h"
#include "tmpfs_folder.h"
#include "variant_file.h"

#define VARIANT_FILE_NAME "model.safetensors"
enum { ASKED_AGAIN = 3, TELL_MS = 30000, WAIT_MS = 50 };

typedef Tensorcast__Daemon__V1__FolderEvent folder_event;
#define TURN(name) TENSORCAST__DAEMON__V1__FOLDER_TURN__FOLDER_TURN_##name

struct making {
    struct backend *backend;
    struct tmpfs_folder folder;
    struct fetched fetched;       /* files as they are, unless there is a variant: */
    struct variant_file variant;  /* its tensors */
    struct tc_sidecars *sidecars; /* true of it */
    struct tmpfs_file *files;
    size_t n_files;
    uint64_t total_bytes;
    char identity[DIGEST_HEX_CHARS + 1];
    bool alone;      /* sharing turned out to be impossible */
    bool is_again;   /* the daemon is to be asked once more */
    bool is_to_wait; /* another call makes it */
    const char *how; /* NULL = not done */
};

/* --- what belongs in it --- */

static void add_file(struct making *making, const char *name, uint64_t bytes)
{
    making->files[making->n_files++] = (struct tmpfs_file){name, bytes, -1};
    making->total_bytes += bytes;
}

static int plan_files(struct making *making, struct error *error)
{
    const struct file_set *set = &making->fetched.set;
    if (fetch_list(making->backend, &making->fetched, error) < 0 || fetch_check_flat(&making->fetched, error) < 0)
        return -1;
    making->files = memory_alloc_array(set->n_files + 1, sizeof *making->files);
    for (size_t i = 0; i < set->n_files; i++)
        add_file(making, set->files[i].name, set->files[i].bytes);
    struct digest *digest = digest_create();
    digest_add_text(digest, set->identity);
    digest_finish_hex(digest, making->identity);
    return 0;
}

/* Its documents are corrected, so what they say is what they are known by. */
static int plan_variant(struct making *making, struct error *error)
{
    struct backend *backend = making->backend;
    struct tc_options options;
    if (variant_file_plan(backend, &making->variant, error) < 0 || served_options(backend, &options, error) < 0)
        return -1;
    interrupt_defer(options.cancel);
    const struct tc_sidecars *set = making->sidecars =
        sidecars_fetch(served_client(backend), backend->args->artifact, NULL, 0, &options, error);
    interrupt_defer(NULL);
    if (!set)
        return -1;
    for (size_t i = 0; i < set->n_notes; i++)
        backend_warn(set->notes[i]);
    struct digest *digest = digest_create();
    making->files = memory_alloc_array(set->n_files + 2, sizeof *making->files);
    for (size_t i = 0; i < set->n_files; i++) {
        add_file(making, set->files[i].name, set->files[i].length);
        digest_add_text(digest, set->files[i].name);
        digest_add_u64(digest, set->files[i].length);
        digest_add(digest, set->files[i].bytes, set->files[i].length);
    }
    add_file(making, VARIANT_FILE_NAME, making->variant.file_bytes);
    digest_add_text(digest, making->variant.catalog->told->identity);
    digest_add_text(digest, tc_variant_json(backend->variant));
    digest_finish_hex(digest, making->identity);
    return 0;
}

/* --- its bytes --- */

static struct tmpfs_file *file_of(struct making *making, size_t file)
{
    const char *name = making->fetched.set.files[file].name;
    struct tmpfs_file *at = making->files;
    while (strcmp(at->name, name) != 0)
        at++;
    return at;
}

static int begin_file(void *data, size_t file, struct error *error)
{
    struct making *making = data;
    return tmpfs_folder_new_file(&making->folder, &file_of(making, file)->fd, error);
}

static int put_bytes(void *data, size_t file, const void *bytes, size_t count, struct error *error)
{
    struct making *making = data;
    if (file_io_write(file_of(making, file)->fd, bytes, count) < 0)
        return fail_errno(error, errno, "cannot write %.200s of the folder", making->fetched.set.files[file].name);
    return 0;
}

static int end_file(void *data, size_t file, struct error *error)
{
    (void)data;
    (void)file;
    (void)error;
    return 0; /* it gets its name with all others */
}

static int write_variant(struct making *making, struct error *error)
{
    struct tmpfs_file *file = making->files;
    for (size_t i = 0; i < making->sidecars->n_files; i++, file++) {
        const struct sidecar_file *sidecar = &making->sidecars->files[i];
        if (tmpfs_folder_new_file(&making->folder, &file->fd, error) < 0)
            return -1;
        if (file_io_write(file->fd, sidecar->bytes, sidecar->length) < 0)
            return fail_errno(error, errno, "cannot write %.200s of the folder", sidecar->name);
    }
    return tmpfs_folder_new_file(&making->folder, &file->fd, error) < 0 ||
                   variant_file_write(making->backend, &making->variant, file->fd, error) < 0
               ? -1
               : 0;
}

static int write_files(struct making *making, struct error *error)
{
    const struct file_sink sink = {.begin = begin_file, .put = put_bytes, .end = end_file, .data = making};
    process_allow_descriptors(); /* one for each file */
    if (tmpfs_folder_check_room(&making->folder, making->total_bytes, error) < 0)
        return -1;
    return making->backend->variant ? write_variant(making, error)
                                    : fetch_bytes(making->backend, &making->fetched, &sink, error);
}

/* --- the daemon's part --- */

/* One short question; the answer's content does not matter. */
static int tell_daemon(struct making *making, const char *method, const ProtobufCMessage *request,
                       const ProtobufCMessageDescriptor *answer, struct error *error)
{
    const struct wait wait = client_wait(&(struct tc_options){.timeout_ms = TELL_MS});
    struct arena arena;
    arena_init(&arena, 0);
    bool is_told =
        rpc_client_get(served_client(making->backend)->rpc, method, request, answer, &wait, &arena, error) != NULL;
    arena_fini(&arena);
    return is_told ? 0 : -1;
}

static int publish(struct making *making, int from, uint64_t stamp_ns, struct error *error)
{
    struct error ignored;
    interrupt_defer(NULL);
    if (tmpfs_folder_publish(&making->folder, making->files, making->n_files, from, stamp_ns, error) < 0)
        return -1;
    /* a daemon that ended meanwhile has a record of it, and the next one lists it */
    Tensorcast__Daemon__V1__MakeFolderRequest request = TENSORCAST__DAEMON__V1__MAKE_FOLDER_REQUEST__INIT;
    request.path = making->folder.path;
    request.is_made = true;
    int failed = tell_daemon(making, "MakeFolder", &request.base, &tensorcast__daemon__v1__folder_event__descriptor, error);
    if (!failed || error->code == ERROR_UNAVAILABLE)
        return 0;
    tmpfs_folder_remove(&making->folder, stamp_ns, &ignored);
    return -1;
}

/* It was removed, or was not made, and the daemon has not seen that yet. */
static bool tell_gone(struct making *making)
{
    Tensorcast__Daemon__V1__ReleaseRequest request = TENSORCAST__DAEMON__V1__RELEASE_REQUEST__INIT;
    struct error ignored;
    request.folder = making->folder.path;
    request.folder_is_gone = true;
    return tell_daemon(making, "Release", &request.base, &tensorcast__daemon__v1__release_response__descriptor, &ignored) ==
           0;
}

/* Links are refused between mounts, and for files that are another user's by now. */
static int share_it(struct making *making, const Tensorcast__Daemon__V1__FolderStatus *row, struct error *error)
{
    int fd = tmpfs_folder_find(row->path, row->stamp_ns, making->files, making->n_files, error);
    int failed = fd < 0 ? -1 : publish(making, fd, row->stamp_ns, error);
    if (fd >= 0)
        close(fd);
    making->is_again = making->alone = failed && error->code != ERROR_ALREADY_EXISTS && error->code != ERROR_UNAVAILABLE;
    making->how = failed ? NULL : "made, sharing the memory of another folder";
    return failed;
}

static int make_or_share(struct making *making, const folder_event *event, struct error *error)
{
    uid_t owner;
    int failed;
    const char *text = text_show(making->folder.path);
    if (tmpfs_folder_exists(&making->folder, &owner) && owner != geteuid()) {
        failed = fail(error, ERROR_PERMISSION_DENIED, "FOLDER_OF_ANOTHER_USER",
                      "%s is there already and belongs to user %u, who may change it; name another folder", text,
                      (unsigned)owner);
    } else if (tmpfs_folder_exists(&making->folder, &owner)) {
        failed =
            fail(error, ERROR_ALREADY_EXISTS, "FOLDER_EXISTS",
                 "%s is there already, and is no folder that this daemon knows of; name another one, or remove it", text);
    } else if (event->turn == TURN(SHARE)) {
        failed = share_it(making, event->folder, error);
    } else {
        failed = write_files(making, error) < 0 || publish(making, -1, event->folder->stamp_ns, error) < 0 ? -1 : 0;
        making->how = failed ? NULL : "made";
    }
    if (failed)
        tell_gone(making);
    return failed;
}

/* The call is open while this works; -1 ends it, also when all is well: nothing more is to be said. */
static int on_turn(void *data, ProtobufCMessage *answer, struct arena *arena, struct error *error)
{
    const folder_event *event = (const folder_event *)answer;
    struct making *making = data;
    (void)arena;
    making->is_to_wait = event->turn == TURN(WAIT);
    if (making->is_to_wait)
        return 0;
    if (!event->folder || (event->turn != TURN(THERE) && event->turn != TURN(SHARE) && event->turn != TURN(MAKE)))
        return fail(error, ERROR_INTERNAL, "BAD_ANSWER", "the daemon's answer to MakeFolder makes no sense");
    if (event->turn == TURN(THERE)) {
        uid_t owner;
        int fd = tmpfs_folder_find(event->folder->path, event->folder->stamp_ns, making->files, making->n_files, error);
        if (fd < 0) {
            making->is_again = !tmpfs_folder_exists(&making->folder, &owner) && tell_gone(making);
            return -1;
        }
        close(fd);
        making->how = "is there";
        return 0;
    }
    return make_or_share(making, event, error) < 0 ? -1 : fail(error, ERROR_CANCELLED, "DONE", "it is made");
}

static int ask_once(struct making *making, struct error *error)
{
    struct backend *backend = making->backend;
    Tensorcast__Daemon__V1__MakeFolderRequest request = TENSORCAST__DAEMON__V1__MAKE_FOLDER_REQUEST__INIT;
    const struct rpc_question question = {"MakeFolder", &request.base, &tensorcast__daemon__v1__folder_event__descriptor,
                                          on_turn, making};
    struct tc_options options;
    struct arena arena;
    char *shown = redact_copy(backend->args->artifact);
    if (served_options(backend, &options, error) < 0) {
        free(shown);
        return -1;
    }
    const struct wait wait = client_patient_wait(served_client(backend), &options);
    request.path = making->folder.path;
    request.artifact = shown;
    request.identity = making->identity;
    request.bytes = making->total_bytes;
    request.device = making->folder.device;
    request.alone = making->alone;
    arena_init(&arena, 0);
    int failed = rpc_client_ask(served_client(backend)->rpc, &question, &wait, &arena, error);
    arena_fini(&arena);
    free(shown);
    return failed && making->how ? 0 : failed;
}

/* While another call makes it, or a copy to share, the daemon says so at once. */
static int ask_for_turn(struct making *making, struct error *error)
{
    int failed;
    while ((failed = ask_once(making, error)) == 0 && making->is_to_wait) {
        if (interrupt_seen())
            return fail(error, ERROR_CANCELLED, "CANCELLED", "interrupted");
        interrupt_sleep(WAIT_MS);
    }
    return failed;
}

/* --- the command --- */

static void print_folder(const struct making *making)
{
    const struct args *args = making->backend->args;
    char *shown = redact_copy(args->artifact);
    struct json_writer json = {0};
    json_write_open(&json, '{');
    json_put_text(&json, "artifact", shown);
    json_put_text(&json, "folder", making->folder.path);
    json_put_text(&json, "how", making->how);
    json_put_open(&json, "files", '[');
    for (size_t i = 0; i < making->n_files; i++)
        catalog_json_file(&json, making->files[i].name, making->files[i].bytes);
    json_write_close(&json, ']');
    json_put_u64(&json, "total_bytes", making->total_bytes);
    json_write_close(&json, '}');
    if (args->json)
        puts(json.text);
    else if (!args->quiet)
        printf("%s %s: %zu file%s, %s\n", text_show(making->folder.path), making->how, making->n_files,
               text_plural(making->n_files), text_show_amount(making->total_bytes));
    free(json.text);
    free(shown);
}

int command_folder(struct backend *backend, struct error *error)
{
    const struct args *args = backend->args;
    struct making making = {.backend = backend};
    int failed = tmpfs_folder_open(&making.folder, args->fetch.folder, error) < 0 ||
                 (backend->variant ? plan_variant(&making, error) : plan_files(&making, error)) < 0 ||
                 ask_for_turn(&making, error) < 0;
    for (int i = 0; failed && making.is_again && i < ASKED_AGAIN; i++) {
        making.is_again = false;
        failed = ask_for_turn(&making, error) < 0;
    }
    progress_end(&backend->progress);
    if (!failed)
        print_folder(&making);
    for (size_t i = 0; i < making.n_files; i++)
        if (making.files[i].fd >= 0)
            close(making.files[i].fd);
    free(making.files);
    fetched_fini(&making.fetched);
    tc_sidecars_release(making.sidecars);
    variant_file_fini(&making.variant);
    tmpfs_folder_close(&making.folder);
    return failed ? -1 : 0;
}
