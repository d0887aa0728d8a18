/* Files and folders into a store; see upload_files.h. */
#include "upload_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/error.h"
#include "base/file_io.h"
#include "base/followed_link.h"
#include "base/memory.h"
#include "base/operand.h"
#include "base/parallel.h"
#include "base/text.h"
#include "config/config.h"
#include "interrupt.h"
#include "sink/sink.h"
#include "source/secret.h"
#include "source/stores.h"

/* --- upload session: ---
 * Of one file on its way to one object: a file in the home, by its path; NULL = there is none. */

/* What XDG_STATE_HOME or HOME says, or NULL. */
static const char *base_folder(bool *is_home)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    *is_home = !state || *state != '/';
    if (!*is_home)
        return state;
    return home && *home == '/' ? home : NULL;
}

static bool is_foreign(const struct stat *status)
{
    return status->st_uid != geteuid() && status->st_uid != 0;
}

static char *state_folder(void)
{
    bool is_home;
    struct stat status;
    const char *base = base_folder(&is_home);
    return base && !(stat(base, &status) == 0 && is_foreign(&status))
               ? memory_print("%s%s/tensorcast/uploads", base, is_home ? "/.local/state" : "")
               : NULL;
}

/* FOREIGN_STATE_DIR: the folder around it belongs to another user, who could have begun uploads there. */
static int upload_session_check(struct error *error)
{
    bool is_home;
    struct stat status;
    const char *base = base_folder(&is_home);
    if (!base || stat(base, &status) < 0 || !is_foreign(&status))
        return 0;
    return fail(error, ERROR_FAILED_PRECONDITION, "FOREIGN_STATE_DIR",
                "%s is %s, which belongs to user %u: unfinished uploads are neither kept nor resumed there; set it to a "
                "folder of your own (sudo -H)",
                is_home ? "HOME" : "XDG_STATE_HOME", text_show(base), (unsigned)status.st_uid);
}

/* malloced, for secret_free(); "" = nothing is begun */
static char *upload_session_read(const char *path)
{
    size_t length;
    char *text = path ? secret_read_own_file(path, SINK_MAX_SESSION_CHARS - 1, &length) : NULL;
    if (text && length < SINK_MAX_SESSION_CHARS && strlen(text) == length)
        return text;
    secret_free(text);
    return memory_copy_text("");
}

/* "" removes it. is_durable: it is on the disk when it returns 0. */
static int upload_session_write(const char *path, const char *text, bool is_durable, struct error *error)
{
    if (!path)
        return 0;
    if (!*text)
        return unlink(path) == 0 || errno == ENOENT ? 0 : fail_errno(error, errno, "cannot forget an upload that is over");
    bool is_kept =
        file_io_make_folders(path, 0700) == 0 && file_io_replace(AT_FDCWD, path, text, strlen(text), is_durable) == 0;
    return !is_kept ? fail_errno(error, errno, "cannot keep the unfinished upload for --resume in %s", text_show(path)) : 0;
}

/* --- upload files --- */

/* One file alone has twice the parts, so that some are read and summed while others are sent. */
enum { FILES_AT_ONCE = 4, PARTS_AT_ONCE = 8, PARTS_OF_ONE_FILE = 16 };

struct sending { /* what the threads share */
    struct upload_files *upload;
    struct stores *stores;
    pthread_mutex_t lock;
    uint64_t done_bytes;
    bool documents; /* which files it is about: *.json, or the others */
};

struct file_sending { /* one file's */
    struct sending *all;
    struct uploaded_file *file;
    char *session; /* path of what is begun; NULL = there is no home to keep it in, or it is another user's */
};

bool upload_files_is_reference(const char *text)
{
    return strncmp(text, "gs://", 5) == 0 || strncmp(text, "s3://", 5) == 0;
}

/* --- what there is --- */

static int fail_path(const char *path, int error_number, struct error *error)
{
    return fail_errno(error, error_number, "cannot read %s", text_show(path));
}

static int add_file(struct upload_files *upload, const char *path, const char *name, char *reference,
                    const struct stat *found, struct error *error)
{
    if (upload->n_files >= UPLOAD_FILES_MAX || sink_check_reference(reference, error) < 0) {
        free(reference);
        return upload->n_files < UPLOAD_FILES_MAX
                   ? -1
                   : fail(error, ERROR_RESOURCE_EXHAUSTED, "TOO_MANY_FILES", "the folder has more than a million files");
    }
    ARRAY_RESERVE(upload->files, upload->n_files, upload->capacity);
    upload->files[upload->n_files++] = (struct uploaded_file){.name = memory_copy_text(name),
                                                              .path = memory_copy_text(path),
                                                              .reference = reference,
                                                              .bytes = (uint64_t)found->st_size,
                                                              .device = (uint64_t)found->st_dev,
                                                              .inode = (uint64_t)found->st_ino};
    upload->total_bytes += (uint64_t)found->st_size;
    return 0;
}

struct place { /* a folder of the walk, open: another one may have its path at any time */
    int fd;
    const char *path, *reference, *name;
    int depth;
};

static int add_folder(struct upload_files *upload, const struct place *place, struct error *error);

static int add_entry(struct upload_files *upload, const struct place *place, const struct dirent *entry, struct error *error)
{
    char *path = memory_print("%s/%s", place->path, entry->d_name);
    char *name = *place->name ? memory_print("%s/%s", place->name, entry->d_name) : memory_copy_text(entry->d_name);
    char *reference = sink_join(place->reference, entry->d_name);
    struct stat found;
    int status = followed_link_stat(place->fd, entry->d_name, path, &found, error);
    int folder_fd = status == 0 && S_ISDIR(found.st_mode)
                        ? openat(place->fd, entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
                        : -1;
    if (status == 0 && S_ISREG(found.st_mode)) {
        status = add_file(upload, path, name, reference, &found, error);
        reference = NULL;
    } else if (folder_fd >= 0) {
        status = add_folder(upload, &(struct place){folder_fd, path, reference, name, place->depth + 1}, error);
    } else if (status == 0 && S_ISDIR(found.st_mode) && errno != ENOTDIR && errno != ELOOP) {
        status = fail_path(path, errno, error);
    } else if (status == 0) {
        status = fail(error, ERROR_INVALID_ARGUMENT, REASON(NOT_A_REGULAR_FILE),
                      S_ISDIR(found.st_mode) ? "%s is a link to a folder, which is not followed"
                                             : "%s is neither a file nor a folder",
                      text_show(path));
    }
    free(path);
    free(name);
    free(reference);
    return status;
}

/* Closes its descriptor. */
static int add_folder(struct upload_files *upload, const struct place *place, struct error *error)
{
    if (place->depth > UPLOAD_FILES_MAX_DEPTH) {
        close(place->fd);
        return fail(error, ERROR_INVALID_ARGUMENT, "TOO_DEEP", "the folder has more than %d levels", UPLOAD_FILES_MAX_DEPTH);
    }
    DIR *folder = fdopendir(place->fd);
    const struct dirent *entry;
    int status = folder ? 0 : fail_path(place->path, errno, error);
    while (status == 0 && (errno = 0, entry = readdir(folder))) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            status = add_entry(upload, place, entry, error);
    }
    if (status == 0 && errno)
        status = fail_path(place->path, errno, error);
    if (folder)
        closedir(folder);
    return status;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct uploaded_file *)a)->name, ((const struct uploaded_file *)b)->name);
}

int upload_files_find(struct upload_files *upload, const char *path, const char *reference, struct error *error)
{
    char real[PATH_MAX];
    struct stat found;
    size_t length = strlen(reference);
    int at = operand_resolve(path, real, error);
    if (at < 0)
        return -1;
    if (at == 0 || stat(real, &found) < 0)
        return fail_path(path, errno, error);
    if (S_ISREG(found.st_mode)) {
        const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
        bool is_folder = length > 0 && reference[length - 1] == '/';
        return add_file(upload, real, name, is_folder ? sink_join(reference, name) : memory_copy_text(reference), &found,
                        error);
    }
    if (!S_ISDIR(found.st_mode))
        return fail(error, ERROR_INVALID_ARGUMENT, REASON(NOT_A_REGULAR_FILE), "%s is neither a file nor a folder",
                    text_show(path));
    int folder_fd = open(real, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder_fd < 0)
        return fail_path(path, errno, error);
    if (add_folder(upload, &(struct place){folder_fd, real, reference, "", 0}, error) < 0)
        return -1;
    if (upload->n_files == 0)
        return fail(error, ERROR_NOT_FOUND, "EMPTY_FOLDER", "%s has no files", text_show(path));
    qsort(upload->files, upload->n_files, sizeof *upload->files, by_name);
    return 0;
}

void upload_files_fini(struct upload_files *upload)
{
    for (size_t i = 0; i < upload->n_files; i++) {
        free(upload->files[i].name);
        free(upload->files[i].path);
        free(upload->files[i].reference);
    }
    free(upload->files);
    upload->files = NULL;
    upload->n_files = 0;
}

/* --- sending --- */

static int keep_begun(void *data, const char *session, bool is_news, struct error *error)
{
    return upload_session_write(((struct file_sending *)data)->session, session, is_news, error);
}

static void take_progress(void *data, uint64_t done_bytes)
{
    struct file_sending *one = data;
    struct sending *all = one->all;
    pthread_mutex_lock(&all->lock);
    all->done_bytes += done_bytes - one->file->done_bytes; /* a round that begins anew takes away */
    one->file->done_bytes = done_bytes;
    progress_show(&all->upload->backend->progress, "upload", all->done_bytes, all->upload->total_bytes);
    pthread_mutex_unlock(&all->lock);
}

static int put_file(struct file_sending *one, int fd, struct error *error)
{
    const struct upload_files *upload = one->all->upload;
    struct uploaded_file *file = one->file;
    char *begun = upload_session_read(one->session);
    if (*begun && !upload->resume) {
        sink_abort(one->all->stores, file->reference, begun);
        upload_session_write(one->session, "", true, error);
    }
    const struct sink_upload what = {.reference = file->reference,
                                     .fd = fd,
                                     .bytes = file->bytes,
                                     .replaces = upload->force,
                                     .parallel = upload->n_files == 1 ? PARTS_OF_ONE_FILE : PARTS_AT_ONCE,
                                     .session = upload->resume ? begun : NULL,
                                     .keep = one->session ? keep_begun : NULL,
                                     .progress = take_progress,
                                     .data = one,
                                     .cancel = &upload->backend->cancel,
                                     .uid = getuid()};
    int status = sink_put(one->all->stores, &what, &file->result, error);
    secret_free(begun);
    if (status == 0)
        take_progress(one, file->bytes);
    return status;
}

static int open_found(const struct uploaded_file *file, struct error *error)
{
    struct stat status;
    int fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &status) < 0) {
        fail_path(file->path, errno, error);
    } else if ((uint64_t)status.st_dev != file->device || (uint64_t)status.st_ino != file->inode) {
        fail(error, ERROR_FAILED_PRECONDITION, "FILE_REPLACED", "%s was replaced while it was being uploaded; try again",
             text_show(file->path));
    } else {
        return fd;
    }
    if (fd >= 0)
        close(fd);
    return -1;
}

static int send_file(void *data, size_t i, struct error *error)
{
    struct sending *all = data;
    struct file_sending one = {.all = all, .file = &all->upload->files[i]};
    bool is_one_of_these = text_ends_with(one.file->name, strlen(one.file->name), ".json") == all->documents;
    if (!is_one_of_these)
        return 0;
    int fd = open_found(one.file, error);
    if (fd < 0)
        return -1;
    char hex[DIGEST_HEX_CHARS + 1], *folder = state_folder();
    struct digest *digest = digest_create();
    digest_add_text(digest, one.file->path);
    digest_add_text(digest, one.file->reference);
    digest_add_u64(digest, one.file->bytes);
    digest_finish_hex(digest, hex);
    one.session = folder ? memory_print("%s/%s", folder, hex) : NULL;
    free(folder);
    int status = put_file(&one, fd, error);
    free(one.session);
    one.session = NULL;
    close(fd);
    return status < 0 ? error_prefix(error, "%s", text_show(one.file->name)) : 0;
}

int upload_files_send(struct upload_files *upload, struct error *error)
{
    struct sending all = {.upload = upload};
    struct error foreign;
    bool is_foreign = upload_session_check(&foreign) < 0;
    if (is_foreign && upload->resume) {
        *error = foreign;
        return -1;
    }
    if (is_foreign && !upload->backend->args->quiet)
        fprintf(stderr, "tensorcast: %s\n", foreign.message);
    interrupt_defer(NULL);
    if (stores_create(config_defaults(), &upload->backend->cancel, &all.stores, error) < 0)
        return -1;
    all.stores->may_write = true;
    pthread_mutex_init(&all.lock, NULL);
    int status = parallel_run(upload->n_files, FILES_AT_ONCE, send_file, &all, error);
    all.documents = true;
    if (status == 0)
        status = parallel_run(upload->n_files, FILES_AT_ONCE, send_file, &all, error);
    if (status == 0)
        progress_finish(&upload->backend->progress, upload->total_bytes);
    progress_end(&upload->backend->progress);
    stores_destroy(all.stores);
    pthread_mutex_destroy(&all.lock);
    return status < 0 ? backend_fail(upload->backend, error) : 0;
}

/* --- telling --- */

void upload_files_put(const struct upload_files *upload, struct json_writer *json)
{
    uint64_t sent_bytes = 0, resumed_bytes = 0;
    json_put_open(json, "files", '[');
    for (size_t i = 0; i < upload->n_files; i++) {
        char crc[16];
        snprintf(crc, sizeof crc, "%08x", upload->files[i].result.crc32c);
        json_write_open(json, '{');
        json_put_text(json, "name", upload->files[i].name);
        json_put_text(json, "reference", upload->files[i].reference);
        json_put_u64(json, "bytes", upload->files[i].bytes);
        json_put_text(json, "crc32c", crc);
        json_put_text(json, "proof", upload->files[i].result.proof);
        json_put_bool(json, "was_there", upload->files[i].result.was_there);
        json_write_close(json, '}');
        sent_bytes += upload->files[i].result.sent_bytes;
        resumed_bytes += upload->files[i].result.resumed_bytes;
    }
    json_write_close(json, ']');
    json_put_open(json, "bytes", '{');
    json_put_u64(json, "total", upload->total_bytes);
    json_put_u64(json, "sent", sent_bytes);
    json_put_u64(json, "resumed", resumed_bytes);
    json_write_close(json, '}');
}
