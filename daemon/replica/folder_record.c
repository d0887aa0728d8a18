/* Small JSON files, each replaced as a whole. Of a damaged one nothing is believed: the folder is then nobody's, and removing
 * it is its owner's. */
#include "replica/folder_record.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/file_io.h"
#include "base/json.h"
#include "base/memory.h"
#include "observe/log.h"

enum { RECORD_VERSION = 1, RECORD_MAX_BYTES = 64 << 10 };

static char *folder_of_records(const char *state_dir)
{
    return memory_print("%s/folders", state_dir);
}

static char *path_of(const char *state_dir, uid_t uid, uint64_t device, uint64_t inode)
{
    return memory_print("%s/folders/%u-%" PRIx64 "-%" PRIx64 ".json", state_dir, (unsigned)uid, device, inode);
}

/* --- writing --- */

static char *print_record(const struct folder *folder)
{
    struct json_writer json = {0};
    json_write_open(&json, '{');
    json_put_u64(&json, "version", RECORD_VERSION);
    json_put_text(&json, "path", folder->path);
    json_put_text(&json, "artifact", folder->artifact);
    json_put_text(&json, "identity", folder->identity);
    json_put_u64(&json, "uid", folder->uid);
    json_put_u64(&json, "bytes", folder->bytes);
    json_put_u64(&json, "copy", folder->copy);
    json_put_u64(&json, "device", folder->device);
    json_put_u64(&json, "inode", folder->inode);
    json_put_u64(&json, "stamp_ns", folder->stamp_ns);
    json_put_u64(&json, "is_seen", folder->is_seen);
    json_write_close(&json, '}');
    return json.text;
}

static int sync_folder(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int failed = fd < 0 || fsync(fd) < 0 ? -1 : 0, cause = errno;
    if (fd >= 0)
        close(fd);
    errno = cause;
    return failed;
}

int folder_record_write(const char *state_dir, const struct folder *folder, struct error *error)
{
    char *records = folder_of_records(state_dir), *text = print_record(folder);
    char *path = path_of(state_dir, folder->uid, folder->device, folder->inode);
    int failed = 0;
    if ((mkdir(records, 0700) < 0 && errno != EEXIST) || file_io_replace(AT_FDCWD, path, text, strlen(text), true) < 0 ||
        sync_folder(records) < 0)
        failed = fail_errno(error, errno, "cannot write %s", path);
    free(records);
    free(text);
    free(path);
    return failed;
}

void folder_record_remove(const char *state_dir, uid_t uid, uint64_t device, uint64_t inode)
{
    char *path = path_of(state_dir, uid, device, inode);
    unlink(path);
    free(path);
}

/* --- reading --- */

static bool take_text(struct json *json, char **text)
{
    struct json_string value;
    if (*text || !json_take_string(json, &value) || memchr(value.text, '\0', value.length) || value.length >= PATH_MAX)
        return json_fail(json, "no text");
    *text = memory_print("%.*s", (int)value.length, value.text);
    return true;
}

static bool take_record(struct json *json, struct folder *folder)
{
    struct json_string key;
    uint64_t version = 0, uid = 0, is_seen = 0;
    const struct {
        const char *name;
        uint64_t *value;
    } numbers[] = {{"version", &version},           {"uid", &uid},
                   {"bytes", &folder->bytes},       {"copy", &folder->copy},
                   {"device", &folder->device},     {"inode", &folder->inode},
                   {"stamp_ns", &folder->stamp_ns}, {"is_seen", &is_seen}};
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
    folder->is_seen = is_seen;
    return json_end(json) && version == RECORD_VERSION && folder->path && folder->artifact && folder->identity;
}

static bool read_record(int folder_fd, const char *name, struct folder *folder)
{
    char *bytes = memory_alloc(RECORD_MAX_BYTES + 1);
    struct arena arena;
    struct json json;
    *folder = (struct folder){0};
    int fd = openat(folder_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    ssize_t length = fd >= 0 ? read(fd, bytes, RECORD_MAX_BYTES + 1) : -1;
    if (fd >= 0)
        close(fd);
    arena_init(&arena, 0);
    json_init(&json, bytes, length > 0 ? (size_t)length : 0, &arena);
    bool is_good = length > 0 && length <= RECORD_MAX_BYTES && take_record(&json, folder);
    arena_fini(&arena);
    free(bytes);
    if (is_good)
        return true;
    free(folder->path);
    free(folder->artifact);
    free(folder->identity);
    return false;
}

void folder_record_read_all(const char *state_dir, void (*take)(void *data, const struct folder *folder), void *data)
{
    char *records = folder_of_records(state_dir);
    DIR *list = opendir(records);
    size_t n = 0;
    for (struct dirent *entry; list && n < FOLDERS_MAX && (entry = readdir(list));) {
        struct folder folder;
        if (entry->d_name[0] == '.')
            continue;
        if (read_record(dirfd(list), entry->d_name, &folder)) {
            take(data, &folder);
            n++;
        } else {
            log_at_of(LOG_WARN, "folder_record_damaged", LOG_NOBODY, LOG_TEXT("folder", records),
                      LOG_TEXT("name", entry->d_name));
            unlinkat(dirfd(list), entry->d_name, 0);
        }
    }
    if (list)
        closedir(list);
    free(records);
}
