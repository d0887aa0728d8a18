/* "disk:/path": a directory or one file of a local or mounted filesystem. Every path is walked by trusted_path.c; what it
 * finds is an O_PATH descriptor, which is looked at before it is opened for reading, so that a FIFO or a device in a
 * model folder is refused and never touched.
 * Failure modes: outside the roots, missing, not a regular file, being written, changed. */
#include "source/disk/source_disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_io.h"
#include "base/followed_link.h"
#include "base/memory.h"
#include "base/metadata.h"
#include "base/text.h"
#include "source/disk/access_denied.h"
#include "source/disk/closing.h"
#include "source/disk/filesystem.h"
#include "source/disk/immutability.h"
#include "source/disk/mounts.h"
#include "source/stores.h"

enum { MAX_ENTRIES = 1 << 20 /* of a directory that is listed */, DESCRIPTORS_PER_FILE = 2 };

static int fail_name(const char *name, int errno_value, struct error *error)
{
    char text[TEXT_NAME_CHARS];
    return fail_errno(error, errno_value, "%s", text_escape(name, strlen(name), text));
}

/* The descriptor behind `path_fd` could not be opened. */
static int fail_open(const struct source_disk *disk, const char *verb, int path_fd, const char *name, int errno_value,
                     struct error *error)
{
    return errno_value == EACCES ? access_denied_fail(error, verb, NULL, path_fd, disk->confined)
                                 : fail_name(name, errno_value, error);
}

/* An O_PATH descriptor, or -1. Without trusted roots (standalone) links are the kernel's business, but for open_for_root(). */
static int open_path(const struct source_disk *disk, const char *path, struct error *error)
{
    if (disk->confined)
        return trusted_path_open(&disk->roots, path, error);
    int fd = open(path, O_PATH | O_CLOEXEC);
    return fd >= 0 ? fd : fail_name(path, errno, error);
}

int source_disk_direct_fd(struct source_disk_file *file)
{
    int fd = atomic_load(&file->direct_fd);
    if (fd != DIRECT_NOT_OPEN)
        return fd;
    int fresh = file_io_reopen(file->fd, O_RDONLY | O_NONBLOCK | O_DIRECT);
    fresh = fresh < 0 ? DIRECT_REFUSED : fresh;
    if (atomic_compare_exchange_strong(&file->direct_fd, &fd, fresh))
        return fresh;
    if (fresh >= 0) /* another thread was quicker */
        close(fresh);
    return fd;
}

/* Perhaps it lies in another one. */
static void tell_roots(const struct source_disk *disk, struct error *error)
{
    char listed[TRUSTED_ROOTS_CHARS];
    trusted_roots_describe(&disk->roots, listed, sizeof listed);
    error_append(error, "; the trusted roots are %s", listed);
}

static int disk_open(struct source *source, const char *path, const struct source_options *options, struct error *error)
{
    struct source_disk *disk = (struct source_disk *)source;
    struct stat status;
    char text[TEXT_NAME_CHARS];
    if (path[0] != '/' && !options->allow_relative)
        return fail(error, ERROR_INVALID_ARGUMENT, "BAD_REFERENCE", "disk:%s: the path must be absolute",
                    text_escape(path, strlen(path), text));
    disk->confined = !options->allow_relative;
    if (disk->confined)
        trusted_roots_init(&disk->roots, options->trusted_roots, options->n_trusted_roots);
    trusted_roots_init(&disk->immutable_roots, options->immutable_roots, options->n_immutable_roots);
    disk->path = memory_copy_text(path);
    int fd = open_path(disk, path, error), failed = fd < 0 ? -1 : 0;
    if (fd >= 0) {
        failed = fstat(fd, &status) < 0 ? fail_name(path, errno, error) : 0;
        close(fd);
        source->is_single_file = !failed && !S_ISDIR(status.st_mode);
    }
    if (failed && disk->confined && error->code == ERROR_NOT_FOUND)
        tell_roots(disk, error);
    if (failed)
        return -1;
    if (source->is_single_file) {
        const char *slash = strrchr(path, '/');
        disk->file_name = memory_copy_text(slash ? slash + 1 : path);
    }
    return 0;
}

/* The folder was looked at when the first was opened. */
static struct source *disk_open_beside(struct source *source)
{
    const struct source_disk *first = (const struct source_disk *)source;
    struct source_disk *disk = memory_alloc(sizeof *disk);
    disk->base = (struct source){.ops = source->ops,
                                 .format = source->format,
                                 .cancel = source->cancel,
                                 .uid = source->uid,
                                 .is_single_file = source->is_single_file};
    disk->confined = first->confined;
    trusted_roots_copy(&disk->roots, &first->roots);
    trusted_roots_copy(&disk->immutable_roots, &first->immutable_roots);
    disk->path = memory_copy_text(first->path);
    disk->file_name = first->file_name ? memory_copy_text(first->file_name) : NULL;
    return &disk->base;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Returns errno, or -1: there are too many, or there is too much metadata, which the error tells. */
static int read_entries(DIR *directory, char ***names, size_t *n_names, struct quota_charge *charge, struct error *error)
{
    enum { ENTRY_BYTES = 32 };
    size_t capacity = 0;
    errno = 0;
    for (const struct dirent *entry; (entry = readdir(directory)) != NULL; errno = 0) {
        if (*n_names == MAX_ENTRIES)
            return fail(error, ERROR_RESOURCE_EXHAUSTED, "TOO_MANY_FILES",
                        "the folder has more than %d entries; put the checkpoint into one of its own", MAX_ENTRIES);
        if (quota_charge_add(charge, ENTRY_BYTES + strlen(entry->d_name), error) != 0)
            return -1;
        ARRAY_RESERVE(*names, *n_names, capacity);
        (*names)[(*n_names)++] = memory_copy_text(entry->d_name);
    }
    return errno;
}

int source_disk_list(struct source *source, char ***names, size_t *n_names, struct error *error)
{
    struct source_disk *disk = (struct source_disk *)source;
    *names = NULL;
    *n_names = 0;
    int path_fd = open_path(disk, disk->path, error);
    if (path_fd < 0)
        return -1;
    int fd = file_io_reopen(path_fd, O_RDONLY | O_NONBLOCK | O_DIRECTORY);
    int failed = fd < 0 ? fail_open(disk, "list", path_fd, disk->path, errno, error) : 0;
    close(path_fd);
    DIR *directory = failed ? NULL : fdopendir(fd);
    if (!directory)
        return failed ? failed : fail_name(disk->path, errno, error);
    struct quota_charge charge = metadata_charge(); /* while they are collected: callers keep but a few */
    failed = read_entries(directory, names, n_names, &charge, error);
    closedir(directory);
    quota_charge_end(&charge);
    if (failed) {
        while (*n_names)
            free((*names)[--*n_names]);
        free(*names);
        *names = NULL;
        return failed < 0 ? -1 : fail_name(disk->path, failed, error);
    }
    if (*n_names)
        qsort(*names, *n_names, sizeof **names, compare_names);
    return 0;
}

/* Whose folder it is may have linked what he cannot read, and get it from root as a copy. */
static int open_for_root(const struct source_disk *disk, const char *name, const char *path, struct error *error)
{
    int folder_fd = open(disk->path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (folder_fd < 0)
        return fail_name(disk->path, errno, error);
    int fd = followed_link_open(folder_fd, name, path, O_PATH, error);
    close(folder_fd);
    return fd;
}

/* The O_PATH descriptor behind a file's name, or -1. */
static int open_name(const struct source_disk *disk, const char *name, struct error *error)
{
    if (disk->file_name)
        return open_path(disk, disk->path, error);
    char *path = memory_alloc(strlen(disk->path) + strlen(name) + 2);
    sprintf(path, "%s/%s", disk->path, name);
    int fd = !disk->confined && geteuid() == 0 ? open_for_root(disk, name, path, error) : open_path(disk, path, error);
    free(path);
    return fd;
}

/* Takes path_fd. Leaves everything in `opened` to the caller, also after a failure. */
static int open_regular(const struct source_disk *disk, int path_fd, const char *name, struct source_disk_file *opened,
                        struct error *error)
{
    struct stat status;
    char text[TEXT_NAME_CHARS];
    int failed = 0;
    if (fstat(path_fd, &status) < 0)
        failed = fail_name(name, errno, error);
    else if (S_ISDIR(status.st_mode))
        failed = fail(error, ERROR_FAILED_PRECONDITION, REASON(IS_A_FOLDER), "%s is a folder, not a file",
                      text_escape(name, strlen(name), text));
    else if (!S_ISREG(status.st_mode))
        failed = fail(error, ERROR_FAILED_PRECONDITION, REASON(NOT_A_REGULAR_FILE), "%s is not a regular file",
                      text_escape(name, strlen(name), text));
    else if ((opened->fd = file_io_reopen(path_fd, O_RDONLY | O_NONBLOCK)) < 0)
        failed = fail_open(disk, "read", path_fd, name, errno, error);
    close(path_fd);
    return failed;
}

static void close_file(struct source_disk_file *opened)
{
    change_detection_end(&opened->changes);
    if (opened->fd >= 0)
        close(opened->fd);
    if (opened->direct_fd >= 0)
        close(opened->direct_fd);
    quota_charge_end(&opened->descriptors);
    free(opened);
}

static struct source_disk_file *new_file(void)
{
    struct source_disk_file *opened = memory_alloc(sizeof *opened);
    *opened = (struct source_disk_file){.fd = -1, .direct_fd = DIRECT_NOT_OPEN};
    /* to the user for whom the thread works, like the memory of what is read */
    struct metadata_account account = metadata_current();
    opened->descriptors =
        (struct quota_charge){.quota = account.quota, .kind = QUOTA_DESCRIPTORS, .uid = account.uid, .is_bulk = true};
    return opened;
}

/* Takes path_fd. */
static int open_local(struct source_disk *disk, int path_fd, struct source_file *file, struct source_disk_file *opened,
                      struct error *error)
{
    struct source *source = &disk->base;
    if (open_regular(disk, path_fd, file->name, opened, error) < 0)
        return -1;
    opened->changes.fd = opened->fd;
    if (change_detection_begin(&opened->changes, file, &disk->waited_ns, source->cancel, error) < 0)
        return -1;
    filesystem_add_file(&source->caps, source->n_files == 0, file->identity.device, opened);
    return 0;
}

static int disk_open_file(struct source *source, const char *name, struct source_file *file, void **handle,
                          struct error *error)
{
    struct source_disk *disk = (struct source_disk *)source;
    int path_fd = open_name(disk, name, error);
    if (path_fd < 0)
        return -1;
    struct source_disk_file *opened = new_file();
    int failed = quota_charge_add(&opened->descriptors, DESCRIPTORS_PER_FILE, error);
    if (failed)
        close(path_fd);
    else
        failed = open_local(disk, path_fd, file, opened, error);
    if (failed) {
        close_file(opened);
        return -1;
    }
    *handle = opened;
    return 0;
}

/* A description of its own, which shares no lease, flag or position with ours. */
static int open_again(int fd, const char *name, struct error *error)
{
    int again = file_io_reopen(fd, O_RDONLY);
    return again >= 0 ? again : fail_name(name, errno, error);
}

int source_disk_open_immutable(struct source *source, size_t file, enum immutability *proof, struct error *error)
{
    const struct source_disk *disk = (const struct source_disk *)source;
    const struct source_disk_file *opened = source->handles[file];
    struct immutability_question question = {.roots = &disk->immutable_roots, .name = source->files[file].name};
    question.fd = open_again(opened->fd, question.name, error);
    if (question.fd < 0)
        return -1;
    question.is_leased = opened->changes.lease && file_lease_is_held(opened->changes.lease);
    if (immutability_prove(&question, proof, error) == 0)
        return question.fd;
    close(question.fd);
    return -1;
}

int source_disk_check_still(struct source *source, size_t file, struct error *error)
{
    const struct source_disk_file *opened = source->handles[file];
    return change_detection_check(&opened->changes, &source->files[file], error);
}

int source_disk_check_unchanged(struct source *source, size_t file, const struct cancel *cancel, struct error *error)
{
    const struct source_disk *disk = (const struct source_disk *)source;
    const struct source_file *known = &source->files[file];
    struct stat status;
    (void)cancel;
    if (source_disk_check_still(source, file, error) < 0)
        return -1;
    int path_fd = open_name(disk, known->name, error);
    if (path_fd < 0 && (error->code == ERROR_RESOURCE_EXHAUSTED || error->code == ERROR_UNAVAILABLE))
        return -1; /* that says nothing about the file */
    if (path_fd < 0)
        return change_detection_fail(known->name, "was removed", error);
    int failed = fstat(path_fd, &status);
    close(path_fd);
    struct source_identity now = change_detection_identity(&status);
    return failed || !change_detection_same(&now, &known->identity)
               ? change_detection_fail(known->name, "was replaced", error)
               : 0;
}

/* Their server may be asked and not answer. */
static void close_elsewhere(struct source *source)
{
    int *fds = memory_alloc_array(2 * source->n_files, sizeof *fds);
    for (size_t i = 0; i < source->n_files; i++) {
        struct source_disk_file *opened = source->handles[i];
        change_detection_end(&opened->changes);
        fds[2 * i] = opened->fd;
        fds[2 * i + 1] = opened->direct_fd;
        opened->fd = -1;
        opened->direct_fd = DIRECT_NOT_OPEN;
    }
    closing_submit(source->caps.device_set, fds, 2 * source->n_files);
}

static void disk_close(struct source *source)
{
    struct source_disk *disk = (struct source_disk *)source;
    if (source->caps.filesystem == SOURCE_NETWORK)
        close_elsewhere(source);
    for (size_t i = 0; i < source->n_files; i++)
        close_file(source->handles[i]);
    trusted_roots_fini(&disk->roots);
    trusted_roots_fini(&disk->immutable_roots);
    free(disk->path);
    free(disk->file_name);
}

const struct source_ops source_disk_ops = {
    .name = "disk",
    .source_size = sizeof(struct source_disk),
    .lane = mounts_find,
    .open = disk_open,
    .beside = disk_open_beside,
    .list = source_disk_list,
    .open_file = disk_open_file,
    .read = source_disk_read,
    .resident_bytes = source_disk_resident_bytes,
    .open_immutable = source_disk_open_immutable,
    .map = source_disk_map,
    .check_unchanged = source_disk_check_unchanged,
    .check_still = source_disk_check_still,
    .close = disk_close,
};

const struct store source_disk_store = {.scheme = "disk", .source = &source_disk_ops};
