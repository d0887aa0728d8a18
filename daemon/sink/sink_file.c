/* A file in a folder: written beside its name, synced, read back from where it lies, and linked to the name, which fails when
 * there is one; only a replacement renames. The session is the name of the file beside it. Its folders are made. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc.h"
#include "base/file_io.h"
#include "base/followed_link.h"
#include "base/memory.h"
#include "base/text.h"
#include "sink/sink_ops.h"

enum { READ_BYTES = 1 << 20, FILE_PART_BYTES = 4096 };
static const char beside[] = ".uploading";

static int fail_file(const struct sink *sink, int error_number, const char *what, struct error *error)
{
    return fail_errno(error, error_number, "cannot %s %s", what, text_show(sink->key));
}

static const char *name_of(const struct sink *sink)
{
    return strrchr(sink->key, '/') + 1;
}

static char *name_beside(const struct sink *sink)
{
    return memory_print(".%s%s", name_of(sink), beside);
}

/* `path` is absolute, and cut meanwhile. */
static int open_path(int top_fd, char *path, bool makes, struct error *error)
{
    const char *below = path + strspn(path, "/");
    int fd = followed_link_open(top_fd, *below ? below : ".", path, O_RDONLY | O_DIRECTORY, error);
    char *slash = strrchr(path, '/');
    if (fd >= 0 || !makes || error->code != ERROR_NOT_FOUND || !slash)
        return fd;
    *slash = '\0';
    int parent_fd = open_path(top_fd, path, true, error);
    *slash = '/';
    if (parent_fd < 0)
        return -1;
    if (mkdirat(parent_fd, slash + 1, 0755) == 0 || errno == EEXIST)
        fd = openat(parent_fd, slash + 1, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        fail_errno(error, errno, "cannot make %s", text_show(path));
    close(parent_fd);
    return fd;
}

/* For each operation anew, and never through a link of another user to what is not theirs: otherwise a user who may write
 * around the folder could choose where root's files land. */
static int open_folder(const struct sink *sink, bool makes, struct error *error)
{
    char *path = memory_print("%.*s", (int)(name_of(sink) - sink->key - 1), sink->key);
    int top_fd = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int fd = top_fd < 0 ? fail_errno(error, errno, "cannot open /") : open_path(top_fd, path, makes, error);
    if (top_fd >= 0)
        close(top_fd);
    free(path);
    return fd >= 0 ? fd : error_prefix(error, "%s", text_show(sink->key));
}

static int sum_at(const struct sink *sink, int folder_fd, const char *name, uint32_t *crc32c, struct error *error)
{
    int fd = openat(folder_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    char *bytes = memory_alloc(READ_BYTES);
    ssize_t n = fd < 0 ? -1 : 0;
    *crc32c = 0;
    while (fd >= 0 && (n = file_io_read(fd, bytes, READ_BYTES)) > 0)
        *crc32c = crc32c_update(*crc32c, bytes, (size_t)n);
    int failure = n < 0 ? errno : 0;
    free(bytes);
    if (fd >= 0)
        close(fd);
    return failure ? fail_file(sink, failure, "read back", error) : 0;
}

static int file_look(struct sink *sink, struct sink_object *object, struct error *error)
{
    struct stat found;
    int folder_fd = open_folder(sink, false, error);
    *object = (struct sink_object){0};
    if (folder_fd < 0)
        return -1;
    int failed = fstatat(folder_fd, name_of(sink), &found, AT_SYMLINK_NOFOLLOW) < 0 ? errno : 0;
    close(folder_fd);
    if (failed)
        return fail_file(sink, failed, "look at", error);
    object->size_bytes = S_ISREG(found.st_mode) ? (uint64_t)found.st_size : UINT64_MAX;
    return 0;
}

static int file_read_back(struct sink *sink, const struct sink_object *object, void *bytes, uint32_t *crc32c,
                          struct error *error)
{
    (void)object;
    if (bytes) /* a file has no version that a write could be tied to */
        return sink_fail_conditions(sink, error);
    int folder_fd = open_folder(sink, false, error);
    int status = folder_fd < 0 ? -1 : sum_at(sink, folder_fd, name_of(sink), crc32c, error);
    if (folder_fd >= 0)
        close(folder_fd);
    return status;
}

/* One that was begun here: no other process's, and under no other name. -1 with errno. */
static int open_begun(int folder_fd, const char *name, int flags, struct stat *found)
{
    int fd = openat(folder_fd, name, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return -1;
    if (fstat(fd, found) == 0 && S_ISREG(found->st_mode) && found->st_nlink == 1)
        return fd;
    close(fd);
    errno = EEXIST;
    return -1;
}

static int file_begin(struct sink *sink, struct error *error)
{
    char *name = name_beside(sink);
    int fd = -1;
    int folder_fd = open_folder(sink, true, error);
    if (folder_fd >= 0) {
        unlinkat(folder_fd, name, 0); /* of a process that died, and whose session is lost */
        fd = openat(folder_fd, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_CREAT | O_EXCL, 0644);
        if (fd < 0)
            fail_file(sink, errno, "write", error);
        close(folder_fd);
    }
    if (fd >= 0) {
        close(fd);
        sink->session = memory_print("%.*s%s", (int)(name_of(sink) - sink->key), sink->key, name);
    }
    free(name);
    return fd < 0 ? -1 : 0;
}

/* What was not synced may be holes: the whole is read back before it gets its name. */
static int file_find_parts(struct sink *sink, struct error *error)
{
    char *name = name_beside(sink);
    struct stat found;
    size_t folder_chars = (size_t)(name_of(sink) - sink->key);
    bool is_own = strncmp(sink->session, sink->key, folder_chars) == 0 && strcmp(sink->session + folder_chars, name) == 0;
    int folder_fd = is_own ? open_folder(sink, false, error) : -1;
    int fd = folder_fd < 0 ? -1 : open_begun(folder_fd, name, O_RDONLY, &found);
    free(name);
    if (folder_fd >= 0)
        close(folder_fd);
    if (fd < 0)
        return sink_fail_gone(sink, error);
    close(fd);
    uint64_t bytes = sink->upload->bytes;
    for (uint32_t i = 0; i < sink->n_parts; i++) {
        uint64_t begin = i * sink->part_bytes, end = begin + sink->part_bytes < bytes ? begin + sink->part_bytes : bytes;
        sink->stored[i] = (struct sink_stored){.is_stored = end <= (uint64_t)found.st_size, .count = end - begin};
    }
    return 0;
}

static int file_put_part(struct sink *sink, const struct sink_part *part, struct error *error)
{
    char *name = name_beside(sink);
    struct stat found;
    int folder_fd = open_folder(sink, false, error), fd = folder_fd < 0 ? -1 : open_begun(folder_fd, name, O_RDWR, &found);
    int status = folder_fd < 0 ? -1 : 0;
    if (status == 0 && (fd < 0 || file_io_write_at(fd, part->bytes, part->count, part->offset) < 0))
        status = fail_file(sink, errno, "write", error);
    if (status == 0 && fdatasync(fd) < 0)
        status = fail_file(sink, errno, "sync", error);
    if (fd >= 0)
        close(fd);
    if (folder_fd >= 0)
        close(folder_fd);
    free(name);
    sink->stored[part->number] = (struct sink_stored){.is_stored = status == 0, .count = part->count};
    return status;
}

static int file_complete(struct sink *sink, struct sink_object *made, struct error *error)
{
    char *name = name_beside(sink);
    *made = (struct sink_object){.size_bytes = sink->upload->bytes, .checksum.kind = CHECKSUM_CRC32C};
    uint32_t crc = 0;
    int folder_fd = open_folder(sink, false, error);
    int status = folder_fd < 0 ? -1 : sum_at(sink, folder_fd, name, &crc, error);
    made->checksum = checksum_of_crc(CHECKSUM_CRC32C, crc);
    bool replaces = sink->upload->replaces;
    if (status == 0 && (replaces ? renameat(folder_fd, name, folder_fd, name_of(sink))
                                 : linkat(folder_fd, name, folder_fd, name_of(sink), 0)) < 0)
        status = errno == EEXIST ? sink_fail_exists(sink, error) : fail_file(sink, errno, "name", error);
    if (status == 0 && !replaces)
        unlinkat(folder_fd, name, 0);
    if (status == 0 && fsync(folder_fd) < 0)
        status = fail_file(sink, errno, "sync the folder of", error);
    if (folder_fd >= 0)
        close(folder_fd);
    free(name);
    return status;
}

static void remove_file(const struct sink *sink, const char *name)
{
    struct error ignored;
    int folder_fd = open_folder(sink, false, &ignored);
    if (folder_fd < 0)
        return;
    unlinkat(folder_fd, name, 0);
    close(folder_fd);
}

static void file_abort(struct sink *sink)
{
    char *name = name_beside(sink);
    remove_file(sink, name);
    free(name);
}

static int file_put_whole(struct sink *sink, const struct sink_part *part, struct sink_object *made, struct error *error)
{
    int status = file_begin(sink, error) < 0 || file_put_part(sink, part, error) < 0 ? -1 : file_complete(sink, made, error);
    if (status < 0 && sink->session)
        file_abort(sink);
    free(sink->session);
    sink->session = NULL;
    return status;
}

static void file_drop(struct sink *sink, const struct sink_object *object)
{
    (void)object;
    remove_file(sink, name_of(sink));
}

const struct sink_ops sink_file_ops = {
    .scheme = "disk",
    .limits = {.whole_bytes = 8 << 20, .part_bytes = FILE_PART_BYTES, .in_order = true},
    .look = file_look,
    .put_whole = file_put_whole,
    .begin = file_begin,
    .find_parts = file_find_parts,
    .put_part = file_put_part,
    .complete = file_complete,
    .abort = file_abort,
    .drop = file_drop,
    .read_back = file_read_back,
};
