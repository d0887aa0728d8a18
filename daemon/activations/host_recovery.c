/* What may be left, by what was done last:
 *
 *     .open, .journal                      samples that are durable: sealed now; the rest is cut off
 *     .open, .journal, .copy               a sealing by copy was under way: the copy goes, as above
 *     .safetensors, .journal[, .open]      renamed, but the manifest may not say so: the file itself tells
 *     .safetensors                         not removed yet though the manifest says it is only in its bucket: it is here again
 *     manifest.json.new                    written anew
 *     .open, or .journal, without a sample nothing was durable yet: it goes; with samples somebody has removed the other: DATA_LOSS
 *
 * A journal is removed when the manifest has its segment, so nothing is ever told by one file alone that another one denies. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "activations/host_private.h"
#include "activations/segment_sum.h"
#include "base/memory.h"
#include "base/metadata.h"
#include "observe/log.h"

enum { MAX_ENTRIES = 4 << 20 };

enum found_file { FOUND_SEALED = 1, FOUND_OPEN = 2, FOUND_JOURNAL = 4, FOUND_COPY = 8 };
static const char *const suffixes[] = {ACTIVATION_SEALED, SEGMENT_OPEN, SEGMENT_JOURNAL, SEGMENT_COPY};

struct found {
    uint32_t number;
    unsigned files; /* enum found_file */
};

struct host_scan {
    struct host_folder *folder;
    struct found *found; /* by number, once listed */
    size_t n_found, capacity;
    bool has_changed; /* the manifest is to be written */
    uint32_t segment; /* of the samples that are taken */
};

/* --- listing ------------------------------------------------------------------------------------------------------------ */

static int compare_found(const void *a, const void *b)
{
    uint32_t first = ((const struct found *)a)->number, second = ((const struct found *)b)->number;
    return first < second ? -1 : first > second;
}

static int note_name(struct host_scan *scan, const char *name, struct error *error)
{
    uint32_t number;
    for (unsigned i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
        if (!activation_parse_segment(name, suffixes[i], &number))
            continue;
        if (METADATA_RESERVE(scan->found, scan->n_found, scan->capacity, error) < 0)
            return -1;
        scan->found[scan->n_found++] = (struct found){number, 1u << i};
    }
    return 0;
}

static void join_names(struct host_scan *scan)
{
    size_t n = 0;
    if (scan->n_found)
        qsort(scan->found, scan->n_found, sizeof *scan->found, compare_found);
    for (size_t i = 0; i < scan->n_found; i++) {
        if (n && scan->found[n - 1].number == scan->found[i].number)
            scan->found[n - 1].files |= scan->found[i].files;
        else
            scan->found[n++] = scan->found[i];
    }
    scan->n_found = n;
}

static int list_folder(struct host_scan *scan, struct error *error)
{
    int fd = openat(scan->folder->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *directory = fd >= 0 ? fdopendir(fd) : NULL;
    if (!directory)
        return fail_errno(error, errno, "cannot list the folder");
    int failed = 0;
    errno = 0;
    for (const struct dirent *entry; !failed && (entry = readdir(directory)) != NULL && scan->n_found < MAX_ENTRIES;
         errno = 0)
        failed = note_name(scan, entry->d_name, error);
    int failure = errno;
    closedir(directory);
    if (failed)
        return -1;
    if (scan->n_found == MAX_ENTRIES)
        return fail(error, ERROR_RESOURCE_EXHAUSTED, "TOO_MANY_SEGMENTS", "the folder has more than %d files", MAX_ENTRIES);
    join_names(scan);
    return failure ? fail_errno(error, failure, "cannot list the folder") : 0;
}

static const struct found *find_files(const struct host_scan *scan, uint32_t number)
{
    const struct found key = {.number = number};
    return scan->n_found ? bsearch(&key, scan->found, scan->n_found, sizeof key, compare_found) : NULL;
}

/* --- what is sealed ----------------------------------------------------------------------------------------------------- */

static int take_sample(void *data, uint32_t sample, struct error *error)
{
    struct host_scan *scan = data;
    char name[ACTIVATION_NAME_CHARS];
    if (sample_set_has(&scan->folder->samples, sample))
        return fail(error, ERROR_DATA_LOSS, "SAMPLE_TWICE", "sample %" PRIu32 " of %s is in a segment before it, too",
                    sample, activation_segment_name(scan->segment, ACTIVATION_SEALED, name));
    return sample_set_add(&scan->folder->samples, sample, error);
}

static int take_listed(void *data, uint32_t segment, uint32_t sample, struct error *error)
{
    ((struct host_scan *)data)->segment = segment;
    return take_sample(data, sample, error);
}

static int check_segment(struct host_scan *scan, const struct manifest_segment *segment, struct error *error)
{
    const struct found *files = find_files(scan, segment->number);
    struct stat status;
    char name[ACTIVATION_NAME_CHARS];
    activation_segment_name(segment->number, ACTIVATION_SEALED, name);
    if (!segment->is_local && (!files || !(files->files & FOUND_SEALED)))
        return 0;
    if (!files || !(files->files & FOUND_SEALED))
        return fail(error, ERROR_DATA_LOSS, "SEGMENT_GONE",
                    "%s is gone; put it back, or remove " ACTIVATION_MANIFEST " as well to go on without its samples", name);
    int fd = store_path_openat(scan->folder->fd, name, O_PATH, 0);
    if (fd < 0)
        return fail_errno(error, errno, "cannot look at %s", name);
    fstat(fd, &status);
    close(fd);
    if (!S_ISREG(status.st_mode) || (uint64_t)status.st_size != segment->file_bytes)
        return fail(error, ERROR_DATA_LOSS, "SEGMENT_CHANGED", "%s has %jd bytes, and %" PRIu64 " when it was sealed", name,
                    (intmax_t)status.st_size, segment->file_bytes);
    scan->folder->sealed_bytes += segment->file_bytes;
    if (segment->is_local)
        return 0;
    /* it was not removed yet, or has been fetched again */
    scan->has_changed = true;
    return host_manifest_move(&scan->folder->manifest, segment->number, true, NULL, error);
}

static int check_segments(struct host_scan *scan, struct error *error)
{
    const struct host_manifest *manifest = &scan->folder->manifest;
    for (size_t i = 0; i < manifest->n_segments; i++)
        if (check_segment(scan, &manifest->segments[i], error) < 0)
            return -1;
    return 0;
}

static int adopt_segment(struct host_scan *scan, uint32_t number, struct error *error)
{
    struct host_folder *folder = scan->folder;
    struct segment_facts facts;
    scan->segment = number;
    char *entry = segment_describe(folder->fd, number, &facts, take_sample, scan, error);
    if (!entry)
        return -1;
    const struct manifest_segment row = {
        .number = number, .is_local = true, .file_bytes = facts.file_bytes, .crc32c = facts.crc32c};
    int failed = host_manifest_add(&folder->manifest, &row, entry, strlen(entry), error);
    free(entry);
    folder->sealed_bytes += facts.file_bytes;
    scan->has_changed = true;
    log_at_of(LOG_INFO, "activations_adopted", LOG_NOBODY, LOG_TEXT("host", folder->name), LOG_U64("segment", number));
    return failed;
}

/* --- what is not -------------------------------------------------------------------------------------------------------- */

static int remove_left(const struct host_scan *scan, uint32_t number, unsigned files, struct error *error)
{
    char name[ACTIVATION_NAME_CHARS];
    for (unsigned i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
        activation_segment_name(number, suffixes[i], name);
        if (files & 1u << i && unlinkat(scan->folder->fd, name, 0) < 0 && errno != ENOENT)
            return fail_errno(error, errno, "cannot remove %s", name);
    }
    return 0;
}

static int seal_left(struct host_scan *scan, uint32_t number, struct error *error)
{
    struct host_folder *folder = scan->folder;
    struct segment_builder *segment;
    struct segment_facts facts;
    if (segment_recover(folder->fd, number, &segment, error) < 0)
        return -1;
    if (!segment)
        return 0;
    const struct segment_contents *contents = segment_contents(segment);
    int failed = 0;
    scan->segment = number;
    for (size_t i = 0; i < contents->n_samples && !failed; i++)
        failed = take_sample(scan, contents->samples[i], error);
    log_at_of(LOG_INFO, "activations_recovered", LOG_NOBODY, LOG_TEXT("host", folder->name), LOG_U64("segment", number),
              LOG_U64("samples", contents->n_samples));
    if (!failed)
        failed = segment_seal(segment, &facts, error);
    if (!failed) {
        const struct manifest_segment row = {
            .number = number, .is_local = true, .file_bytes = facts.file_bytes, .crc32c = facts.crc32c};
        char *entry = contents_entry(contents, &facts, error);
        failed = !entry || host_manifest_add(&folder->manifest, &row, entry, strlen(entry), error) < 0 ? -1 : 0;
        free(entry);
        folder->sealed_bytes += facts.file_bytes;
        scan->has_changed = true;
    }
    segment_close(segment);
    return failed;
}

/* Sealed ones first: what they hold is not sealed again. */
static int settle_sealed(struct host_scan *scan, struct error *error)
{
    for (size_t i = 0; i < scan->n_found; i++) {
        const struct found *at = &scan->found[i];
        if (at->files & FOUND_SEALED && !host_manifest_find(&scan->folder->manifest, at->number) &&
            adopt_segment(scan, at->number, error) < 0)
            return -1;
    }
    return 0;
}

static int settle_segment(struct host_scan *scan, const struct found *at, struct error *error)
{
    int fd = scan->folder->fd;
    switch (at->files & (FOUND_OPEN | FOUND_JOURNAL)) {
    case FOUND_OPEN | FOUND_JOURNAL:
        return seal_left(scan, at->number, error);
    case FOUND_OPEN:
        return segment_check_open_alone(fd, at->number, error);
    case FOUND_JOURNAL:
        return segment_check_journal_alone(fd, at->number, error);
    default:
        return 0;
    }
}

static int settle_left(struct host_scan *scan, struct error *error)
{
    for (size_t i = 0; i < scan->n_found; i++) {
        const struct found *at = &scan->found[i];
        bool is_sealed = at->files & FOUND_SEALED || host_manifest_find(&scan->folder->manifest, at->number);
        if (!is_sealed && settle_segment(scan, at, error) < 0)
            return -1;
    }
    return 0;
}

/* Once the manifest is durable. */
static int clear_left(const struct host_scan *scan, struct error *error)
{
    for (size_t i = 0; i < scan->n_found; i++)
        if (remove_left(scan, scan->found[i].number, scan->found[i].files & ~(unsigned)FOUND_SEALED, error) < 0)
            return -1;
    return 0;
}

static uint32_t highest_number(const struct host_folder *folder, const struct host_scan *scan)
{
    const struct host_manifest *manifest = &folder->manifest;
    uint32_t number = manifest->n_segments ? manifest->segments[manifest->n_segments - 1].number : 0;
    for (size_t i = 0; i < scan->n_found; i++)
        if (scan->found[i].files & FOUND_SEALED && scan->found[i].number > number)
            number = scan->found[i].number;
    return number;
}

static int recover(struct host_scan *scan, struct error *error)
{
    struct host_folder *folder = scan->folder;
    bool is_there;
    if (list_folder(scan, error) < 0 ||
        host_manifest_read(&folder->manifest, folder->host, folder->fd, &is_there, take_listed, scan, error) < 0 ||
        check_segments(scan, error) < 0 || settle_sealed(scan, error) < 0 || settle_left(scan, error) < 0)
        return -1;
    if (scan->has_changed && host_manifest_write(&folder->manifest, folder->fd, error) < 0)
        return -1;
    if (clear_left(scan, error) < 0)
        return -1;
    folder->next_segment = highest_number(folder, scan) + 1;
    folder->n_segments = folder->manifest.n_segments;
    folder->manifest_bytes = folder->manifest.text_bytes;
    return 0;
}

int host_recover(struct host_folder *folder, struct error *error)
{
    struct host_scan scan = {.folder = folder};
    int failed = recover(&scan, error);
    metadata_free(scan.found);
    return failed;
}
