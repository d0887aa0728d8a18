/* A short list, a file and a timer; see folders.h. */
#include "replica/folders.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/digest.h"
#include "base/file_io.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/text.h"
#include "observe/log.h"
#include "source/disk/mounts.h"
#include "source/disk/trusted_path.h"

enum { RECORD_VERSION = 2, RECORD_MAX_BYTES = 64 << 20, LOOK_MS = 3000, SOON_MS = 200, LOOKS = 2 };

struct folders {
    struct loop_work writing; /* first */
    struct loop *loop;
    struct loop_timer *timer; /* NULL = stopped */
    struct replica_table *host;
    struct quota *quota;
    char *record;        /* the file's path */
    struct folder *list; /* newest first */
    uint64_t last_copy;
    struct folder_wait *waiting, *written_for; /* for the next write, for the one in progress */
    bool is_restored, is_changed, is_writing;
    char *text; /* the helper's while it writes */
    size_t text_bytes;
    struct error error; /* ERROR_OK = written */
};

static uint64_t stamp_of(const struct timespec *time)
{
    return (uint64_t)time->tv_sec * 1000000000U + (uint64_t)time->tv_nsec;
}

static void free_folder(struct folder *folder)
{
    quota_charge_end(&folder->charge);
    free(folder->path);
    free(folder->artifact);
    free(folder->identity);
    free(folder);
}

struct folder *folders_first(const struct folders *folders)
{
    return folders->list;
}

struct folder *folders_find(const struct folders *folders, uid_t uid, const char *path)
{
    struct folder *folder = folders->list;
    while (folder && (folder->uid != uid || strcmp(folder->path, path) != 0))
        folder = folder->next;
    return folder;
}

struct folder *folders_find_for(const struct folders *folders, uid_t uid, const char *path)
{
    struct folder *found = folders_find(folders, uid, path);
    if (found || uid != 0)
        return found ? found : folders_find(folders, 0, path);
    for (struct folder *folder = folders->list; folder; folder = folder->next)
        if (strcmp(folder->path, path) == 0 && (!found || folder->is_seen))
            found = folder;
    return found;
}

/* --- beginning --- */

static int check_wish(const struct folder_wish *wish, struct error *error)
{
    size_t length = strlen(wish->path);
    if (wish->path[0] != '/' || length >= PATH_MAX || !text_is_plain_path(wish->path + 1) ||
        !text_is_utf8(wish->path, length))
        return fail(error, ERROR_INVALID_ARGUMENT, "FOLDER_PATH",
                    "a folder is named by its absolute path, without . and ..");
    if (!*wish->identity || strlen(wish->identity) > DIGEST_HEX_CHARS || strlen(wish->artifact) >= PATH_MAX)
        return fail(error, ERROR_INVALID_ARGUMENT, "FOLDER_IDENTITY", "the folder has no artifact or no identity");
    return 0;
}

int folders_begin(struct folders *folders, const struct folder_wish *wish, enum folder_turn *turn, struct folder **found,
                  struct error *error)
{
    struct quota_charge charge = {.quota = folders->quota, .kind = QUOTA_FOLDERS, .uid = wish->uid};
    struct timespec now;
    if (check_wish(wish, error) < 0)
        return -1;
    *found = folders_find(folders, wish->uid, wish->path);
    *found = *found ? *found : folders_find(folders, 0, wish->path);
    if (*found) {
        *turn = (*found)->is_there ? FOLDER_THERE : FOLDER_WAIT;
        const char *path = text_show((*found)->path);
        return *turn == FOLDER_WAIT || strcmp((*found)->identity, wish->identity) == 0
                   ? 0
                   : fail(error, ERROR_FAILED_PRECONDITION, "FOLDER_OF_ANOTHER_STATE",
                          "%s holds an earlier version of %s; tensorcast release %s", path, text_show((*found)->artifact),
                          path);
    }
    const struct folder *copy = NULL; /* of the same user and content, one that is there before one that is being made */
    for (const struct folder *folder = folders->list; folder && !wish->alone; folder = folder->next)
        if (folder->uid == wish->uid && strcmp(folder->identity, wish->identity) == 0 && (!copy || folder->is_there))
            copy = folder;
    *turn = !copy ? FOLDER_MAKE : copy->is_there ? FOLDER_SHARE : FOLDER_WAIT;
    if (*turn == FOLDER_WAIT)
        return 0;
    if (quota_charge_add(&charge, 1, error) < 0)
        return -1;
    if (!copy && replica_reserve(folders->host, wish->uid, wish->bytes, error) < 0) {
        quota_charge_end(&charge);
        return -1;
    }
    clock_gettime(CLOCK_REALTIME, &now);
    *found = memory_alloc(sizeof **found);
    **found = (struct folder){.next = folders->list,
                              .path = memory_copy_text(wish->path),
                              .artifact = memory_copy_text(wish->artifact),
                              .identity = memory_copy_text(wish->identity),
                              .uid = wish->uid,
                              .bytes = wish->bytes,
                              .copy = copy ? copy->copy : ++folders->last_copy,
                              .device = wish->device,
                              .stamp_ns = copy ? copy->stamp_ns : stamp_of(&now),
                              .charge = charge};
    folders->list = *found;
    return 0;
}

/* --- the record --- */

/* The members of struct folder that are kept. */
#define TEXTS(X) X(path) X(artifact) X(identity)
#define NUMBERS(X) X(uid) X(bytes) X(copy) X(device) X(stamp_ns) X(is_there) X(is_seen)

/* Not durable: the folders do not outlive the host's memory either. */
static void write_record(struct loop_work *work)
{
    struct folders *folders = (struct folders *)work;
    folders->error.code = ERROR_OK;
    if (file_io_replace(AT_FDCWD, folders->record, folders->text, folders->text_bytes, false) < 0)
        fail_errno(&folders->error, errno, "cannot write %s", folders->record);
}

static void begin_writing(struct folders *folders);

static void on_written(struct loop_work *work)
{
    struct folders *folders = (struct folders *)work;
    struct folder_wait *list = folders->written_for;
    folders->is_writing = false;
    folders->written_for = NULL;
    free(folders->text);
    while (list) {
        struct folder_wait *wait = list;
        list = list->next;
        wait->done(wait, folders->error.code == ERROR_OK ? NULL : &folders->error);
    }
    begin_writing(folders);
}

static void begin_writing(struct folders *folders)
{
    struct json_writer json = {0};
    if (folders->is_writing || !folders->is_changed || !folders->timer)
        return;
    json_write_open(&json, '{');
    json_put_u64(&json, "version", RECORD_VERSION);
    json_put_open(&json, "folders", '[');
    for (const struct folder *folder = folders->list; folder; folder = folder->next) {
#define PUT_TEXT(member) json_put_text(&json, #member, folder->member);
#define PUT_NUMBER(member) json_put_u64(&json, #member, folder->member);
        json_write_open(&json, '{');
        TEXTS(PUT_TEXT)
        NUMBERS(PUT_NUMBER)
        json_write_close(&json, '}');
    }
    json_write_close(&json, ']');
    json_write_close(&json, '}');
    folders->text = json.text;
    folders->text_bytes = json.length;
    folders->written_for = folders->waiting;
    folders->waiting = NULL;
    folders->is_changed = false;
    folders->is_writing = true;
    folders->writing = (struct loop_work){.do_work = write_record, .done = on_written, .pool = LOOP_DISK};
    loop_continue(folders->loop, &folders->writing);
}

void folders_record(struct folders *folders, struct folder_wait *wait)
{
    if (wait) {
        wait->next = folders->waiting;
        folders->waiting = wait;
    }
    folders->is_changed = true;
    begin_writing(folders);
}

static bool take_text(struct json *json, char **text)
{
    struct json_string value;
    if (*text || !json_take_string(json, &value) || memchr(value.text, '\0', value.length) || value.length >= PATH_MAX)
        return json_fail(json, "no text");
    *text = memory_print("%.*s", (int)value.length, value.text);
    return true;
}

static bool take_folder(struct json *json, struct folder *folder)
{
#define TAKE_TEXT(member)                                                                                                   \
    if (json_string_is(&key, #member))                                                                                      \
        is_known = take_text(json, &folder->member);
#define TAKE_NUMBER(member)                                                                                                 \
    if (json_string_is(&key, #member) && (is_known = json_take_u64(json, &number)))                                         \
        folder->member = (__typeof__(folder->member))number;
    struct json_string key;
    uint64_t number;
    json_begin_object(json);
    while (json_next_key(json, &key)) {
        bool is_known = false;
        TEXTS(TAKE_TEXT)
        NUMBERS(TAKE_NUMBER)
        if (!is_known)
            json_fail(json, "unknown key");
    }
    return json_ok(json) && folder->path && folder->artifact && folder->identity;
}

static bool has_copy(const struct folders *folders, uint64_t copy)
{
    const struct folder *folder = folders->list;
    while (folder && folder->copy != copy)
        folder = folder->next;
    return folder != NULL;
}

static bool take_record(struct folders *folders, struct json *json)
{
    struct json_string key;
    uint64_t version = 0;
    json_begin_object(json);
    while (json_next_key(json, &key)) {
        if (json_string_is(&key, "version")) {
            json_take_u64(json, &version);
            continue;
        }
        for (json_begin_array(json); json_next_item(json);) {
            struct folder *folder = memory_alloc(sizeof *folder);
            if (take_folder(json, folder)) {
                /* charged even beyond the budget */
                folder->charge = (struct quota_charge){.quota = folders->quota, .kind = QUOTA_FOLDERS, .uid = folder->uid};
                quota_charge_force(&folder->charge, 1);
                if (!has_copy(folders, folder->copy))
                    replica_reserve_anyway(folders->host, folder->uid, folder->bytes);
                folders->last_copy = folder->copy > folders->last_copy ? folder->copy : folders->last_copy;
                folder->next = folders->list;
                folders->list = folder;
            } else {
                free_folder(folder);
            }
        }
    }
    return json_end(json) && version == RECORD_VERSION;
}

/* What is read before the damage is kept: a folder that is not there is given up by itself. */
static void read_record(struct folders *folders)
{
    struct stat status;
    struct arena arena;
    struct json json;
    int fd = open(folders->record, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    bool is_good = fd < 0;
    if (fd >= 0 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size <= RECORD_MAX_BYTES) {
        char *bytes = memory_alloc((size_t)status.st_size + 1);
        ssize_t length = file_io_read(fd, bytes, (size_t)status.st_size);
        arena_init(&arena, 0);
        json_init(&json, bytes, length > 0 ? (size_t)length : 0, &arena);
        is_good = take_record(folders, &json);
        arena_fini(&arena);
        free(bytes);
    }
    if (fd >= 0)
        close(fd);
    if (!is_good)
        log_at_of(LOG_WARN, "folder_record_damaged", LOG_NOBODY, LOG_TEXT("path", folders->record));
}

/* --- looking which are there --- */

enum sight { SIGHT_NONE, SIGHT_THERE, SIGHT_GONE };

struct folder_look {
    struct loop_work work; /* first */
    struct folders *folders;
    struct folder *folder;    /* NULL = it was dropped meanwhile */
    struct folder_wait *then; /* NULL = no waiter */
    char *path;
    uid_t uid;
    uint64_t device, stamp_ns; /* stamp_ns: 0 = it was found or confirmed before, and may have been changed since */
    enum sight sight;
};

/* The path is the user's word, and the daemon looks with its own rights: what belongs to another user is told as nothing is, a FUSE
 * mount is not asked, and no link followed. */
static void look_at_path(struct loop_work *work)
{
    struct folder_look *look = (struct folder_look *)work;
    struct stat status;
    struct error error = {.code = ERROR_NOT_FOUND};
    if (mounts_find_fuse(look->path))
        return; /* SIGHT_NONE */
    int fd = trusted_path_look(look->path, &error);
    bool is_it = fd >= 0 && fstat(fd, &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == look->uid &&
                 (uint64_t)status.st_dev == look->device;
    if (is_it && look->stamp_ns)
        is_it = stamp_of(&status.st_mtim) == look->stamp_ns;
    /* behind a link is where it was not made */
    bool is_another = fd >= 0 || error.code == ERROR_NOT_FOUND || error.code == ERROR_FAILED_PRECONDITION;
    look->sight = is_it ? SIGHT_THERE : is_another ? SIGHT_GONE : SIGHT_NONE;
    if (fd >= 0)
        close(fd);
}

static void look_soon(struct folders *folders)
{
    if (folders->timer)
        loop_timer_start(folders->timer, SOON_MS, LOOK_MS);
}

/* A folder that cannot be looked at counts as there. */
static void judge(struct folders *folders, struct folder *folder, enum sight sight)
{
    bool is_new = sight == SIGHT_THERE ? !folder->is_seen || !folder->is_there : sight == SIGHT_NONE && !folder->is_there;
    folder->is_seen = folder->is_seen || sight == SIGHT_THERE;
    folder->is_there = folder->is_there || sight != SIGHT_GONE;
    folder->n_missed = sight == SIGHT_GONE && !folder->maker ? folder->n_missed + 1 : 0;
    if (is_new)
        folders_record(folders, NULL);
    if (folder->n_missed >= LOOKS && (folder->is_seen || !folder->is_there)) {
        log_at_of(LOG_INFO, "folder_gone", folder->uid, LOG_TEXT("path", folder->path),
                  LOG_TEXT("artifact", folder->artifact));
        folders_drop(folders, folder);
    } else if (folder->n_missed && folder->n_missed < LOOKS) {
        look_soon(folders);
    }
}

static void on_looked(struct loop_work *work)
{
    struct folder_look *look = (struct folder_look *)work;
    if (look->folder)
        look->folder->look = NULL;
    if (look->folder && look->folders->timer)
        judge(look->folders, look->folder, look->sight);
    if (look->then)
        folders_record(look->folders, look->then);
    free(look->path);
    free(look);
}

/* One for each folder: a path may be on a mount that does not answer. */
static bool begin_look(struct folders *folders, struct folder *folder, bool is_found, struct folder_wait *then)
{
    struct folder_look *look = memory_alloc(sizeof *look);
    struct error error;
    *look = (struct folder_look){.work = {.do_work = look_at_path, .done = on_looked, .pool = LOOP_DISK, .uid = folder->uid},
                                 .folders = folders,
                                 .folder = folder,
                                 .then = then,
                                 .path = memory_copy_text(folder->path),
                                 .uid = folder->uid,
                                 .device = folder->device,
                                 .stamp_ns = is_found ? 0 : folder->stamp_ns};
    if (loop_submit(folders->loop, &look->work, &error) == 0) {
        folder->look = look;
        return true;
    }
    free(look->path);
    free(look);
    return false;
}

static void on_timer(void *data)
{
    struct folders *folders = data;
    for (struct folder *folder = folders->list; folder; folder = folder->next)
        if (!folder->look && !folder->maker)
            begin_look(folders, folder, folder->is_there, NULL);
}

/* --- the rest of its life --- */

void folders_confirm(struct folders *folders, struct folder *folder, struct folder_wait *wait)
{
    folder->is_there = true;
    if (folder->look || !begin_look(folders, folder, false, wait))
        folders_record(folders, wait);
}

void folders_leave(struct folders *folders, struct folder *folder)
{
    folder->maker = NULL;
    look_soon(folders);
}

const struct folder *folders_copy_of(const struct folders *folders, const struct folder *folder)
{
    const struct folder *other = folders->list;
    while (other && (other == folder || other->copy != folder->copy || !other->is_there))
        other = other->next;
    return other;
}

void folders_drop(struct folders *folders, struct folder *folder)
{
    struct folder **at = &folders->list;
    while (*at != folder)
        at = &(*at)->next;
    *at = folder->next;
    if (!has_copy(folders, folder->copy))
        replica_unreserve(folders->host, folder->uid, folder->bytes);
    if (folder->look)
        folder->look->folder = NULL;
    free_folder(folder);
    folders_record(folders, NULL);
}

struct folders *folders_create(struct loop *loop, struct replica_table *host, struct quota *quota, const char *state_dir)
{
    struct folders *folders = memory_alloc(sizeof *folders);
    folders->loop = loop;
    folders->host = host;
    folders->quota = quota;
    folders->record = memory_print("%s/folders.json", state_dir);
    folders->timer = loop_timer_create(loop, on_timer, folders);
    return folders;
}

void folders_restore(struct folders *folders)
{
    read_record(folders);
    folders->is_restored = true;
    loop_timer_start(folders->timer, SOON_MS, LOOK_MS);
}

bool folders_are_restored(const struct folders *folders)
{
    return folders->is_restored;
}

void folders_stop(struct folders *folders)
{
    if (!folders)
        return;
    loop_timer_destroy(folders->timer);
    folders->timer = NULL;
}

void folders_destroy(struct folders *folders)
{
    if (!folders)
        return;
    for (struct folder *folder = folders->list, *next; folder; folder = next) {
        next = folder->next;
        free_folder(folder);
    }
    free(folders->record);
    free(folders);
}
