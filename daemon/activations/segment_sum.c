#include "activations/segment_sum.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "activations/store_path.h"
#include "base/crc.h"
#include "base/file_io.h"
#include "base/huge_pages.h"
#include "base/memory.h"
#include "base/metadata.h"
#include "base/text.h"
#include "resolve/safetensors.h"

/* Exactly so many bytes, -1: an error, or the file ends before. */
static int read_at(int fd, const char *name, void *bytes, size_t count, uint64_t offset, struct error *error)
{
    ssize_t got = file_io_read_at(fd, bytes, count, offset);
    if (got < 0)
        return fail_errno(error, errno, "cannot read %s", name);
    if ((size_t)got < count)
        return fail(error, ERROR_DATA_LOSS, "SEGMENT_CUT", "%s got shorter while it was read", name);
    return 0;
}

void segment_sums_begin(struct segment_sums *sums, struct segment_contents *contents, uint64_t file_bytes)
{
    *sums = (struct segment_sums){.contents = contents, .digest = digest_create()};
    sums->data_offset = sums->end = file_bytes - contents->data_bytes;
    free(contents->array_sums);
    contents->array_sums = memory_alloc_array(contents->n_arrays + 1, sizeof *contents->array_sums);
}

/* The header is the first part, then each array is one; what has no bytes ends where it begins. */
static void end_parts(struct segment_sums *sums)
{
    const struct segment_contents *contents = sums->contents;
    while (sums->at == sums->end && sums->n_done <= contents->n_arrays) {
        if (sums->n_done > 0)
            contents->array_sums[sums->n_done - 1] = sums->part;
        else
            sums->header = sums->part;
        sums->all = crc32c_combine(sums->all, sums->part, sums->end - sums->begin);
        sums->begin = sums->end;
        sums->part = 0;
        if (sums->n_done < contents->n_arrays)
            sums->end = sums->data_offset + contents->array_ends[sums->n_done];
        sums->n_done++;
    }
}

void segment_sums_add(struct segment_sums *sums, const void *bytes, size_t count)
{
    const unsigned char *from = bytes;
    digest_add(sums->digest, bytes, count);
    while (count > 0 && sums->at < sums->end) {
        size_t n = count < sums->end - sums->at ? count : (size_t)(sums->end - sums->at);
        sums->part = crc32c_update(sums->part, from, n);
        sums->at += n;
        from += n;
        count -= n;
        end_parts(sums);
    }
}

void segment_sums_end(struct segment_sums *sums, struct segment_facts *facts)
{
    unsigned char sum[DIGEST_BYTES];
    digest_finish(sums->digest, sum);
    digest_hex(sum, sizeof sum, facts->sha256);
    facts->crc32c = sums->all;
    facts->header_crc32c = sums->header;
}

/* --- reading from its beginning to its end, past the page cache -------------------------------------------------------- */

enum {
    PIECE_BYTES = 512 << 10, /* stays in a cache between the read and what is done with it */
    N_PIECES = 4,            /* one is used, one is read, the others wait */
    MEMORY_BYTES = N_PIECES * PIECE_BYTES,
    STACK_BYTES = 256 << 10,
};

struct reader {
    int fd, flags; /* as the descriptor was */
    const char *name;
    uint64_t file_bytes;
    unsigned char *pieces; /* one behind the other, in huge pages: the device takes more of those at a time */
    pthread_mutex_t lock;  /* of all that follows */
    pthread_cond_t changed;
    size_t counts[N_PIECES];
    uint64_t n_read, n_used; /* pieces; piece i lies in i % N_PIECES */
    bool has_ended, has_failed;
    struct error error;
};

/* How much came of what is at `at`: whole blocks but at the end. 0: an error. */
static size_t read_piece(const struct reader *reader, unsigned char *piece, uint64_t at, struct error *error)
{
    uint64_t left = reader->file_bytes - at;
    ssize_t got;
    do {
        got = pread(reader->fd, piece, PIECE_BYTES, (off_t)at);
        if (got < 0 && errno == EINVAL && fcntl(reader->fd, F_GETFL) & O_DIRECT) { /* not on this file system */
            fcntl(reader->fd, F_SETFL, reader->flags);
            errno = EINTR;
        }
    } while (got < 0 && errno == EINTR);
    if (got > 0)
        return (uint64_t)got < left ? (size_t)got : (size_t)left;
    if (got < 0)
        fail_errno(error, errno, "cannot read %s", reader->name);
    else
        fail(error, ERROR_DATA_LOSS, "SEGMENT_CUT", "%s got shorter while it was read", reader->name);
    return 0;
}

static void *read_all(void *data)
{
    struct reader *reader = data;
    struct error error;
    size_t count = 1;
    pthread_mutex_lock(&reader->lock);
    for (uint64_t at = 0; at < reader->file_bytes && count; at += count) {
        while (reader->n_read - reader->n_used >= N_PIECES)
            pthread_cond_wait(&reader->changed, &reader->lock);
        size_t i = reader->n_read % N_PIECES;
        pthread_mutex_unlock(&reader->lock);
        count = read_piece(reader, reader->pieces + i * PIECE_BYTES, at, &error);
        pthread_mutex_lock(&reader->lock);
        reader->counts[i] = count;
        reader->n_read += count > 0;
        pthread_cond_signal(&reader->changed);
    }
    reader->has_failed = count == 0;
    if (!count)
        reader->error = error;
    reader->has_ended = true;
    pthread_cond_signal(&reader->changed);
    pthread_mutex_unlock(&reader->lock);
    return NULL;
}

/* Until the thread has ended: what it has read is used even where what follows cannot be. */
static void use_all(struct reader *reader, void (*take)(void *data, const void *bytes, size_t count), void *data)
{
    pthread_mutex_lock(&reader->lock);
    for (;;) {
        while (reader->n_used == reader->n_read && !reader->has_ended)
            pthread_cond_wait(&reader->changed, &reader->lock);
        if (reader->n_used == reader->n_read)
            break;
        uint64_t i = reader->n_used % N_PIECES;
        size_t count = reader->counts[i];
        pthread_mutex_unlock(&reader->lock);
        take(data, reader->pieces + i * PIECE_BYTES, count);
        pthread_mutex_lock(&reader->lock);
        reader->n_used++;
        pthread_cond_signal(&reader->changed);
    }
    pthread_mutex_unlock(&reader->lock);
}

int segment_read_ahead(int fd, const char *name, uint64_t file_bytes,
                       void (*take)(void *data, const void *bytes, size_t count), void *data, struct error *error)
{
    struct reader reader = {.fd = fd, .flags = fcntl(fd, F_GETFL), .name = name, .file_bytes = file_bytes};
    pthread_attr_t attributes;
    pthread_t thread;
    reader.pieces = huge_pages_map(MEMORY_BYTES);
    if (!reader.pieces)
        return fail(error, ERROR_RESOURCE_EXHAUSTED, "NO_MEMORY", "there is no memory to read %s", name);
    pthread_mutex_init(&reader.lock, NULL);
    pthread_cond_init(&reader.changed, NULL);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    fcntl(fd, F_SETFL, reader.flags | O_DIRECT); /* what was written past the page cache need not come into it */
    int failure = pthread_create(&thread, &attributes, read_all, &reader);
    if (failure == 0) {
        use_all(&reader, take, data);
        pthread_join(thread, NULL);
    }
    fcntl(fd, F_SETFL, reader.flags);
    pthread_attr_destroy(&attributes);
    pthread_cond_destroy(&reader.changed);
    pthread_mutex_destroy(&reader.lock);
    munmap(reader.pieces, MEMORY_BYTES);
    if (failure)
        return fail_errno(error, failure, "there is no thread to read %s", name);
    if (reader.has_failed)
        *error = reader.error;
    return reader.has_failed ? -1 : 0;
}

static void add_to_sums(void *data, const void *bytes, size_t count)
{
    segment_sums_add(data, bytes, count);
}

int segment_sum(int fd, const char *name, struct segment_contents *contents, struct segment_facts *facts,
                struct error *error)
{
    struct stat status;
    struct segment_sums sums;
    if (fstat(fd, &status) < 0)
        return fail_errno(error, errno, "cannot look at %s", name);
    facts->file_bytes = (uint64_t)status.st_size;
    if (facts->file_bytes < contents->data_bytes)
        return fail(error, ERROR_DATA_LOSS, "SEGMENT_CUT", "%s got shorter while it was read", name);
    segment_sums_begin(&sums, contents, facts->file_bytes);
    int failed = segment_read_ahead(fd, name, facts->file_bytes, add_to_sums, &sums, error);
    segment_sums_end(&sums, facts);
    return failed;
}

/* --- what a sealed segment holds ---------------------------------------------------------------------------------------- */

static struct part_header *read_segment_header(int fd, const char *name, struct error *error)
{
    struct stat status;
    unsigned char first[8];
    uint64_t json_bytes;
    if (fstat(fd, &status) < 0) {
        fail_errno(error, errno, "cannot look at %s", name);
        return NULL;
    }
    if (!S_ISREG(status.st_mode) || status.st_size < (off_t)sizeof first) {
        fail(error, ERROR_DATA_LOSS, "NOT_A_SEGMENT", "%s is no segment of activations: it has no header", name);
        return NULL;
    }
    if (read_at(fd, name, first, sizeof first, 0, error) < 0 ||
        safetensors_header_length(first, (uint64_t)status.st_size, &json_bytes, error) < 0)
        return NULL;
    char *json = metadata_alloc((size_t)json_bytes, error);
    struct part_header *header = NULL;
    if (json && read_at(fd, name, json, (size_t)json_bytes, sizeof first, error) == 0)
        header = safetensors_parse(json, json_bytes, (uint64_t)status.st_size, error);
    metadata_free(json);
    return header;
}

/* The tensors of one sample lie together: its own are tensors[first] and those behind it with the same number. */
static int collect_sample(const struct part_header *header, size_t first, const char *name, struct sample_tensor *tensors,
                          struct sample *sample, struct error *error)
{
    *sample = (struct sample){.tensors = tensors};
    for (size_t i = first; i < header->n_tensors; i++) {
        const struct stored_tensor *at = &header->tensors[i];
        uint32_t id, layer;
        if (!activation_parse_tensor(at->name, at->name_length, &layer, &id))
            return fail(error, ERROR_DATA_LOSS, "NOT_A_SEGMENT", "%s is no segment of activations: it has a tensor %s", name,
                        text_show_bytes(at->name, at->name_length));
        if (i > first && id != sample->id)
            break;
        sample->id = id;
        tensors[sample->n_tensors++] = (struct sample_tensor){
            .bytes = at->bytes, .shape = at->shape, .layer = layer, .rank = at->rank, .dtype = at->dtype};
    }
    return 0;
}

static int add_samples(const struct part_header *header, const char *name, struct segment_contents *contents,
                       int (*take)(void *data, uint32_t sample, struct error *error), void *data, struct error *error)
{
    struct sample_tensor *tensors = metadata_array(header->n_tensors + 1, sizeof *tensors, error);
    struct sample sample = {0};
    int failed = tensors ? 0 : -1;
    for (size_t i = 0; i < header->n_tensors && !failed; i += sample.n_tensors)
        failed = collect_sample(header, i, name, tensors, &sample, error) < 0 ||
                         contents_add(contents, &sample, error) < 0 || (take && take(data, sample.id, error) < 0)
                     ? -1
                     : 0;
    metadata_free(tensors);
    return failed;
}

/* The texts are of the file itself: only whole JSON values get into the manifest. */
static void add_texts(const struct part_header *header, const char *key, char bracket, struct json_writer *to)
{
    const struct part_metadata *pair = part_header_find_metadata(header, key);
    struct arena arena = {0};
    struct json json;
    if (!pair || pair->value_length < 2)
        return;
    json_init(&json, pair->value, pair->value_length, &arena);
    if (pair->value[0] == bracket && json_skip(&json) && json_end(&json)) {
        size_t length = pair->value_length - 2;
        const char *inner = pair->value + 1;
        if (length && pair->value[pair->value_length - 1] == (bracket == '{' ? '}' : ']'))
            json_write_json(to, inner, length);
    }
    arena_fini(&arena);
}

int segment_sum_contents(const struct part_header *header, const char *name, struct segment_contents *contents,
                         int (*take)(void *data, uint32_t sample, struct error *error), void *data, struct error *error)
{
    if (add_samples(header, name, contents, take, data, error) < 0)
        return -1;
    add_texts(header, CONTENTS_INFO, '{', &contents->info);
    add_texts(header, CONTENTS_NARROWED, '[', &contents->narrowed);
    return 0;
}

char *segment_describe(int folder_fd, uint32_t number, struct segment_facts *facts,
                       int (*take)(void *data, uint32_t sample, struct error *error), void *data, struct error *error)
{
    struct segment_contents contents = {0};
    struct part_header *header = NULL;
    char name[ACTIVATION_NAME_CHARS], *entry = NULL;
    activation_segment_name(number, ACTIVATION_SEALED, name);
    facts->number = number;
    int fd = store_path_openat(folder_fd, name, O_RDONLY, 0);
    if (fd < 0) {
        fail_errno(error, errno, "cannot open %s", name);
        return NULL;
    }
    header = read_segment_header(fd, name, error);
    if (header && segment_sum_contents(header, name, &contents, take, data, error) == 0 &&
        segment_sum(fd, name, &contents, facts, error) == 0)
        entry = contents_entry(&contents, facts, error);
    contents_fini(&contents);
    part_header_unref(header);
    close(fd);
    return entry;
}
