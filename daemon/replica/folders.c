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
    bool is_changed, is_writing;
    char *text; /* the helper's while it writes */
    size_t text_bytes;
    struct error error; /* ERROR_OK = written */
};

static void free_folder(struct folder *folder)
{
    quota_charge_end(&folder->row);
    quota_charge_end(&folder->texts);
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

/* "/a/b", nothing that leads elsewhere by its text. */
static bool is_absolute(const char *path)
{
    size_t length = strlen(path);
    return path[0] == '/' && length < PATH_MAX && text_is_plain_path(path + 1) && text_is_utf8(path, length);
}

static int check_wish(const struct folder_wish *wish, struct error *error)
{
    if (!is_absolute(wish->path))
        return fail(error, ERROR_INVALID_ARGUMENT, "FOLDER_PATH",
                    "a folder is named by its absolute path, without . and ..");
    if (!*wish->identity || strlen(wish->identity) > DIGEST_HEX_CHARS || strlen(wish->artifact) >= PATH_MAX)
        return fail(error, ERROR_INVALID_ARGUMENT, "FOLDER_IDENTITY", "the folder has no artifact or no identity");
    return 0;
}

static int fail_other(const struct folder *folder, struct error *error)
{
    char path[TEXT_NAME_CHARS], artifact[TEXT_NAME_CHARS];
    text_escape(folder->path, strlen(folder->path), path);
    text_escape(folder->artifact, strlen(folder->artifact), artifact);
    return fail(error, ERROR_FAILED_PRECONDITION, "FOLDER_OF_ANOTHER_STATE",
                "%s holds %s as it was when the folder was made, which is not what is asked for now; tensorcast release %s",
                path, artifact, path);
}

/* Of the same user and content, one that is there before one that is being made. */
static struct folder *find_copy(const struct folders *folders, const struct folder_wish *wish)
{
    struct folder *found = NULL;
    for (struct folder *folder = folders->list; folder; folder = folder->next)
        if (folder->uid == wish->uid && strcmp(folder->identity, wish->identity) == 0 && (!found || folder->is_there))
            found = folder;
    return found;
}

static struct quota_charge charge_of(const struct folders *folders, enum quota_kind kind, uid_t uid)
{
    return (struct quota_charge){.quota = folders->quota, .kind = kind, .uid = uid};
}

static uint64_t text_bytes(const char *path, const char *artifact, const char *identity)
{
    return sizeof(struct folder) + strlen(path) + strlen(artifact) + strlen(identity) + 3;
}

/* Nothing stays charged when it fails. */
static int charge_wish(const struct folders *folders, const struct folder_wish *wish, struct folder *charged,
                       struct error *error)
{
    charged->row = charge_of(folders, QUOTA_FOLDERS, wish->uid);
    charged->texts = charge_of(folders, QUOTA_METADATA, wish->uid);
    if (quota_charge_add(&charged->row, 1, error) == 0 &&
        quota_charge_add(&charged->texts, text_bytes(wish->path, wish->artifact, wish->identity), error) == 0)
        return 0;
    quota_charge_end(&charged->row);
    return -1;
}

static uint64_t stamp_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

static struct folder *add(struct folders *folders, const struct folder_wish *wish, const struct folder *other,
                          const struct folder *charged)
{
    struct folder *folder = memory_alloc(sizeof *folder);
    *folder = (struct folder){.next = folders->list,
                              .path = memory_copy_text(wish->path),
                              .artifact = memory_copy_text(wish->artifact),
                              .identity = memory_copy_text(wish->identity),
                              .uid = wish->uid,
                              .bytes = wish->bytes,
                              .copy = other ? other->copy : ++folders->last_copy,
                              .device = wish->device,
                              .stamp_ns = other ? other->stamp_ns : stamp_now(),
                              .row = charged->row,
                              .texts = charged->texts};
    folders->list = folder;
    return folder;
}

int folders_begin(struct folders *folders, const struct folder_wish *wish, enum folder_turn *turn, struct folder **folder,
                  struct error *error)
{
    struct folder charged;
    if (check_wish(wish, error) < 0)
        return -1;
    *folder = folders_find(folders, wish->uid, wish->path);
    *folder = *folder ? *folder : folders_find(folders, 0, wish->path);
    if (*folder) {
        bool is_same = strcmp((*folder)->identity, wish->identity) == 0;
        *turn = (*folder)->is_there ? FOLDER_THERE : FOLDER_WAIT;
        return is_same || *turn == FOLDER_WAIT ? 0 : fail_other(*folder, error);
    }
    const struct folder *copy = wish->alone ? NULL : find_copy(folders, wish);
    *turn = copy ? (copy->is_there ? FOLDER_SHARE : FOLDER_WAIT) : FOLDER_MAKE;
    if (*turn == FOLDER_WAIT)
        return 0;
    if (charge_wish(folders, wish, &charged, error) < 0)
        return -1;
    if (*turn == FOLDER_MAKE && replica_reserve(folders->host, wish->uid, wish->bytes, error) < 0) {
        quota_charge_end(&charged.row);
        quota_charge_end(&charged.texts);
        return -1;
    }
    *folder = add(folders, wish, copy, &charged);
    return 0;
}

/* --- the record --- */

static void print_folder(struct json_writer *json, const struct folder *folder)
{
    json_write_open(json, '{');
    json_put_text(json, "path", folder->path);
    json_put_text(json, "artifact", folder->artifact);
    json_put_text(json, "identity", folder->identity);
    json_put_u64(json, "uid", folder->uid);
    json_put_u64(json, "bytes", folder->bytes);
    json_put_u64(json, "copy", folder->copy);
    json_put_u64(json, "device", folder->device);
    json_put_u64(json, "stamp_ns", folder->stamp_ns);
    json_put_u64(json, "is_there", folder->is_there);
    json_put_u64(json, "is_seen", folder->is_seen);
    json_write_close(json, '}');
}

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
    for (const struct folder *folder = folders->list; folder; folder = folder->next)
        print_folder(&json, folder);
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
    struct json_string key;
    uint64_t uid = 0, is_there = 0, is_seen = 0;
    const struct {
        const char *name;
        uint64_t *value;
    } numbers[] = {
        {"uid", &uid},           {"bytes", &folder->bytes},       {"copy", &folder->copy}, {"device", &folder->device},
        {"is_there", &is_there}, {"stamp_ns", &folder->stamp_ns}, {"is_seen", &is_seen}};
    const struct {
        const char *name;
        char **value;
    } texts[] = {{"path", &folder->path}, {"artifact", &folder->artifact}, {"identity", &folder->identity}};
    json_begin_object(json);
    while (json_next_key(json, &key)) {
        bool is_known = false;
        for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
            if (json_string_is(&key, numbers[i].name))
                is_known = json_take_u64(json, numbers[i].value);
        for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
            if (json_string_is(&key, texts[i].name))
                is_known = take_text(json, texts[i].value);
        if (!is_known)
            json_fail(json, "unknown key");
    }
    folder->uid = (uid_t)uid;
    folder->is_there = is_there;
    folder->is_seen = is_seen;
    return json_ok(json) && folder->path && folder->artifact && folder->identity;
}

static bool has_copy(const struct folders *folders, uint64_t copy)
{
    const struct folder *folder = folders->list;
    while (folder && folder->copy != copy)
        folder = folder->next;
    return folder != NULL;
}

/* Charged even beyond the budget. */
static void restore(struct folders *folders, struct folder *folder)
{
    folder->row = charge_of(folders, QUOTA_FOLDERS, folder->uid);
    folder->texts = charge_of(folders, QUOTA_METADATA, folder->uid);
    quota_charge_force(&folder->row, 1);
    quota_charge_force(&folder->texts, text_bytes(folder->path, folder->artifact, folder->identity));
    if (!has_copy(folders, folder->copy))
        replica_reserve_anyway(folders->host, folder->uid, folder->bytes);
    folders->last_copy = folder->copy > folders->last_copy ? folder->copy : folders->last_copy;
    folder->next = folders->list;
    folders->list = folder;
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
            if (take_folder(json, folder))
                restore(folders, folder);
            else
                free_folder(folder);
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
        is_it = (uint64_t)status.st_mtim.tv_sec * 1000000000U + (uint64_t)status.st_mtim.tv_nsec == look->stamp_ns;
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
    loop_timer_start(folders->timer, SOON_MS, LOOK_MS);
    read_record(folders);
    return folders;
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
