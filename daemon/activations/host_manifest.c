#include "activations/host_manifest.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "activations/store_path.h"
#include "base/activation_name.h"
#include "base/file_io.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/metadata.h"

#define NEW_NAME ACTIVATION_MANIFEST ".new"

int host_manifest_fail_full(struct error *error)
{
    return fail(error, ERROR_RESOURCE_EXHAUSTED, "MANIFEST_FULL",
                ACTIVATION_MANIFEST " has %d MiB, no more are read; append under another host's number, or to another store",
                HOST_MANIFEST_FULL_BYTES >> 20);
}

/* --- reading ------------------------------------------------------------------------------------------------------------ */

struct manifest_reader {
    struct json json;
    struct host_manifest *manifest;
    int (*take)(void *data, uint32_t segment, uint32_t sample, struct error *error);
    void *data;
    struct error *error;
    bool has_failed; /* with *error */
};

static int keep_uploaded(struct host_manifest *manifest, struct manifest_segment *segment, const char *uploaded,
                         size_t length, struct error *error)
{
    char *copy = metadata_alloc(length + 1, error);
    if (!copy)
        return -1;
    memcpy(copy, uploaded, length);
    copy[length] = '\0';
    manifest->text_bytes += length;
    manifest->text_bytes -= segment->uploaded ? strlen(segment->uploaded) : 0;
    metadata_free(segment->uploaded);
    segment->uploaded = copy;
    return 0;
}

static bool read_samples(struct manifest_reader *reader, uint32_t number)
{
    struct json *json = &reader->json;
    uint64_t sample;
    if (!json_begin_array(json))
        return false;
    while (json_next_item(json)) {
        if (!json_take_u64(json, &sample))
            return false;
        if (sample > ACTIVATION_MAX_SAMPLE)
            return json_fail(json, "a number that is none of a sample");
        if (reader->take && reader->take(reader->data, number, (uint32_t)sample, reader->error) < 0) {
            reader->has_failed = true;
            return false;
        }
    }
    return json_ok(json);
}

/* Where it lies is written anew whenever that changes, so it is no part of the text. */
struct place {
    const char *start; /* of the members about it; NULL = there are none */
    size_t cut_bytes;
    struct json_string uploaded;
};

static bool read_place(struct json *json, const struct json_string *key, const char *before, struct place *place,
                       struct manifest_segment *segment)
{
    bool is_good;
    if (place->start && before != place->start + place->cut_bytes)
        return json_fail(json, "\"uploaded\" and \"local\" stand apart");
    if (json_string_is(key, "local")) {
        segment->is_local = json_peek(json) != JSON_FALSE;
        is_good = json_skip(json);
    } else {
        is_good = json_take_string(json, &place->uploaded) &&
                  (place->uploaded.length || json_fail(json, "an object without a name")) &&
                  (!memchr(place->uploaded.text, '\0', place->uploaded.length) || json_fail(json, "a NUL in a name"));
    }
    place->start = place->start ? place->start : before;
    place->cut_bytes = (size_t)(json->at - place->start);
    return is_good;
}

static bool read_members(struct manifest_reader *reader, struct manifest_segment *segment, struct place *place)
{
    struct json *json = &reader->json;
    struct json_string key, text;
    bool has_samples = false;
    if (!json_begin_object(json))
        return false;
    for (const char *before = json->at; json_next_key(json, &key); before = json->at) {
        bool is_good;
        if (json_string_is(&key, "file")) {
            char name[ACTIVATION_NAME_CHARS] = "";
            is_good = json_take_string(json, &text);
            if (is_good && text.length < sizeof name)
                memcpy(name, text.text, text.length);
            is_good = is_good && (activation_parse_segment(name, ACTIVATION_SEALED, &segment->number) ||
                                  json_fail(json, "a name that is none of a segment"));
        } else if (json_string_is(&key, "bytes")) {
            is_good = json_take_u64(json, &segment->file_bytes);
        } else if (json_string_is(&key, "crc32c")) {
            char digits[9] = "", *end = digits;
            is_good = json_take_string(json, &text);
            if (is_good && text.length == 8)
                memcpy(digits, text.text, 8);
            segment->crc32c = (uint32_t)strtoul(digits, &end, 16);
            is_good = is_good && (end == digits + 8 || json_fail(json, "a checksum that is no eight hex digits"));
        } else if (json_string_is(&key, "local") || json_string_is(&key, "uploaded")) {
            is_good = segment->number ? read_place(json, &key, before, place, segment)
                                      : json_fail(json, "where a file lies before its name");
        } else if (json_string_is(&key, "samples") && !has_samples) {
            has_samples = true;
            is_good = segment->number ? read_samples(reader, segment->number)
                                      : json_fail(json, "samples before the name of their file");
        } else {
            is_good = json_skip(json);
        }
        if (!is_good)
            return false;
    }
    return json_ok(json) && (segment->number || json_fail(json, "a segment without a name"));
}

static bool read_segment(struct manifest_reader *reader)
{
    struct manifest_segment segment = {.is_local = true};
    struct place place = {0};
    struct host_manifest *manifest = reader->manifest;
    json_peek(&reader->json); /* blanks are no part of it */
    const char *start = reader->json.at;
    if (!read_members(reader, &segment, &place))
        return false;
    if (manifest->n_segments && manifest->segments[manifest->n_segments - 1].number >= segment.number)
        return json_fail(&reader->json, "segments out of order");
    size_t text_bytes = (size_t)(reader->json.at - start);
    reader->has_failed = host_manifest_add(manifest, &segment, start, text_bytes, reader->error) < 0;
    if (reader->has_failed)
        return false;
    struct manifest_segment *added = &manifest->segments[manifest->n_segments - 1];
    if (place.start) { /* the text is without the members about its place */
        size_t at = (size_t)(place.start - start), rest = at + place.cut_bytes;
        memmove(added->text + at, added->text + rest, added->text_bytes - rest);
        added->text_bytes -= place.cut_bytes;
        manifest->text_bytes -= place.cut_bytes;
    }
    if (place.uploaded.length)
        reader->has_failed = keep_uploaded(manifest, added, place.uploaded.text, place.uploaded.length, reader->error) < 0;
    return !reader->has_failed;
}

static bool read_head(struct manifest_reader *reader, const struct json_string *key)
{
    struct json *json = &reader->json;
    struct json_string text;
    uint64_t number;
    if (json_string_is(key, "format"))
        return json_take_string(json, &text) &&
               (json_string_is(&text, ACTIVATION_MANIFEST_FORMAT) || json_fail(json, "another format"));
    if (json_string_is(key, "version"))
        return json_take_u64(json, &number) && (number == HOST_MANIFEST_VERSION || json_fail(json, "another version"));
    if (json_string_is(key, "host"))
        return json_take_u64(json, &number) &&
               (number == reader->manifest->host || json_fail(json, "the number of another host"));
    return json_skip(json);
}

static bool read_document(struct manifest_reader *reader)
{
    struct json *json = &reader->json;
    struct json_string key;
    if (!json_begin_object(json))
        return false;
    while (json_next_key(json, &key)) {
        if (!json_string_is(&key, "segments")) {
            if (!read_head(reader, &key))
                return false;
            continue;
        }
        if (!json_begin_array(json))
            return false;
        while (json_next_item(json))
            if (!read_segment(reader))
                return false;
        if (!json_ok(json))
            return false;
    }
    return json_end(json);
}

int host_manifest_parse(struct host_manifest *manifest, uint32_t host, const char *text, size_t length,
                        int (*take)(void *data, uint32_t segment, uint32_t sample, struct error *error), void *data,
                        struct error *error)
{
    struct manifest_reader reader = {.manifest = manifest, .take = take, .data = data, .error = error};
    struct arena arena = {0};
    char complaint[JSON_ERROR_CHARS];
    manifest->host = host;
    json_init(&reader.json, text, length, &arena);
    reader.json.memory_error = error;
    bool is_good = read_document(&reader);
    if (!is_good && !reader.has_failed && !reader.json.is_out_of_memory)
        fail(error, ERROR_DATA_LOSS, "BAD_MANIFEST",
             ACTIVATION_MANIFEST " is damaged: %s; remove it to have it made anew from the segments",
             json_error(&reader.json, complaint));
    arena_fini(&arena);
    return is_good ? 0 : -1;
}

int host_manifest_add(struct host_manifest *manifest, const struct manifest_segment *segment, const char *text,
                      size_t text_bytes, struct error *error)
{
    if (METADATA_RESERVE(manifest->segments, manifest->n_segments, manifest->capacity, error) < 0)
        return -1;
    char *copy = metadata_alloc(text_bytes + 1, error);
    size_t at = manifest->n_segments;
    if (!copy)
        return -1;
    memcpy(copy, text, text_bytes);
    while (at && manifest->segments[at - 1].number > segment->number)
        at--;
    memmove(manifest->segments + at + 1, manifest->segments + at, (manifest->n_segments - at) * sizeof *manifest->segments);
    manifest->segments[at] = *segment;
    manifest->segments[at].text = copy;
    manifest->segments[at].text_bytes = text_bytes;
    manifest->n_segments++;
    manifest->text_bytes += text_bytes + 2;
    return 0;
}

int host_manifest_move(struct host_manifest *manifest, uint32_t number, bool is_local, const char *uploaded,
                       struct error *error)
{
    const struct manifest_segment *found = host_manifest_find(manifest, number);
    struct manifest_segment *segment = &manifest->segments[found - manifest->segments];
    if (uploaded && manifest->text_bytes + strlen(uploaded) > HOST_MANIFEST_FULL_BYTES)
        return host_manifest_fail_full(error);
    if (uploaded && keep_uploaded(manifest, segment, uploaded, strlen(uploaded), error) < 0)
        return -1;
    segment->is_local = is_local;
    return 0;
}

bool host_manifest_forget_upload(struct host_manifest *manifest, size_t index)
{
    struct manifest_segment *segment = &manifest->segments[index];
    bool was_there = segment->uploaded;
    manifest->text_bytes -= was_there ? strlen(segment->uploaded) : 0;
    metadata_free(segment->uploaded);
    segment->uploaded = NULL;
    return was_there;
}

char *host_manifest_entry(const struct manifest_segment *segment)
{
    struct json_writer json = {0};
    if (segment->uploaded)
        json_write_string(&json, segment->uploaded, strlen(segment->uploaded));
    char *entry =
        memory_print("%.*s%s%s%s}", (int)segment->text_bytes - 1, segment->text, segment->uploaded ? ",\"uploaded\":" : "",
                     segment->uploaded ? json.text : "", segment->is_local ? "" : ",\"local\":false");
    free(json.text);
    return entry;
}

bool host_manifest_says(const struct manifest_segment *segment, const char *entry)
{
    static const char sums[] = ",\"header_crc32c\":";
    size_t most = segment->text_bytes - 1; /* without the bracket at its end */
    if (strlen(entry) == segment->text_bytes)
        return memcmp(entry, segment->text, segment->text_bytes) == 0;
    return strlen(entry) > segment->text_bytes && memcmp(entry, segment->text, most) == 0 &&
           strncmp(entry + most, sums, sizeof sums - 1) == 0;
}

const struct manifest_segment *host_manifest_find(const struct host_manifest *manifest, uint32_t number)
{
    size_t low = 0, high = manifest->n_segments;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (manifest->segments[middle].number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low < manifest->n_segments && manifest->segments[low].number == number ? &manifest->segments[low] : NULL;
}

void host_manifest_fini(struct host_manifest *manifest)
{
    for (size_t i = 0; i < manifest->n_segments; i++) {
        metadata_free(manifest->segments[i].text);
        metadata_free(manifest->segments[i].uploaded);
    }
    metadata_free(manifest->segments);
    *manifest = (struct host_manifest){0};
}

static char *read_text(int fd, size_t *length, struct error *error)
{
    struct stat status;
    char *text = NULL;
    if (fstat(fd, &status) < 0 || !S_ISREG(status.st_mode)) {
        fail(error, ERROR_FAILED_PRECONDITION, REASON(NOT_A_REGULAR_FILE), ACTIVATION_MANIFEST " is no regular file");
        return NULL;
    }
    if (status.st_size > HOST_MANIFEST_MAX_BYTES) {
        fail(error, ERROR_DATA_LOSS, "BAD_MANIFEST", ACTIVATION_MANIFEST " has %jd bytes; at most %d are read",
             (intmax_t)status.st_size, HOST_MANIFEST_MAX_BYTES);
        return NULL;
    }
    *length = (size_t)status.st_size;
    text = metadata_alloc(*length + 1, error);
    ssize_t got = text ? file_io_read_at(fd, text, *length, 0) : 0;
    if (got < 0) {
        fail_errno(error, errno, "cannot read " ACTIVATION_MANIFEST);
        metadata_free(text);
        return NULL;
    }
    *length = (size_t)got;
    return text;
}

int host_manifest_read(struct host_manifest *manifest, uint32_t host, int folder_fd, bool *is_there,
                       int (*take)(void *data, uint32_t segment, uint32_t sample, struct error *error), void *data,
                       struct error *error)
{
    size_t length = 0;
    int fd = store_path_openat(folder_fd, ACTIVATION_MANIFEST, O_RDONLY, 0);
    if (is_there)
        *is_there = fd >= 0;
    manifest->host = host;
    if (fd < 0)
        return errno == ENOENT ? 0 : fail_errno(error, errno, "cannot open " ACTIVATION_MANIFEST);
    char *text = read_text(fd, &length, error);
    close(fd);
    int failed = text ? host_manifest_parse(manifest, host, text, length, take, data, error) : -1;
    metadata_free(text);
    return failed;
}

/* --- writing ------------------------------------------------------------------------------------------------------------ */

static bool write_text(FILE *file, const struct host_manifest *manifest,
                       bool (*wants)(void *data, const struct manifest_segment *segment), void *data)
{
    const char *between = "\n";
    fprintf(file, "{\"format\": \"%s\", \"version\": %d, \"host\": %" PRIu32 ", \"segments\": [", ACTIVATION_MANIFEST_FORMAT,
            HOST_MANIFEST_VERSION, manifest->host);
    for (size_t i = 0; i < manifest->n_segments; i++) {
        if (wants && !wants(data, &manifest->segments[i]))
            continue;
        char *entry = host_manifest_entry(&manifest->segments[i]);
        fputs(between, file);
        fputs(entry, file);
        free(entry);
        between = ",\n";
    }
    fputs("]}\n", file);
    return fflush(file) == 0 && !ferror(file);
}

int host_manifest_print(const struct host_manifest *manifest, int fd,
                        bool (*wants)(void *data, const struct manifest_segment *segment), void *data, struct error *error)
{
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    FILE *file = copy >= 0 ? fdopen(copy, "w") : NULL;
    bool is_written = file && write_text(file, manifest, wants, data);
    int failure = errno;
    if (file)
        fclose(file);
    else if (copy >= 0)
        close(copy);
    return is_written ? 0 : fail_errno(error, failure, "cannot write a copy of " ACTIVATION_MANIFEST);
}

int host_manifest_write(const struct host_manifest *manifest, int folder_fd, struct error *error)
{
    unlinkat(folder_fd, NEW_NAME, 0);
    int fd = openat(folder_fd, NEW_NAME, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (!file) {
        int failure = errno;
        if (fd >= 0)
            close(fd);
        return fail_errno(error, failure, "cannot create " NEW_NAME);
    }
    bool is_written = write_text(file, manifest, NULL, NULL) && fsync(fd) == 0;
    int failure = errno;
    fclose(file);
    if (is_written && renameat(folder_fd, NEW_NAME, folder_fd, ACTIVATION_MANIFEST) == 0 && fsync(folder_fd) == 0)
        return 0;
    failure = is_written ? errno : failure;
    unlinkat(folder_fd, NEW_NAME, 0);
    return fail_errno(error, failure, "cannot write " ACTIVATION_MANIFEST);
}
