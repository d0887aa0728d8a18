#include "activations/host_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "activations/host_private.h"
#include "base/memory.h"

enum {
    FOLDER_BYTES = 16 << 10, /* of folder and journal, for the accounts */
    SPARE_BYTES = 64 << 10,
};

/* Of a file that the daemon's user alone can open: another user who may read the folder could lock that, and keep its owner out. The
 * lock goes with the descriptor, however its holder ends. On a file system without locks the table of this process has to do. */
static int lock_folder(struct host_folder *folder, struct error *error)
{
    folder->lock_fd = store_path_openat(folder->fd, ".writer", O_RDWR | O_CREAT, 0600);
    if (folder->lock_fd < 0)
        return fail_errno(error, errno, "cannot open %s/.writer of the store%s", folder->name,
                          errno == EACCES ? ", which a daemon of root may have made: chown -R the store to this one's user"
                                          : "");
    if (flock(folder->lock_fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK)
        return fail(error, ERROR_FAILED_PRECONDITION, REASON(WRITER_EXISTS),
                    "host %" PRIu32 " of the store has a writer already", folder->host);
    return 0;
}

int host_folder_open(const struct host_folder_options *options, struct host_folder **opened, struct error *error)
{
    struct host_folder *folder = memory_alloc(sizeof *folder);
    folder->fd = folder->lock_fd = -1;
    pthread_mutex_init(&folder->manifest_lock, NULL);
    folder->host = options->host;
    folder->segment_bytes = options->segment_bytes;
    activation_host_name(options->host, folder->name);
    folder->fd = store_path_open_host(&options->roots, options->path, options->host, !options->must_exist, error);
    if (folder->fd < 0 || lock_folder(folder, error) < 0) {
        host_folder_close(folder);
        return -1;
    }
    if (host_recover(folder, error) < 0) {
        error_prefix(error, "%s", folder->name);
        host_folder_close(folder);
        return -1;
    }
    *opened = folder;
    return 0;
}

void host_folder_close(struct host_folder *folder)
{
    if (!folder)
        return;
    segment_close(folder->open);
    segment_close(folder->full);
    host_manifest_fini(&folder->manifest);
    sample_set_fini(&folder->samples);
    if (folder->lock_fd >= 0)
        close(folder->lock_fd);
    if (folder->fd >= 0)
        close(folder->fd);
    pthread_mutex_destroy(&folder->manifest_lock);
    free(folder);
}

struct host_resume host_folder_resume(const struct host_folder *folder)
{
    return (struct host_resume){
        .has_samples = folder->samples.n_samples > 0,
        .last_sample = folder->samples.highest,
        .next_segment = folder->open ? segment_number(folder->open) : folder->next_segment,
        .n_samples = folder->samples.n_samples,
        .n_segments = folder->n_segments,
        .bytes = folder->sealed_bytes,
    };
}

bool host_folder_is_all_open(const struct host_folder *folder)
{
    return folder->open && segment_contents(folder->open)->n_samples > 0 && folder->sealed_bytes == 0;
}

uint64_t host_folder_disk_bytes(const struct host_folder *folder)
{
    return FOLDER_BYTES + folder->sealed_bytes + 2 * folder->manifest_bytes + folder->unsealed_bytes;
}

void host_folder_measure(const struct store_roots *roots, const char *path, uint32_t host, uint64_t *bytes)
{
    struct error error = {0};
    struct stat status;
    int fd = store_path_open_host(roots, path, host, false, &error);
    DIR *directory = fd >= 0 ? fdopendir(fd) : NULL;
    if (directory || error.code == ERROR_NOT_FOUND)
        *bytes = directory ? FOLDER_BYTES : 0;
    for (const struct dirent *entry; directory && (entry = readdir(directory)) != NULL;)
        if (fstatat(fd, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(status.st_mode))
            *bytes += (uint64_t)status.st_size;
    if (directory)
        closedir(directory);
    else if (fd >= 0)
        close(fd);
}

static void count_open(struct host_folder *folder)
{
    uint64_t now = folder->open ? segment_disk_bytes(folder->open) : 0;
    folder->unsealed_bytes += now - folder->open_bytes;
    folder->open_bytes = now;
}

/* --- appending ---------------------------------------------------------------------------------------------------------- */

/* The open segment becomes full; it is durable then, so that a commit need not wait for it to be sealed. */
static int roll_over(struct host_folder *folder, struct error *error)
{
    if (segment_sync(folder->open, error) < 0)
        return -1;
    folder->full = folder->open;
    folder->open = NULL;
    folder->open_bytes = 0; /* still counted, until it is sealed */
    return 0;
}

static int begin_segment(struct host_folder *folder, const struct sample *sample, uint64_t most_bytes, struct error *error)
{
    if (folder->next_segment > ACTIVATION_MAX_SEGMENT)
        return fail(error, ERROR_RESOURCE_EXHAUSTED, "TOO_MANY_SEGMENTS", "%s has %d segments; make larger ones",
                    folder->name, ACTIVATION_MAX_SEGMENT);
    if (folder->manifest_bytes > HOST_MANIFEST_FULL_BYTES)
        return host_manifest_fail_full(error);
    uint64_t segment_bytes = folder->segment_bytes < most_bytes ? folder->segment_bytes : most_bytes;
    if (segment_create(folder->fd, folder->next_segment, segment_bytes, sample, &folder->open, error) < 0)
        return -1;
    folder->next_segment++;
    return 0;
}

/* A disk that is filled to its last byte would keep segments from being sealed: so much is left for that. Takes from *most_bytes what
 * there is not. */
static int check_disk(const struct host_folder *folder, const struct sample *sample, uint64_t *most_bytes,
                      struct error *error)
{
    struct statvfs disk;
    if (fstatvfs(folder->fd, &disk) < 0)
        return fail_errno(error, errno, "cannot look at the disk");
    uint64_t available = (uint64_t)disk.f_bavail * disk.f_frsize, kept = SPARE_BYTES + 2 * folder->manifest_bytes;
    uint64_t needed = 2 * segment_cost(sample) - sample->bytes + kept;
    if (available >= needed) {
        *most_bytes = available - needed < *most_bytes ? available - needed : *most_bytes;
        return 0;
    }
    return fail(error, ERROR_RESOURCE_EXHAUSTED, REASON(NO_SPACE),
                "sample %" PRIu32 " has no room: it takes %" PRIu64
                " bytes with what sealing needs, and the disk has %" PRIu64 " available; what was appended before is kept",
                sample->id, needed, available);
}

int host_folder_begin(struct host_folder *folder, const struct sample *sample, uint64_t most_bytes, struct error *error)
{
    if (folder->open)
        segment_drop(folder->open); /* one that did not come to its end */
    if (sample_set_has(&folder->samples, sample->id))
        return fail(error, ERROR_INVALID_ARGUMENT, "SAMPLE_TWICE", "%s has sample %" PRIu32 " already", folder->name,
                    sample->id);
    if (folder->open && segment_contents(folder->open)->n_samples) {
        const struct segment_contents *contents = segment_contents(folder->open);
        uint64_t head = contents_head_bytes(contents) + contents_head_bytes_of(sample);
        bool has_room = head + contents->data_bytes + sample->bytes <= folder->segment_bytes;
        if ((!has_room || head > CONTENTS_MAX_HEAD_BYTES) && roll_over(folder, error) < 0)
            return -1;
    }
    if (check_disk(folder, sample, &most_bytes, error) < 0 ||
        (!folder->open && begin_segment(folder, sample, most_bytes, error) < 0) ||
        segment_reserve(folder->open, sample->bytes, error) < 0)
        return -1;
    count_open(folder);
    return 0;
}

bool host_folder_is_reserved(const struct host_folder *folder)
{
    return segment_is_reserved(folder->open);
}

uint32_t host_folder_block_offset(const struct host_folder *folder, uint64_t offset)
{
    return (uint32_t)((segment_data_end(folder->open) + offset) % SEGMENT_BLOCK_BYTES);
}

int host_folder_write(struct host_folder *folder, const void *bytes, uint64_t count, struct error *error)
{
    if (segment_write(folder->open, bytes, count, error) == 0)
        return 0;
    host_folder_drop(folder);
    return -1;
}

int host_folder_end(struct host_folder *folder, const struct sample *sample, struct error *error)
{
    if (sample_set_add(&folder->samples, sample->id, error) < 0) {
        host_folder_drop(folder);
        return -1;
    }
    if (segment_add(folder->open, sample, error) < 0) {
        sample_set_remove(&folder->samples, sample->id);
        host_folder_drop(folder);
        return -1;
    }
    count_open(folder);
    return 0;
}

void host_folder_drop(struct host_folder *folder)
{
    if (folder->open)
        segment_drop(folder->open);
    count_open(folder);
}

int host_folder_commit(struct host_folder *folder, struct error *error)
{
    int failed = folder->open ? segment_sync(folder->open, error) : 0;
    count_open(folder);
    return failed;
}

int host_folder_finish(struct host_folder *folder, struct error *error)
{
    if (!folder->open)
        return 0;
    segment_drop(folder->open);
    if (segment_contents(folder->open)->n_samples)
        return roll_over(folder, error);
    /* an empty one leaves no trace */
    segment_remove_journal(folder->open, error);
    segment_close(folder->open);
    folder->open = NULL;
    folder->next_segment--;
    count_open(folder);
    return 0;
}

/* --- sealing ------------------------------------------------------------------------------------------------------------ */

struct segment_builder *host_folder_take_full(struct host_folder *folder)
{
    struct segment_builder *full = folder->full;
    folder->full = NULL;
    return full;
}

int host_list_segment(struct host_folder *folder, const struct segment_facts *facts, char *entry, struct error *error)
{
    const struct manifest_segment row = {
        .number = facts->number, .is_local = true, .file_bytes = facts->file_bytes, .crc32c = facts->crc32c};
    int failed = !entry || host_manifest_add(&folder->manifest, &row, entry, strlen(entry), error) < 0 ? -1 : 0;
    free(entry);
    if (!failed)
        folder->sealed_bytes += facts->file_bytes;
    return failed;
}

static int write_manifest(struct host_folder *folder, struct error *error)
{
    folder->manifest_bytes = folder->manifest.text_bytes;
    return host_manifest_write(&folder->manifest, folder->fd, error);
}

/* After a failure it may be listed already. The bytes that were counted for it are found again by asking it the same. */
int host_folder_seal(struct host_folder *folder, struct segment_builder *segment, struct error *error)
{
    struct segment_facts facts;
    int failed = 0;
    uint64_t counted = segment_disk_bytes(segment);
    if (segment_seal(segment, &facts, error) < 0)
        return -1;
    pthread_mutex_lock(&folder->manifest_lock);
    if (!host_manifest_find(&folder->manifest, facts.number))
        failed = host_list_segment(folder, &facts, contents_entry(segment_contents(segment), &facts, error), error);
    if (!failed)
        failed = write_manifest(folder, error);
    pthread_mutex_unlock(&folder->manifest_lock);
    if (failed || segment_remove_journal(segment, error) < 0)
        return -1;
    folder->n_segments++;
    folder->unsealed_bytes -= counted;
    segment_close(segment);
    return 0;
}

/* --- where sealed segments lie ------------------------------------------------------------------------------------------ */

static struct sealed_segment describe_sealed(const struct manifest_segment *segment)
{
    return (struct sealed_segment){.number = segment->number,
                                   .crc32c = segment->crc32c,
                                   .file_bytes = segment->file_bytes,
                                   .is_local = segment->is_local,
                                   .uploaded = segment->uploaded};
}

bool host_folder_find(struct host_folder *folder, uint32_t number, struct sealed_segment *segment)
{
    pthread_mutex_lock(&folder->manifest_lock);
    const struct manifest_segment *found = host_manifest_find(&folder->manifest, number);
    if (found)
        *segment = describe_sealed(found);
    segment->uploaded = NULL;
    pthread_mutex_unlock(&folder->manifest_lock);
    return found;
}

int host_folder_each(struct host_folder *folder,
                     int (*take)(void *data, const struct sealed_segment *segment, struct error *error), void *data,
                     struct error *error)
{
    int status = 0;
    pthread_mutex_lock(&folder->manifest_lock);
    for (size_t i = 0; i < folder->manifest.n_segments && status == 0; i++) {
        const struct sealed_segment segment = describe_sealed(&folder->manifest.segments[i]);
        status = take(data, &segment, error);
    }
    pthread_mutex_unlock(&folder->manifest_lock);
    return status;
}

int host_folder_uploaded(struct host_folder *folder, uint32_t number, const char *reference, struct error *error)
{
    int failed = 0;
    pthread_mutex_lock(&folder->manifest_lock);
    const struct manifest_segment *found = host_manifest_find(&folder->manifest, number);
    if (found && (!found->uploaded || strcmp(found->uploaded, reference) != 0))
        failed = host_manifest_move(&folder->manifest, number, found->is_local, reference, error) < 0 ||
                 write_manifest(folder, error) < 0;
    pthread_mutex_unlock(&folder->manifest_lock);
    return failed ? -1 : 0;
}

int host_folder_forget_uploads(struct host_folder *folder, struct error *error)
{
    size_t n = 0;
    pthread_mutex_lock(&folder->manifest_lock);
    for (size_t i = 0; i < folder->manifest.n_segments; i++)
        if (folder->manifest.segments[i].is_local)
            n += host_manifest_forget_upload(&folder->manifest, i);
    int failed = n ? write_manifest(folder, error) : 0;
    pthread_mutex_unlock(&folder->manifest_lock);
    return failed;
}

/* The manifest denies the files before they go: a crash between the two leaves files that the next opening lists again. */
int host_folder_drop_local(struct host_folder *folder, const uint32_t *numbers, size_t n, struct error *error)
{
    size_t n_dropped = 0;
    uint32_t *dropped = memory_alloc_array(n + 1, sizeof *dropped);
    pthread_mutex_lock(&folder->manifest_lock);
    for (size_t i = 0; i < n; i++) {
        const struct manifest_segment *found = host_manifest_find(&folder->manifest, numbers[i]);
        if (found && found->is_local && found->uploaded &&
            host_manifest_move(&folder->manifest, numbers[i], false, NULL, error) == 0)
            dropped[n_dropped++] = numbers[i];
    }
    int failed = n_dropped ? write_manifest(folder, error) : 0;
    for (size_t i = 0; i < n_dropped && !failed; i++) {
        char name[ACTIVATION_NAME_CHARS];
        activation_segment_name(dropped[i], ACTIVATION_SEALED, name);
        if (unlinkat(folder->fd, name, 0) == 0)
            folder->sealed_bytes -= host_manifest_find(&folder->manifest, dropped[i])->file_bytes;
        else if (errno != ENOENT)
            failed = fail_errno(error, errno, "cannot remove %s", name);
    }
    pthread_mutex_unlock(&folder->manifest_lock);
    free(dropped);
    return failed;
}
