/* A file in a folder: written beside its name, synced, read back from where it lies, and linked to the name, which fails when there
 * is one; only who replaces renames. The session is the name of the file beside it. Its folders are made. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc.h"
#include "base/file_io.h"
#include "base/memory.h"
#include "base/text.h"
#include "sink/sink_ops.h"

enum { READ_BYTES = 1 << 20, FILE_PART_BYTES = 4096 };
static const char beside[] = ".uploading";

static int fail_file(const struct sink *sink, int error_number, const char *what, struct error *error)
{
    char shown[TEXT_NAME_CHARS];
    return fail_errno(error, error_number, "cannot %s %s", what, text_escape(sink->key, strlen(sink->key), shown));
}

static char *path_beside(const struct sink *sink)
{
    const char *name = strrchr(sink->key, '/') + 1;
    return memory_print("%.*s.%s%s", (int)(name - sink->key), sink->key, name, beside);
}

static int sync_folder(const struct sink *sink, struct error *error)
{
    char *path = memory_print("%.*s", (int)(strrchr(sink->key, '/') - sink->key + 1), sink->key);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), failure = fd < 0 || fsync(fd) < 0 ? errno : 0;
    if (fd >= 0)
        close(fd);
    free(path);
    return failure ? fail_file(sink, failure, "sync the folder of", error) : 0;
}

static int sum_at(const struct sink *sink, const char *path, uint32_t *crc32c, struct error *error)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
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
    *object = (struct sink_object){0};
    if (lstat(sink->key, &found) < 0)
        return fail_file(sink, errno, "look at", error);
    object->size_bytes = S_ISREG(found.st_mode) ? (uint64_t)found.st_size : UINT64_MAX;
    return 0;
}

static int file_read_back(struct sink *sink, const struct sink_object *object, void *bytes, uint32_t *crc32c,
                          struct error *error)
{
    (void)object;
    if (bytes) /* a file has no version that a write could be tied to */
        return sink_fail_conditions(sink, error);
    return sum_at(sink, sink->key, crc32c, error);
}

static int write_at(const struct sink *sink, int fd, const struct sink_part *part, struct error *error)
{
    if (file_io_write_at(fd, part->bytes, part->count, part->offset) < 0)
        return fail_file(sink, errno, "write", error);
    return 0;
}

static int open_beside(const struct sink *sink, int flags, struct error *error)
{
    char *path = path_beside(sink);
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, 0644);
    free(path);
    return fd < 0 ? fail_file(sink, errno, "write", error) : fd;
}

static int file_begin(struct sink *sink, struct error *error)
{
    char *path = path_beside(sink);
    int fd = -1;
    if (file_io_make_folders(sink->key, 0755) < 0) {
        fail_file(sink, errno, "make the folder of", error);
    } else {
        unlink(path); /* of somebody who died, and whose session is lost */
        fd = open_beside(sink, O_CREAT | O_EXCL, error);
    }
    if (fd >= 0) {
        close(fd);
        sink->session = memory_copy_text(path);
    }
    free(path);
    return fd < 0 ? -1 : 0;
}

/* What was not synced may be holes: the whole is read back before it gets its name. */
static int file_find_parts(struct sink *sink, struct error *error)
{
    char *path = path_beside(sink);
    bool is_ours = strcmp(path, sink->session) == 0;
    struct stat found;
    int fd = is_ours ? open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW) : -1;
    free(path);
    if (fd < 0 || fstat(fd, &found) < 0 || !S_ISREG(found.st_mode)) {
        if (fd >= 0)
            close(fd);
        return sink_fail_gone(sink, error);
    }
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
    int fd = open_beside(sink, 0, error);
    int status = fd < 0 ? -1 : write_at(sink, fd, part, error);
    if (status == 0 && fdatasync(fd) < 0)
        status = fail_file(sink, errno, "sync", error);
    if (fd >= 0)
        close(fd);
    sink->stored[part->number] = (struct sink_stored){.is_stored = status == 0, .count = part->count};
    return status;
}

static int file_complete(struct sink *sink, struct sink_object *made, struct error *error)
{
    char *path = path_beside(sink);
    *made = (struct sink_object){.size_bytes = sink->upload->bytes, .checksum.kind = CHECKSUM_CRC32C};
    uint32_t crc;
    int status = sum_at(sink, path, &crc, error);
    if (status == 0) {
        made->checksum = checksum_of_crc(CHECKSUM_CRC32C, crc);
        int failed = sink->upload->replaces ? rename(path, sink->key) : link(path, sink->key);
        if (failed)
            status = errno == EEXIST ? sink_fail_exists(sink, error) : fail_file(sink, errno, "name", error);
        if (!failed && !sink->upload->replaces)
            unlink(path);
    }
    free(path);
    return status == 0 ? sync_folder(sink, error) : status;
}

static void file_abort(struct sink *sink)
{
    char *path = path_beside(sink);
    unlink(path);
    free(path);
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
    unlink(sink->key);
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
