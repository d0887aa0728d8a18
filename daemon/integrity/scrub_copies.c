/* Copies of a piece compared with the first of them, byte for byte. What differs is read once more over new connections
 * before the file is called damaged; which of the two is right nobody knows, so the message names both. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/parallel.h"
#include "base/text.h"
#include "integrity/scrub_private.h"

enum { COMPARED_BYTES = 4 << 20, DISK_THREADS = 4, REMOTE_THREADS = 8 };

struct copy_pair {
    uint32_t first, other; /* pieces */
};

struct comparison {
    struct scrub *scrub;
    const struct scrub_options *options;
    const struct copy_pair *pairs;
    pthread_mutex_t lock; /* of the files' errors */
};

/* Every copy with the first of its ring; NULL = the artifact has none. The caller frees. */
static struct copy_pair *list_pairs(const struct artifact *artifact, size_t *n_pairs)
{
    struct copy_pair *pairs = NULL;
    size_t n = 0, capacity = 0;
    for (size_t i = 0; artifact->copies && i < artifact->n_tensors; i++) {
        const struct tensor_record *tensor = &artifact->tensors[i];
        for (uint32_t k = 0; k < tensor->n_pieces; k++) {
            uint32_t first = (uint32_t)(artifact_piece(artifact, tensor, k) - artifact->pieces);
            for (uint32_t other = artifact->copies[first]; other != first; other = artifact->copies[other]) {
                ARRAY_RESERVE(pairs, n, capacity);
                pairs[n++] = (struct copy_pair){first, other};
            }
        }
    }
    *n_pairs = n;
    return pairs;
}

static uint64_t bytes_of(const struct artifact *artifact, uint32_t piece)
{
    return artifact_piece_end(artifact, &artifact->pieces[piece]) - artifact->pieces[piece].offset;
}

uint64_t scrub_copies_bytes(const struct artifact *artifact)
{
    size_t n_pairs;
    struct copy_pair *pairs = list_pairs(artifact, &n_pairs);
    uint64_t bytes = 0;
    for (size_t i = 0; i < n_pairs; i++)
        bytes += bytes_of(artifact, pairs[i].other);
    free(pairs);
    return bytes;
}

static int read_part(const struct comparison *comparison, uint32_t piece, uint64_t at, void *memory, uint64_t bytes,
                     bool is_again, struct error *error)
{
    const struct artifact *artifact = comparison->scrub->artifact;
    struct iovec iov = {memory, bytes};
    struct source_read read = {.file = artifact->pieces[piece].file,
                               .offset = artifact->pieces[piece].offset + at,
                               .iov = &iov,
                               .n_iov = 1,
                               .fresh_connection = is_again,
                               .cancel = comparison->options->cancel,
                               .uid = comparison->options->uid};
    if (cancel_is_set(comparison->options->cancel))
        return fail(error, ERROR_CANCELLED, "CANCELLED", "cancelled while copies were compared");
    return source_read(artifact->source, &read, error);
}

/* 1 = they differ. */
static int compare_part(const struct comparison *comparison, const struct copy_pair *pair, uint64_t at,
                        unsigned char *memory, uint64_t bytes, struct error *error)
{
    int differs = 1;
    for (int reading = 0; reading < 2 && differs; reading++) {
        if (read_part(comparison, pair->first, at, memory, bytes, reading, error) < 0 ||
            read_part(comparison, pair->other, at, memory + COMPARED_BYTES, bytes, reading, error) < 0)
            return -1;
        differs = memcmp(memory, memory + COMPARED_BYTES, bytes) != 0;
    }
    return differs;
}

static void tell_damage(struct comparison *comparison, const struct copy_pair *pair, uint64_t lo, uint64_t hi)
{
    struct scrub *scrub = comparison->scrub;
    const struct artifact *artifact = scrub->artifact;
    const struct tensor_piece *first = &artifact->pieces[pair->first], *other = &artifact->pieces[pair->other];
    const struct tensor_record *tensor = &artifact->tensors[other->tensor];
    const char *first_file = scrub->files[first->file].part->name, *other_file = scrub->files[other->file].part->name;
    char name[TEXT_NAME_CHARS], one[TEXT_NAME_CHARS], two[TEXT_NAME_CHARS];
    pthread_mutex_lock(&comparison->lock);
    struct error *error = &scrub->files[other->file].error;
    if (!error->code) {
        fail(error, ERROR_DATA_LOSS, "COPIES_DIFFER",
             "%s: bytes %" PRIu64 " to %" PRIu64 ", tensor %s, are not the same as its copy in %s",
             text_escape(other_file, strlen(other_file), two), other->offset + lo, other->offset + hi,
             text_escape(tensor->name, tensor->name_length, name), text_escape(first_file, strlen(first_file), one));
        error_note(error, "tensor", "%.*s", (int)tensor->name_length, tensor->name);
    }
    pthread_mutex_unlock(&comparison->lock);
}

static int compare_pair(void *data, size_t index, struct error *error)
{
    struct comparison *comparison = data;
    const struct copy_pair *pair = &comparison->pairs[index];
    uint64_t bytes = bytes_of(comparison->scrub->artifact, pair->other);
    unsigned char *memory = malloc(2 * (size_t)COMPARED_BYTES);
    int differs = memory ? 0
                         : fail(error, ERROR_RESOURCE_EXHAUSTED, "OUT_OF_MEMORY", "no memory for a buffer of %d bytes",
                                2 * COMPARED_BYTES);
    for (uint64_t at = 0, count; at < bytes && !differs; at += count) {
        count = bytes - at < COMPARED_BYTES ? bytes - at : COMPARED_BYTES;
        differs = compare_part(comparison, pair, at, memory, count, error);
        if (differs > 0)
            tell_damage(comparison, pair, at, at + count);
        if (comparison->options->done_bytes)
            __atomic_add_fetch(comparison->options->done_bytes, count, __ATOMIC_RELAXED);
    }
    free(memory);
    return differs < 0 ? -1 : 0;
}

int scrub_compare_copies(struct scrub *scrub, const struct scrub_options *options, struct error *error)
{
    struct comparison comparison = {scrub, options, NULL, PTHREAD_MUTEX_INITIALIZER};
    size_t n_pairs, n_threads = scrub->artifact->source->caps.reads_are_requests ? REMOTE_THREADS : DISK_THREADS;
    struct copy_pair *pairs = list_pairs(scrub->artifact, &n_pairs);
    comparison.pairs = pairs;
    int failed = parallel_run(n_pairs, n_threads, compare_pair, &comparison, error);
    free(pairs);
    return failed;
}
