/* "disk:/path": a directory or one file of a local or mounted filesystem. Every path is walked by trusted_path.c; what it
 * finds is an O_PATH descriptor, which is looked at before it is opened for reading, so that a FIFO or a device in a
 * model folder is refused and never touched.
 * Failure modes: outside the roots, missing, not a regular file, being written, changed. */
#include "source/disk/source_disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
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
#include "source/disk/closing.h"
#include "source/disk/filesystem.h"
#include "source/disk/immutability.h"
#include "source/disk/mounts.h"
#include "source/stores.h"

enum { MAX_ENTRIES = 1 << 20 /* of a directory that is listed */, DESCRIPTORS_PER_FILE = 2 };

static const struct source_disk *owner_of(struct source *source)
{
    return (const struct source_disk *)source_owner(source);
}

static int fail_name(const char *name, int errno_value, struct error *error)
{
    return fail_errno(error, errno_value, "%s", text_show(name));
}

/* The descriptor behind `path_fd` could not be opened. */
static int fail_open(const struct source_disk *disk, const char *verb, int path_fd, const char *name, int errno_value,
                     struct error *error)
{
    return errno_value == EACCES ? trusted_path_fail_access(error, verb, NULL, path_fd, disk->confined)
                                 : fail_name(name, errno_value, error);
}

/* An O_PATH descriptor, or -1. Without trusted roots (standalone) links are the kernel's business, except for open_for_root(). */
static int open_path(const struct source_disk *disk, const char *path, struct error *error)
{
    if (disk->confined)
        return trusted_path_open(&disk->roots, path, error);
    int fd = open(path, O_PATH | O_CLOEXEC);
    return fd >= 0 ? fd : fail_name(path, errno, error);
}

int source_disk_direct_fd(struct source_disk_file *file)
{
    int fd = __atomic_load_n(&file->direct_fd, __ATOMIC_SEQ_CST);
    if (fd != DIRECT_NOT_OPEN)
        return fd;
    int fresh = file_io_reopen(file->fd, O_RDONLY | O_NONBLOCK | O_DIRECT);
    fresh = fresh < 0 ? DIRECT_REFUSED : fresh;
    if (__atomic_compare_exchange_n(&file->direct_fd, &fd, fresh, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        return fresh;
    if (fresh >= 0) /* another thread was quicker */
        close(fresh);
    return fd;
}

static int disk_open(struct source *source, const char *path, const struct source_options *options, struct error *error)
{
    struct source_disk *disk = (struct source_disk *)source;
    struct stat status;
    char listed[TRUSTED_ROOTS_CHARS];
    if (path[0] != '/' && !options->allow_relative)
        return fail(error, ERROR_INVALID_ARGUMENT, "BAD_REFERENCE", "disk:%s: the path must be absolute", text_show(path));
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
    if (failed && disk->confined && error->code == ERROR_NOT_FOUND) { /* perhaps it lies in another one */
        trusted_roots_describe(&disk->roots, listed, sizeof listed);
        error_append(error, "; the trusted roots are %s", listed);
    }
    if (failed)
        return -1;
    if (source->is_single_file) {
        const char *slash = strrchr(path, '/');
        disk->file_name = memory_copy_text(slash ? slash + 1 : path);
    }
    return 0;
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

/* The O_PATH descriptor behind the name of a file or folder, or -1. A user can link in their folder what they cannot read,
 * and get it from root as a copy: for root links are followed one by one. */
static int open_name(const struct source_disk *disk, const char *name, struct error *error)
{
    if (disk->file_name)
        return open_path(disk, disk->path, error);
    char *path = memory_print("%s/%s", disk->path, name);
    int fd = -1, folder_fd;
    if (disk->confined || geteuid() != 0) {
        fd = open_path(disk, path, error);
    } else if ((folder_fd = open(disk->path, O_PATH | O_DIRECTORY | O_CLOEXEC)) < 0) {
        fail_name(disk->path, errno, error);
    } else {
        fd = followed_link_open(folder_fd, name, path, O_PATH, error);
        close(folder_fd);
    }
    free(path);
    return fd;
}

int source_disk_list(struct source *source, const char *folder, char ***names, size_t *n_names, struct error *error)
{
    const struct source_disk *disk = owner_of(source);
    const char *shown = folder ? folder : disk->path;
    int path_fd = folder ? open_name(disk, folder, error) : open_path(disk, disk->path, error);
    if (path_fd < 0)
        return -1;
    int fd = file_io_reopen(path_fd, O_RDONLY | O_NONBLOCK | O_DIRECTORY);
    int failed = fd < 0 ? fail_open(disk, "list", path_fd, shown, errno, error) : 0;
    close(path_fd);
    DIR *directory = failed ? NULL : fdopendir(fd);
    if (!directory)
        return failed ? failed : fail_name(shown, errno, error);
    struct quota_charge charge = metadata_charge(); /* while they are collected: callers keep but a few */
    failed = read_entries(directory, names, n_names, &charge, error);
    closedir(directory);
    quota_charge_end(&charge);
    if (failed) {
        while (*n_names)
            free((*names)[--*n_names]);
        free(*names);
        *names = NULL;
        return failed < 0 ? -1 : fail_name(shown, failed, error);
    }
    if (*n_names)
        qsort(*names, *n_names, sizeof **names, compare_names);
    return 0;
}

/* Takes path_fd. Leaves everything in `opened` to the caller, also after a failure. */
static int open_regular(const struct source_disk *disk, int path_fd, const char *name, struct source_disk_file *opened,
                        struct error *error)
{
    struct stat status;
    int failed = 0;
    if (fstat(path_fd, &status) < 0)
        failed = fail_name(name, errno, error);
    else if (S_ISDIR(status.st_mode))
        failed = fail(error, ERROR_FAILED_PRECONDITION, REASON(IS_A_FOLDER), "%s is a folder, not a file", text_show(name));
    else if (!S_ISREG(status.st_mode))
        failed =
            fail(error, ERROR_FAILED_PRECONDITION, REASON(NOT_A_REGULAR_FILE), "%s is not a regular file", text_show(name));
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

static int disk_open_file(struct source *source, const char *name, struct source_file *file, void **handle,
                          struct error *error)
{
    const struct source_disk *disk = owner_of(source);
    int path_fd = open_name(disk, name, error);
    if (path_fd < 0)
        return -1;
    struct source_disk_file *opened = memory_alloc(sizeof *opened);
    *opened = (struct source_disk_file){.fd = -1, .direct_fd = DIRECT_NOT_OPEN};
    /* to the user for whom the thread works, like the memory of what is read */
    struct metadata_account account = metadata_current();
    opened->descriptors =
        (struct quota_charge){.quota = account.quota, .kind = QUOTA_DESCRIPTORS, .uid = account.uid, .is_bulk = true};
    int failed = quota_charge_add(&opened->descriptors, DESCRIPTORS_PER_FILE, error);
    if (failed)
        close(path_fd);
    else
        failed = open_regular(disk, path_fd, name, opened, error);
    opened->changes.fd = opened->fd;
    if (!failed)
        failed = change_detection_begin(&opened->changes, file, &source->waited_ns, source->cancel, error);
    if (failed) {
        close_file(opened);
        return -1;
    }
    file->fd = opened->fd;
    filesystem_add_file(&source->caps, source->n_files == 0, file->identity.device, opened);
    *handle = opened;
    return 0;
}

int source_disk_open_immutable(struct source *source, size_t file, enum immutability *proof, struct error *error)
{
    const struct source_disk *disk = owner_of(source);
    const struct source_disk_file *opened = source->handles[file];
    struct immutability_question question = {.roots = &disk->immutable_roots, .name = source->files[file].name};
    question.fd = file_io_reopen(opened->fd, O_RDONLY); /* shares no lease, flag or position with ours */
    if (question.fd < 0)
        return fail_name(question.name, errno, error);
    question.is_leased = opened->changes.lease && file_lease_is_held(opened->changes.lease);
    if (immutability_prove(&question, proof, error) == 0)
        return question.fd;
    close(question.fd);
    return -1;
}

int source_disk_check_unchanged(struct source *source, size_t file, bool by_name, struct error *error)
{
    const struct source_disk *disk = owner_of(source);
    const struct source_disk_file *opened = source->handles[file];
    const struct source_file *known = &source->files[file];
    struct stat status;
    int failed = change_detection_check(&opened->changes, known, error);
    if (failed || !by_name)
        return failed;
    int path_fd = open_name(disk, known->name, error);
    if (path_fd < 0 && (error->code == ERROR_RESOURCE_EXHAUSTED || error->code == ERROR_UNAVAILABLE))
        return -1; /* that says nothing about the file */
    if (path_fd < 0)
        return change_detection_fail(known->name, "was removed", error);
    failed = fstat(path_fd, &status);
    close(path_fd);
    struct source_identity now = change_detection_identity(&status);
    return failed || !change_detection_same(&now, &known->identity)
               ? change_detection_fail(known->name, "was replaced", error)
               : 0;
}

void source_disk_close_files(struct source *source)
{
    bool is_network = source->caps.filesystem == SOURCE_NETWORK; /* whose server may be asked and not answer */
    int *fds = is_network ? memory_alloc_array(2 * source->n_files, sizeof *fds) : NULL;
    for (size_t i = 0; i < source->n_files; i++) {
        struct source_disk_file *opened = source->handles[i];
        change_detection_end(&opened->changes);
        if (is_network) {
            fds[2 * i] = opened->fd;
            fds[2 * i + 1] = opened->direct_fd;
            opened->fd = opened->direct_fd = -1;
        }
        close_file(opened);
    }
    if (is_network)
        closing_submit(source->caps.device_set, fds, 2 * source->n_files);
}

static void disk_close(struct source *source)
{
    struct source_disk *disk = (struct source_disk *)source;
    trusted_roots_fini(&disk->roots);
    trusted_roots_fini(&disk->immutable_roots);
    free(disk->path);
    free(disk->file_name);
}

const struct source_ops source_disk_ops = {
    .name = "disk",
    .source_size = sizeof(struct source_disk),
    .open = disk_open,
    .list = source_disk_list,
    .open_file = disk_open_file,
    .read = source_disk_read,
    .resident_bytes = source_disk_resident_bytes,
    .open_immutable = source_disk_open_immutable,
    .check_unchanged = source_disk_check_unchanged,
    .close_files = source_disk_close_files,
    .close = disk_close,
};

const struct store source_disk_store = {.scheme = "disk", .source = &source_disk_ops, .lane = mounts_find};
