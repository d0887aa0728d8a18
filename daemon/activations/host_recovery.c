/* What may be left, by what was done last:
 *
 *     .open, .journal                      samples that are durable: sealed now; the rest is cut off
 *     .open, .journal, .copy               a sealing by copy was under way: the copy goes, as above
 *     .safetensors, .journal[, .open]      renamed, but the manifest may not say so: the file itself tells
 *     .safetensors                         not removed yet though the manifest says it is only in its bucket: it is here again
 *     manifest.json.new                    written anew
 *     .open, or .journal, without a sample nothing was durable yet: it goes; with samples another process has removed
 *                                          the other: DATA_LOSS
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
enum { N_SUFFIXES = 4 };
static const char *const suffixes[N_SUFFIXES] = {ACTIVATION_SEALED, SEGMENT_OPEN, SEGMENT_JOURNAL, SEGMENT_COPY};

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
    for (unsigned i = 0; i < N_SUFFIXES; i++) {
        if (!activation_parse_segment(name, suffixes[i], &number))
            continue;
        if (METADATA_RESERVE(scan->found, scan->n_found, scan->capacity, error) < 0)
            return -1;
        scan->found[scan->n_found++] = (struct found){number, 1u << i};
    }
    return 0;
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
    size_t n = 0; /* files of one number become one */
    if (scan->n_found)
        qsort(scan->found, scan->n_found, sizeof *scan->found, compare_found);
    for (size_t i = 0; i < scan->n_found; i++) {
        if (n && scan->found[n - 1].number == scan->found[i].number)
            scan->found[n - 1].files |= scan->found[i].files;
        else
            scan->found[n++] = scan->found[i];
    }
    scan->n_found = n;
    return failure ? fail_errno(error, failure, "cannot list the folder") : 0;
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
    const struct found key = {.number = segment->number}, *files = NULL;
    struct stat status;
    char name[ACTIVATION_NAME_CHARS];
    activation_segment_name(segment->number, ACTIVATION_SEALED, name);
    if (scan->n_found)
        files = bsearch(&key, scan->found, scan->n_found, sizeof key, compare_found);
    if (!files || !(files->files & FOUND_SEALED))
        return !segment->is_local
                   ? 0
                   : fail(error, ERROR_DATA_LOSS, "SEGMENT_GONE",
                          "%s is gone; put it back, or remove " ACTIVATION_MANIFEST " as well to go on without its samples",
                          name);
    if (fstatat(scan->folder->fd, name, &status, AT_SYMLINK_NOFOLLOW) < 0)
        return fail_errno(error, errno, "cannot look at %s", name);
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

static int adopt_segment(struct host_scan *scan, uint32_t number, struct error *error)
{
    struct host_folder *folder = scan->folder;
    struct segment_facts facts;
    scan->segment = number;
    char *entry = segment_describe(folder->fd, number, &facts, take_sample, scan, error);
    if (host_list_segment(folder, &facts, entry, error) < 0)
        return -1;
    scan->has_changed = true;
    log_at_of(LOG_INFO, "activations_adopted", LOG_NOBODY, LOG_TEXT("host", folder->name), LOG_U64("segment", number));
    return 0;
}

/* --- what is not -------------------------------------------------------------------------------------------------------- */

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
    if (!failed)
        failed = host_list_segment(folder, &facts, contents_entry(contents, &facts, error), error);
    scan->has_changed |= !failed;
    segment_close(segment);
    return failed;
}

/* Sealed ones first: what they hold is not sealed again. */
static int settle_segments(struct host_scan *scan, struct error *error)
{
    const struct host_folder *folder = scan->folder;
    for (size_t i = 0; i < scan->n_found; i++) {
        const struct found *at = &scan->found[i];
        if (at->files & FOUND_SEALED && !host_manifest_find(&folder->manifest, at->number) &&
            adopt_segment(scan, at->number, error) < 0)
            return -1;
    }
    for (size_t i = 0; i < scan->n_found; i++) {
        const struct found *at = &scan->found[i];
        unsigned files = at->files & (FOUND_OPEN | FOUND_JOURNAL);
        int failed = 0;
        if (at->files & FOUND_SEALED || host_manifest_find(&folder->manifest, at->number))
            continue;
        if (files == (FOUND_OPEN | FOUND_JOURNAL))
            failed = seal_left(scan, at->number, error);
        else if (files == FOUND_OPEN)
            failed = segment_check_open_alone(folder->fd, at->number, error);
        else if (files == FOUND_JOURNAL)
            failed = segment_check_journal_alone(folder->fd, at->number, error);
        if (failed)
            return -1;
    }
    return 0;
}

/* Once the manifest is durable: all but the sealed ones. */
static int clear_left(const struct host_scan *scan, struct error *error)
{
    char name[ACTIVATION_NAME_CHARS];
    for (size_t i = 0; i < scan->n_found; i++)
        for (unsigned k = 1; k < N_SUFFIXES; k++) {
            activation_segment_name(scan->found[i].number, suffixes[k], name);
            if (scan->found[i].files & 1u << k && unlinkat(scan->folder->fd, name, 0) < 0 && errno != ENOENT)
                return fail_errno(error, errno, "cannot remove %s", name);
        }
    return 0;
}

static int recover(struct host_scan *scan, struct error *error)
{
    struct host_folder *folder = scan->folder;
    const struct host_manifest *manifest = &folder->manifest;
    if (list_folder(scan, error) < 0 ||
        host_manifest_read(&folder->manifest, folder->host, folder->fd, NULL, take_listed, scan, error) < 0)
        return -1;
    for (size_t i = 0; i < manifest->n_segments; i++)
        if (check_segment(scan, &manifest->segments[i], error) < 0)
            return -1;
    if (settle_segments(scan, error) < 0 || (scan->has_changed && host_manifest_write(manifest, folder->fd, error) < 0) ||
        clear_left(scan, error) < 0)
        return -1;
    /* whatever is sealed is listed by now */
    folder->next_segment = manifest->n_segments ? manifest->segments[manifest->n_segments - 1].number + 1 : 1;
    folder->n_segments = manifest->n_segments;
    folder->manifest_bytes = manifest->text_bytes;
    return 0;
}

int host_recover(struct host_folder *folder, struct error *error)
{
    struct host_scan scan = {.folder = folder};
    int failed = recover(&scan, error);
    metadata_free(scan.found);
    return failed;
}
