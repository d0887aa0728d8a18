#include "bucket_verify.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "activations/segment_sum.h"
#include "base/memory.h"
#include "base/metadata.h"
#include "base/parallel.h"
#include "blocks/blocks.h"
#include "resolve/safetensors.h"
#include "source/stores.h"

enum { SEGMENTS_AT_ONCE = 4, READ_BYTES = 8 << 20, LENGTH_BYTES = 8 };

struct host_check {
    const struct bucket_store *store;
    const struct stored_host *host;
    size_t *files; /* of each segment, in the store's source; SIZE_MAX = it is not there */
    pthread_mutex_t lock;
    void (*tell)(void *data, const struct error *error); /* under the lock */
    void *data;
};

struct segment_check { /* what was read so far */
    const struct manifest_segment *listed;
    char name[ACTIVATION_NAME_CHARS]; /* of the file */
    unsigned char length[LENGTH_BYTES];
    uint64_t json_bytes;
    char *json; /* of the header, as far as it was read */
    struct segment_contents contents;
    struct segment_sums sums; /* from when the header is there */
    struct segment_facts facts;
    bool is_damaged;
};

static void tell_of_segment(struct host_check *check, const char *name, const char *complaint)
{
    struct error error;
    fail(&error, ERROR_DATA_LOSS, "SEGMENT_DAMAGED", "%s/%s %s", check->host->name, name, complaint);
    pthread_mutex_lock(&check->lock);
    check->tell(check->data, &error);
    pthread_mutex_unlock(&check->lock);
}

static int begin_sums(struct segment_check *segment, struct error *error)
{
    struct part_header *header = safetensors_parse(segment->json, segment->json_bytes, segment->facts.file_bytes, error);
    int failed = header ? segment_sum_contents(header, segment->name, &segment->contents, NULL, NULL, error) : -1;
    part_header_unref(header);
    if (failed)
        return -1;
    segment_sums_begin(&segment->sums, &segment->contents, segment->facts.file_bytes);
    segment_sums_add(&segment->sums, segment->length, sizeof segment->length);
    segment_sums_add(&segment->sums, segment->json, (size_t)segment->json_bytes);
    return 0;
}

/* The part of the header that is in this block: *n_taken bytes of it. */
static int take_header(struct segment_check *segment, uint64_t offset, const char *bytes, size_t count, size_t *n_taken,
                       struct error *error)
{
    if (offset == 0) {
        memcpy(segment->length, bytes, count < LENGTH_BYTES ? count : LENGTH_BYTES);
        if (safetensors_header_length(segment->length, segment->facts.file_bytes, &segment->json_bytes, error) < 0)
            return -1;
        segment->json = metadata_alloc((size_t)segment->json_bytes, error);
        if (!segment->json)
            return -1;
    }
    uint64_t begin = offset < LENGTH_BYTES ? LENGTH_BYTES : offset, end = LENGTH_BYTES + segment->json_bytes;
    bool is_last = end <= offset + count;
    *n_taken = offset >= end ? 0 : is_last ? (size_t)(end - offset) : count;
    if (*n_taken == 0)
        return 0;
    end = is_last ? end : offset + count;
    memcpy(segment->json + (begin - LENGTH_BYTES), bytes + (begin - offset), (size_t)(end - begin));
    return is_last ? begin_sums(segment, error) : 0;
}

static int take_piece(void *data, struct block_piece *piece, struct error *error)
{
    struct segment_check *segment = data;
    size_t n_header = 0;
    segment->is_damaged =
        take_header(segment, piece->offset, (const char *)piece->memory, piece->bytes, &n_header, error) < 0;
    if (!segment->is_damaged && n_header < piece->bytes)
        segment_sums_add(&segment->sums, piece->memory + n_header, piece->bytes - n_header);
    return segment->is_damaged ? -1 : 0;
}

/* 0; -1: the store did not give it; 1: it is damaged, and *error says how. */
static int read_segment(const struct host_check *check, struct segment_check *segment, size_t file, struct error *error)
{
    const struct block_stretch all = {.file = file, .hi = segment->facts.file_bytes};
    const struct block_stream stream = {.source = check->store->source,
                                        .stretches = &all,
                                        .n_stretches = 1,
                                        .piece_bytes = READ_BYTES,
                                        .n_threads = 1,
                                        .on_turn = take_piece,
                                        .data = segment,
                                        .cancel = &check->store->backend->cancel,
                                        .uid = getuid()};
    return blocks_stream(&stream, error) == 0 ? 0 : segment->is_damaged ? 1 : -1;
}

/* The file tells everything that the manifest says of it. 1: it does not. */
static int compare_entry(const struct segment_check *segment, struct error *error)
{
    char *entry = contents_entry(&segment->contents, &segment->facts, error);
    if (!entry)
        return -1;
    bool is_same = host_manifest_says(segment->listed, entry);
    free(entry);
    if (!is_same)
        fail(error, ERROR_DATA_LOSS, "SEGMENT_DAMAGED", "is not what the manifest describes: its bytes have changed");
    return !is_same;
}

static int check_segment(const struct host_check *check, struct segment_check *segment, size_t file, struct error *error)
{
    segment->facts = (struct segment_facts){.number = segment->listed->number, .file_bytes = segment->listed->file_bytes};
    int status = read_segment(check, segment, file, error);
    if (segment->sums.digest)
        segment_sums_end(&segment->sums, &segment->facts);
    if (!status)
        status = compare_entry(segment, error);
    contents_fini(&segment->contents);
    metadata_free(segment->json);
    return status;
}

static int verify_segment(void *data, size_t i, struct error *error)
{
    struct host_check *check = data;
    struct segment_check segment = {.listed = &check->host->manifest.segments[i]};
    size_t file = check->files[i];
    struct error damage = {0};
    activation_segment_name(segment.listed->number, ACTIVATION_SEALED, segment.name);
    if (file == SIZE_MAX) {
        tell_of_segment(check, segment.name, "is gone");
        return 0;
    }
    if (check->store->source->files[file].size_bytes != segment.listed->file_bytes) {
        tell_of_segment(check, segment.name, "has not the size that it was sealed with");
        return 0;
    }
    int status = check_segment(check, &segment, file, &damage);
    if (status > 0)
        tell_of_segment(check, segment.name, damage.message);
    if (status < 0)
        *error = damage;
    return status < 0 ? error_prefix(error, "%s/%s", check->host->name, segment.name) : 0;
}

/* Before the first read: then all workers share the source. */
static int open_segments(struct host_check *check, struct error *error)
{
    const struct host_manifest *manifest = &check->host->manifest;
    check->files = memory_alloc_array(manifest->n_segments + 1, sizeof *check->files);
    for (size_t i = 0; i < manifest->n_segments; i++) {
        char name[ACTIVATION_NAME_CHARS];
        activation_segment_name(manifest->segments[i].number, ACTIVATION_SEALED, name);
        char *path = memory_print("%s/%s", check->host->name, name);
        bool is_there = bucket_store_has(check->store, path);
        int failed = is_there ? source_add_file(check->store->source, path, &check->files[i], error) : 0;
        check->files[i] = is_there ? check->files[i] : SIZE_MAX;
        free(path);
        if (failed)
            return -1;
    }
    return 0;
}

static void tell_strangers(struct host_check *check)
{
    size_t length = strlen(check->host->name);
    uint32_t number;
    for (size_t i = 0; i < check->store->n_names; i++) {
        const char *name = check->store->names[i];
        if (strncmp(name, check->host->name, length) == 0 && name[length] == '/' &&
            activation_parse_segment(name + length + 1, ACTIVATION_SEALED, &number) &&
            !host_manifest_find(&check->host->manifest, number))
            tell_of_segment(check, name + length + 1, "is not in the manifest, which is sent behind it");
    }
}

int bucket_verify_host(const struct bucket_store *store, const struct stored_host *host,
                       void (*tell_of)(void *data, const struct error *error), void *data, struct error *error)
{
    struct host_check check = {.store = store, .host = host, .tell = tell_of, .data = data};
    pthread_mutex_init(&check.lock, NULL);
    int failed = open_segments(&check, error);
    if (!failed)
        failed = parallel_run(host->manifest.n_segments, SEGMENTS_AT_ONCE, verify_segment, &check, error);
    if (!failed)
        tell_strangers(&check);
    free(check.files);
    pthread_mutex_destroy(&check.lock);
    return failed;
}
