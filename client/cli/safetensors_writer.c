/* header -> target (where the bytes go, and how they become the file) -> sink (batched writes). */
#include "safetensors_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/json.h"
#include "base/memory.h"
#include "base/text.h"
#include "resolve/safetensors.h"

/* --- header --- */

enum { LENGTH_BYTES = 8, DATA_ALIGN = 8 };

static void write_entry(struct json_writer *json, const struct loaded_tensor *tensor, uint64_t offset)
{
    json_write_key_bytes(json, tensor->name, tensor->name_length);
    json_write_open(json, '{');
    json_put_text(json, "dtype", tensor->dtype);
    json_put_open(json, "shape", '[');
    for (size_t d = 0; d < tensor->rank; d++)
        json_write_u64(json, tensor->shape[d]);
    json_write_close(json, ']');
    json_put_open(json, "data_offsets", '[');
    json_write_u64(json, offset);
    json_write_u64(json, offset + tensor->bytes);
    json_write_close(json, ']');
    json_write_close(json, '}');
}

char *safetensors_writer_header(const struct loaded_tensor *tensors, size_t n_tensors, size_t *length, struct error *error)
{
    struct json_writer json = {0};
    uint64_t offset = 0;
    json_write_open(&json, '{');
    json_write_key(&json, "__metadata__"); /* transformers refuses files that do not name a framework */
    json_write_open(&json, '{');
    json_put_text(&json, "format", "pt");
    json_write_close(&json, '}');
    for (size_t i = 0; i < n_tensors; i++) {
        write_entry(&json, &tensors[i], offset);
        offset += tensors[i].bytes;
    }
    json_write_close(&json, '}');
    size_t padded = (json.length + DATA_ALIGN - 1) / DATA_ALIGN * DATA_ALIGN;
    if (padded > SAFETENSORS_MAX_HEADER_BYTES) {
        free(json.text);
        fail(
            error, ERROR_INVALID_ARGUMENT, "HEADER_TOO_LARGE",
            "the header of %zu tensors takes %zu bytes, and a safetensors file may have %d; write fewer tensors to one file",
            n_tensors, padded, SAFETENSORS_MAX_HEADER_BYTES);
        return NULL;
    }
    char *header = memory_alloc(LENGTH_BYTES + padded);
    for (int i = 0; i < LENGTH_BYTES; i++)
        header[i] = (char)((uint64_t)padded >> 8 * i);
    memcpy(header + LENGTH_BYTES, json.text, json.length);
    memset(header + LENGTH_BYTES + json.length, ' ', padded - json.length);
    free(json.text);
    *length = LENGTH_BYTES + padded;
    return header;
}

/* --- target --- */

struct target {
    const char *shown;   /* the path as the user wrote it, escaped */
    char path[PATH_MAX]; /* what is replaced: the end of all symbolic links */
    char folder[PATH_MAX];
    char temporary[PATH_MAX]; /* "" while the file has no name */
    bool in_place;            /* a device or a pipe */
    mode_t mode;
    int fd;
};

/* The last component's folder is the longest prefix that ends in '/'. */
static void split_folder(struct target *target)
{
    const char *slash = strrchr(target->path, '/');
    if (slash)
        snprintf(target->folder, sizeof target->folder, "%.*s", (int)(slash - target->path + 1), target->path);
    else
        strcpy(target->folder, ".");
}

static mode_t new_file_mode(void)
{
    mode_t mask = umask(0);
    umask(mask);
    return 0666 & ~mask;
}

/* Finds out what is at the path, without changing it. */
static int examine(struct target *target, const char *path, struct error *error)
{
    struct stat found;
    target->fd = -1;
    target->temporary[0] = '\0';
    if (stat(path, &found) == 0) {
        target->in_place = !S_ISREG(found.st_mode);
        target->mode = found.st_mode & 07777;
        if (S_ISDIR(found.st_mode))
            return fail_errno(error, EISDIR, "cannot write %s", target->shown);
        if (target->in_place && strlen(path) < sizeof target->path)
            strcpy(target->path, path); /* what /dev/stdout leads to has no path of its own */
        else if (!realpath(path, target->path))
            return fail_errno(error, errno, "cannot write %s", target->shown);
    } else {
        target->in_place = false;
        target->mode = new_file_mode();
        if (errno != ENOENT || strlen(path) >= sizeof target->path)
            return fail_errno(error, errno == ENOENT ? ENAMETOOLONG : errno, "cannot write %s", target->shown);
        strcpy(target->path, path);
    }
    split_folder(target);
    if (!target->in_place && access(target->folder, W_OK | X_OK) < 0)
        return fail_errno(error, errno, "cannot write %s into its folder", target->shown);
    return 0;
}

/* A hidden name beside the path, unused so far. */
static int open_hidden(struct target *target)
{
    int length = snprintf(target->temporary, sizeof target->temporary, "%s/.tensorcast-XXXXXX", target->folder);
    if (length >= (int)sizeof target->temporary) {
        target->temporary[0] = '\0';
        errno = ENAMETOOLONG;
        return -1;
    }
    int fd = mkostemp(target->temporary, O_CLOEXEC);
    if (fd < 0)
        target->temporary[0] = '\0';
    return fd;
}

static int open_target(struct target *target, struct error *error)
{
    if (target->in_place) {
        target->fd = open(target->path, O_WRONLY | O_CLOEXEC);
    } else {
        target->fd = open(target->folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
        if (target->fd < 0) /* NFS, FUSE and old overlay file systems have no unnamed files */
            target->fd = open_hidden(target);
    }
    return target->fd < 0 ? fail_errno(error, errno, "cannot write %s", target->shown) : 0;
}

/* rename() needs a name, so an unnamed file gets a hidden one for that moment. */
static int give_name(struct target *target)
{
    char unnamed[64];
    snprintf(unnamed, sizeof unnamed, "/proc/self/fd/%d", target->fd);
    for (unsigned attempt = 0; attempt < 1000; attempt++) {
        int length = snprintf(target->temporary, sizeof target->temporary, "%s/.tensorcast-%d-%u", target->folder,
                              (int)getpid(), attempt);
        if (length >= (int)sizeof target->temporary)
            errno = ENAMETOOLONG;
        else if (linkat(AT_FDCWD, unnamed, AT_FDCWD, target->temporary, AT_SYMLINK_FOLLOW) == 0)
            return 0;
        if (errno != EEXIST)
            break;
    }
    target->temporary[0] = '\0';
    return -1;
}

/* Everything is written: puts it where it belongs. The data reaches the disk before the name does. */
static int commit(struct target *target, struct error *error)
{
    bool done = target->in_place ||
                (fchmod(target->fd, target->mode) == 0 && fsync(target->fd) == 0 &&
                 (target->temporary[0] || give_name(target) == 0) && rename(target->temporary, target->path) == 0);
    if (!done)
        return fail_errno(error, errno, "cannot write %s", target->shown);
    target->temporary[0] = '\0';
    return 0;
}

/* --- sink --- */

enum { SINK_PIECES = 256, SINK_BATCH_BYTES = 16 << 20 };

struct sink {
    const struct target *target;
    bool (*stopped)(void);
    struct iovec pieces[SINK_PIECES];
    int n_pieces;
    size_t batch_bytes;
};

/* Drops the first `count` bytes of what is to be written. */
static void advance(struct iovec **piece, int *n_pieces, size_t count)
{
    while (*n_pieces && count >= (*piece)->iov_len) {
        count -= (*piece)->iov_len;
        (*piece)++;
        (*n_pieces)--;
    }
    if (*n_pieces) {
        (*piece)->iov_base = (char *)(*piece)->iov_base + count;
        (*piece)->iov_len -= count;
    }
}

static int flush(struct sink *sink, struct error *error)
{
    struct iovec *piece = sink->pieces;
    while (sink->n_pieces) {
        if (sink->stopped && sink->stopped())
            return fail(error, ERROR_CANCELLED, "INTERRUPTED", "writing %s was interrupted", sink->target->shown);
        ssize_t written = writev(sink->target->fd, piece, sink->n_pieces);
        if (written < 0 && errno != EINTR)
            return fail_errno(error, errno, "cannot write %s", sink->target->shown);
        if (written > 0)
            advance(&piece, &sink->n_pieces, (size_t)written);
    }
    sink->batch_bytes = 0;
    return 0;
}

static int put(struct sink *sink, const void *data, uint64_t bytes, struct error *error)
{
    const char *at = data;
    while (bytes) {
        size_t room = SINK_BATCH_BYTES - sink->batch_bytes;
        size_t taken = bytes < room ? (size_t)bytes : room;
        sink->pieces[sink->n_pieces++] = (struct iovec){(void *)at, taken};
        sink->batch_bytes += taken;
        at += taken;
        bytes -= taken;
        if ((sink->n_pieces == SINK_PIECES || sink->batch_bytes == SINK_BATCH_BYTES) && flush(sink, error) < 0)
            return -1;
    }
    return 0;
}

static int write_all(const struct target *target, const struct loaded_tensor *tensors, size_t n_tensors,
                     bool (*stopped)(void), struct error *error)
{
    struct sink sink = {.target = target, .stopped = stopped};
    size_t length;
    char *header = safetensors_writer_header(tensors, n_tensors, &length, error);
    int status = header ? put(&sink, header, length, error) : -1;
    for (size_t i = 0; status == 0 && i < n_tensors; i++)
        status = put(&sink, tensors[i].data, tensors[i].bytes, error);
    if (status == 0)
        status = flush(&sink, error);
    free(header);
    return status;
}

/* --- the two calls --- */

int safetensors_writer_check(const char *path, struct error *error)
{
    char shown[TEXT_NAME_CHARS];
    struct target target = {.shown = text_escape(path, strlen(path), shown)};
    return examine(&target, path, error);
}

int safetensors_writer_write(const char *path, const struct loaded_tensor *tensors, size_t n_tensors, bool (*stopped)(void),
                             struct error *error)
{
    char shown[TEXT_NAME_CHARS];
    struct target target = {.shown = text_escape(path, strlen(path), shown)};
    if (examine(&target, path, error) < 0 || open_target(&target, error) < 0)
        return -1;
    int status = write_all(&target, tensors, n_tensors, stopped, error);
    if (status == 0)
        status = commit(&target, error);
    close(target.fd);
    if (target.temporary[0])
        unlink(target.temporary);
    return status;
}
