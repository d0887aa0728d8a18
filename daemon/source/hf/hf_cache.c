/* The hub's cache on this host, read only: refs/<revision> names a commit, snapshots/<commit>/ holds links into blobs/,
 * whose files of git-lfs are named by their SHA-256. A snapshot is used when it is a whole checkpoint, which the caller's
 * format tells. Its files are then read as any other file on disk. */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/loop.h"
#include "base/memory.h"
#include "source/disk/mounts.h"
#include "source/hf/source_hf.h"

/* "CACHE/models--org--model" */
static char *folder_of(const struct source_hf *hf, const char *cache_dir)
{
    const char *slash = strchr(hf->repository, '/');
    return slash ? memory_print("%s/models--%.*s--%s", cache_dir, (int)(slash - hf->repository), hf->repository, slash + 1)
                 : memory_print("%s/models--%s", cache_dir, hf->repository);
}

/* Whether its mount may be asked: this thread works for a store, and the mount's server may hang. */
static bool may_look(const char *path)
{
    struct error error;
    return loop_enter_lane(mounts_find_fuse(path), &error) == 0;
}

static bool is_file(const char *path)
{
    struct stat status;
    return may_look(path) && stat(path, &status) == 0 && S_ISREG(status.st_mode);
}

static ssize_t read_text(const char *path, char *bytes, size_t room)
{
    int fd = is_file(path) ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY) : -1;
    ssize_t n_bytes = fd >= 0 ? read(fd, bytes, room) : -1;
    if (fd >= 0)
        close(fd);
    return n_bytes;
}

static bool has(const char *folder, const char *name)
{
    char *path = memory_print("%s/%s", folder, name);
    bool found = is_file(path);
    free(path);
    return found;
}

bool hf_cache_find_commit(struct source_hf *hf, const char *cache_dir)
{
    if (hf_is_commit(hf->revision)) {
        memcpy(hf->commit, hf->revision, HF_COMMIT_CHARS);
        return true;
    }
    char *folder = folder_of(hf, cache_dir), *path = memory_print("%s/refs/%s", folder, hf->revision);
    ssize_t count = strstr(hf->revision, "..") ? -1 : read_text(path, hf->commit, HF_COMMIT_CHARS);
    free(folder);
    free(path);
    hf->commit[count > 0 ? count : 0] = '\0';
    bool found = hf_is_commit(hf->commit);
    hf->commit[0] = found ? hf->commit[0] : '\0';
    return found;
}

static bool has_needed(const struct source_hf *hf, const char *folder, enum hf_cache_need need)
{
    if (need == HF_CACHE_ANYTHING)
        return true;
    if (need == HF_CACHE_SIDECARS && !has(folder, "config.json"))
        return false;
    const struct source_format *format = hf->objects.base.format;
    return hf->file_name ? has(folder, hf->file_name) : format && format->is_whole(folder);
}

/* --- as a source on disk --- */

/* blobs/<64 hexadecimal digits> is named by its SHA-256; smaller files by their hash in git, which is none of ours. */
static void checksum_of_link(const struct source_hf *hf, const char *name, struct checksum *checksum)
{
    static const char digits[] = "0123456789abcdef";
    char target[PATH_MAX],
        *path = hf->disk.file_name ? memory_copy_text(hf->disk.path) : memory_print("%s/%s", hf->disk.path, name);
    ssize_t length = may_look(path) ? readlink(path, target, sizeof target - 1) : -1;
    free(path);
    target[length < 0 ? 0 : length] = '\0';
    const char *slash = strrchr(target, '/'), *blob = slash ? slash + 1 : target;
    if (strspn(blob, digits) == strlen(blob))
        checksum_parse_hex(CHECKSUM_SHA256, blob, checksum);
}

static int disk_open_file(struct source *source, const char *name, struct source_file *file, void **handle,
                          struct error *error)
{
    const struct source_hf *hf = (const struct source_hf *)source;
    char version[HF_COMMIT_CHARS + sizeof "commit "];
    if (source_disk_ops.open_file(source, name, file, handle, error) < 0)
        return -1;
    snprintf(version, sizeof version, "commit %s", hf->commit);
    file->version = memory_copy_text(version);
    checksum_of_link(hf, name, &file->checksums[0]);
    return 0;
}

static void disk_close(struct source *source)
{
    source_disk_ops.close(source);
    hf_free((struct source_hf *)source);
}

/* The same snapshot again: a second look at the revision might find another commit. */
static struct source *disk_beside(struct source *source)
{
    const struct source_hf *of = (const struct source_hf *)source;
    struct source_hf *beside = memory_alloc(sizeof *beside);
    const char *root = of->disk.roots.roots[0].given;
    beside->objects.base.ops = source->ops;
    beside->objects.base.caps = source->caps;
    beside->objects.base.is_single_file = source->is_single_file;
    memcpy(beside->commit, of->commit, sizeof beside->commit);
    trusted_roots_init(&beside->disk.roots, &root, 1);
    beside->disk.confined = true;
    beside->disk.path = memory_copy_text(of->disk.path);
    beside->disk.file_name = of->disk.file_name ? memory_copy_text(of->disk.file_name) : NULL;
    return &beside->objects.base;
}

static const struct source_ops cached_ops = {
    .name = "hf",
    .source_size = sizeof(struct source_hf),
    .list = source_disk_list,
    .open_file = disk_open_file,
    .read = source_disk_read,
    .resident_bytes = source_disk_resident_bytes,
    .open_immutable = source_disk_open_immutable,
    .map = source_disk_map,
    .check_unchanged = source_disk_check_unchanged,
    .check_still = source_disk_check_still,
    .beside = disk_beside,
    .close = disk_close,
};

/* Links may lead to the blobs beside the snapshots and nowhere else. */
static int become_disk(struct source_hf *hf, const struct source_options *given, const char *folder, const char *path,
                       struct error *error)
{
    struct source *source = &hf->objects.base;
    const struct source_options options = {.trusted_roots = &folder,
                                           .n_trusted_roots = 1,
                                           .immutable_roots = given->immutable_roots,
                                           .n_immutable_roots = given->n_immutable_roots};
    object_source_fini(&hf->objects);
    memset((char *)&hf->objects + sizeof *source, 0, sizeof hf->objects - sizeof *source);
    source->caps = (struct source_caps){0};
    source->ops = &cached_ops;
    return source_disk_ops.open(source, path, &options, error) < 0 ? -1 : 1;
}

int hf_cache_open(struct source_hf *hf, const struct source_options *options, const char *cache_dir, enum hf_cache_need need,
                  struct error *error)
{
    char *folder = folder_of(hf, cache_dir);
    char *below = memory_print("%s/snapshots/%s%s%s", folder, hf->commit, *hf->folder ? "/" : "", hf->folder);
    char *path = memory_print("%s%s%s", below, hf->file_name ? "/" : "", hf->file_name ? hf->file_name : "");
    int opened = 0;
    if (may_look(path) && access(path, F_OK) == 0 && has_needed(hf, below, need))
        opened = become_disk(hf, options, folder, path, error);
    free(folder);
    free(below);
    free(path);
    return opened;
}
