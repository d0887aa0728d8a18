#include "export/export_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/crc.h"
#include "base/file_io.h"
#include "base/memory.h"

enum { DESCRIPTORS_PER_FILE = 2, DESCRIPTORS_BESIDE = 64, DOCUMENT_BUFFER_BYTES = 256 << 10 };

/* --- room --- */

static int check_room(const struct export_files *files, struct error *error)
{
    uint64_t needed = 0;
    struct statvfs disk;
    for (size_t f = 0; f < files->layout->n_files; f++) {
        const struct export_file *file = &files->layout->files[f];
        struct stat status;
        uint64_t has = 0;
        if (!file->is_written)
            continue;
        if (fstatat(files->folder_fd, file->name, &status, AT_SYMLINK_NOFOLLOW) == 0)
            has = (uint64_t)status.st_blocks * 512;
        needed += has < file->file_bytes ? file->file_bytes - has : 0;
    }
    uint64_t available = UINT64_MAX;
    if (fstatvfs(files->folder_fd, &disk) == 0)
        available = (uint64_t)disk.f_bavail * disk.f_frsize;
    if (needed <= available)
        return 0;
    return fail(error, ERROR_RESOURCE_EXHAUSTED, "DISK_TOO_SMALL",
                "%s needs %" PRIu64 " bytes, and the disk has %" PRIu64 " bytes available", files->shown, needed, available);
}

/* --- files --- */

bool export_files_are_there(int folder_fd, const struct export_layout *layout)
{
    for (size_t f = 0; f < layout->n_files; f++) {
        struct stat status;
        if (layout->files[f].is_written &&
            (fstatat(folder_fd, layout->files[f].name, &status, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(status.st_mode) ||
             (uint64_t)status.st_size != layout->files[f].file_bytes))
            return false;
    }
    return true;
}

int export_files_drop_others(int folder_fd, const struct export_layout *layout, struct error *error)
{
    int fd = openat(folder_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), status = 0;
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    if (!folder)
        return fail_errno(error, errno, "cannot list the unfinished export");
    for (struct dirent *entry; status == 0 && (entry = readdir(folder)) != NULL;) {
        bool is_kept = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
        for (size_t f = 0; f < layout->n_files && !is_kept; f++)
            is_kept = layout->files[f].is_written && strcmp(layout->files[f].name, entry->d_name) == 0;
        if (!is_kept && unlinkat(folder_fd, entry->d_name, 0) < 0)
            status = fail_errno(error, errno, "cannot remove %s of the unfinished export", entry->d_name);
    }
    closedir(folder);
    return status;
}

static int fail_output(const struct output_file *file, struct error *error)
{
    return output_file_fail(file, errno, "write", error);
}

/* Blocks at once, so that there will be room for all; not every file system can. */
static int set_size(const struct output_file *file, uint64_t bytes, struct error *error)
{
    int status;
    do
        status = fallocate(file->fd, 0, 0, (off_t)bytes);
    while (status < 0 && errno == EINTR);
    if (status < 0 && errno != EOPNOTSUPP && errno != ENOSYS)
        return fail_output(file, error);
    return ftruncate(file->fd, (off_t)bytes) < 0 ? fail_output(file, error) : 0;
}

static int open_output(struct export_files *files, size_t f, struct error *error)
{
    const struct export_file *file = &files->layout->files[f];
    struct output_file *output = &files->list[f];
    output->fd = openat(files->folder_fd, file->name, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (output->fd < 0 || set_size(output, file->file_bytes, error) < 0)
        return output->fd < 0 ? fail_output(output, error) : -1;
    output->direct_fd = openat(files->folder_fd, file->name, O_WRONLY | O_DIRECT | O_NOFOLLOW | O_CLOEXEC);
    char *head = export_layout_head(files->layout, (uint32_t)f);
    int status = output_file_write(output, 0, head, file->head_bytes, error);
    free(head);
    return status;
}

struct document_stream {
    struct output_file output;
    char *buffer;
    uint64_t offset, n_buffered;
};

static int flush_document(struct document_stream *stream, struct error *error)
{
    int status = output_file_write(&stream->output, stream->offset, stream->buffer, stream->n_buffered, error);
    stream->offset += stream->n_buffered;
    stream->n_buffered = 0;
    return status;
}

static int put_document_text(void *data, const char *text, size_t length, struct error *error)
{
    struct document_stream *stream = data;
    while (length) {
        size_t room = DOCUMENT_BUFFER_BYTES - stream->n_buffered, take = room < length ? room : length;
        memcpy(stream->buffer + stream->n_buffered, text, take);
        stream->n_buffered += take;
        text += take;
        length -= take;
        if (stream->n_buffered == DOCUMENT_BUFFER_BYTES && flush_document(stream, error) < 0)
            return -1;
    }
    return 0;
}

static int write_document(struct export_files *files, struct error *error)
{
    const char *name = files->layout->document_name;
    struct document_stream stream = {.output = {.path = name, .direct_fd = -1}};
    const struct export_sink sink = {put_document_text, &stream};
    stream.output.fd = openat(files->folder_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (stream.output.fd < 0)
        return fail_output(&stream.output, error);
    stream.buffer = memory_alloc(DOCUMENT_BUFFER_BYTES);
    int status = export_layout_write_document(files->layout, &sink, error);
    if (status == 0)
        status = flush_document(&stream, error);
    if (status == 0 && fsync(stream.output.fd) < 0)
        status = fail_output(&stream.output, error);
    close(stream.output.fd);
    free(stream.buffer);
    files->document_bytes = stream.offset;
    return status;
}

int export_files_open(struct export_files *files, int folder_fd, const char *shown, const struct export_layout *layout,
                      struct error *error)
{
    *files = (struct export_files){.layout = layout, .folder_fd = folder_fd, .shown = shown, .edges = output_edges_create()};
    files->list = memory_alloc_array(layout->n_files + 1, sizeof *files->list);
    files->paths = memory_alloc_array(layout->n_files + 1, sizeof *files->paths);
    for (size_t f = 0; f < layout->n_files; f++) {
        files->paths[f] = memory_print("%s/%s", shown, layout->files[f].name);
        files->list[f] = (struct output_file){.path = files->paths[f], .fd = -1, .direct_fd = -1, .edges = files->edges};
    }
    struct rlimit limit;
    rlim_t wanted = DESCRIPTORS_PER_FILE * layout->n_files + DESCRIPTORS_BESIDE;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < wanted + DESCRIPTORS_BESIDE) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    if (check_room(files, error) < 0)
        return -1;
    for (size_t f = 0; f < layout->n_files; f++)
        if (layout->files[f].is_written && open_output(files, f, error) < 0)
            return -1;
    return layout->document_name ? write_document(files, error) : 0;
}

int export_files_sync(const struct export_files *files, struct error *error)
{
    if (output_edges_write(files->edges, error) < 0)
        return -1;
    for (size_t f = 0; f < files->layout->n_files; f++) {
        const struct output_file *output = &files->list[f];
        if (output->fd < 0)
            continue;
        if (fdatasync(output->fd) < 0)
            return fail_output(output, error);
        posix_fadvise(output->fd, 0, 0, POSIX_FADV_DONTNEED); /* what went through the page cache leaves it */
    }
    return 0;
}

void export_files_close(struct export_files *files)
{
    output_edges_destroy(files->edges);
    for (size_t f = 0; files->list && f < files->layout->n_files; f++) {
        if (files->list[f].fd >= 0)
            close(files->list[f].fd);
        if (files->list[f].direct_fd >= 0)
            close(files->list[f].direct_fd);
        free(files->paths[f]);
    }
    free(files->list);
    free(files->paths);
    *files = (struct export_files){0};
}

/* --- the journal --- */

enum { HEAD_BYTES = DIGEST_HEX_CHARS + 1 }; /* the fingerprint and a line feed */

static int fail_journal(struct error *error)
{
    int cause = errno;
    return fail_errno(error, cause, "cannot write the journal of the export");
}

static uint32_t record_check(const struct export_journal *journal, const struct journal_record *record)
{
    return crc32c_update(journal->seed, record, offsetof(struct journal_record, check));
}

static int write_journal(int fd, const void *bytes, size_t count, struct error *error)
{
    return file_io_write(fd, bytes, count) < 0 || fdatasync(fd) < 0 ? fail_journal(error) : 0;
}

static void mark_done(struct export_journal *journal, const struct journal_record *record)
{
    journal->n_done += !journal->is_done[record->unit];
    journal->is_done[record->unit] = true;
    journal->sums[record->unit] = record->sum;
}

/* Up to the first record that is not sound; what follows it is cut off. */
static int read_records(struct export_journal *journal, struct error *error)
{
    struct journal_record record;
    off_t at = HEAD_BYTES;
    while (pread(journal->fd, &record, sizeof record, at) == (ssize_t)sizeof record) {
        if (record.unit >= journal->n_units || record.check != record_check(journal, &record))
            break;
        mark_done(journal, &record);
        at += (off_t)sizeof record;
    }
    return ftruncate(journal->fd, at) < 0 || lseek(journal->fd, at, SEEK_SET) < 0 ? fail_journal(error) : 0;
}

int export_journal_restart(struct export_journal *journal, struct error *error)
{
    char head[HEAD_BYTES];
    memcpy(head, journal->fingerprint, HEAD_BYTES - 1);
    head[HEAD_BYTES - 1] = '\n';
    journal->n_done = 0;
    memset(journal->is_done, 0, journal->n_units * sizeof *journal->is_done);
    if (ftruncate(journal->fd, 0) < 0 || lseek(journal->fd, 0, SEEK_SET) < 0)
        return fail_journal(error);
    return write_journal(journal->fd, head, HEAD_BYTES, error);
}

int export_journal_open(struct export_journal *journal, int fd, const char fingerprint[DIGEST_HEX_CHARS + 1],
                        uint32_t n_units, bool resume, struct error *error)
{
    *journal = (struct export_journal){.fd = fd,
                                       .n_units = n_units,
                                       .seed = crc32c_update(0, fingerprint, DIGEST_HEX_CHARS),
                                       .is_done = memory_alloc_array(n_units + 1, sizeof *journal->is_done),
                                       .sums = memory_alloc_array(n_units + 1, sizeof *journal->sums)};
    memcpy(journal->fingerprint, fingerprint, DIGEST_HEX_CHARS);
    char head[HEAD_BYTES];
    bool is_same = pread(fd, head, sizeof head, 0) == (ssize_t)sizeof head && head[HEAD_BYTES - 1] == '\n' &&
                   memcmp(head, fingerprint, HEAD_BYTES - 1) == 0;
    if (resume && is_same)
        return read_records(journal, error);
    return export_journal_restart(journal, error);
}

int export_journal_add(struct export_journal *journal, const struct journal_record *records, size_t n, struct error *error)
{
    if (n == 0)
        return 0;
    struct journal_record *sealed = memory_copy(records, n * sizeof *sealed);
    for (size_t i = 0; i < n; i++)
        sealed[i].check = record_check(journal, &sealed[i]);
    int status = write_journal(journal->fd, sealed, n * sizeof *sealed, error);
    free(sealed);
    for (size_t i = 0; status == 0 && i < n; i++)
        mark_done(journal, &records[i]);
    return status;
}

void export_journal_close(struct export_journal *journal)
{
    free(journal->is_done);
    free(journal->sums);
    *journal = (struct export_journal){0};
}
