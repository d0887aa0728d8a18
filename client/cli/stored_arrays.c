/* Arrays are found by the manifest, which says in which segment a sample is, and the header of that segment, which stays open for
 * those that follow: shards have samples in the order in which they were appended. */
#include "stored_arrays.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "activations/host_manifest.h"
#include "activations/segment_sum.h"
#include "base/activation_name.h"
#include "base/file_io.h"
#include "base/followed_link.h"
#include "base/memory.h"
#include "client/sample_writer.h"
#include "resolve/safetensors.h"

enum { CHUNK_BYTES = 1 << 20 };

struct stored_arrays {
    int fd; /* of the host's folder; -1 = there is none */
    char name[ACTIVATION_NAME_CHARS];
    struct host_manifest manifest;
    struct placed_sample {
        uint32_t sample, segment;
    } * samples; /* by sample */
    size_t n_samples, capacity;
    struct open_segment { /* the one that was asked for last; number 0 = none */
        uint32_t number;
        int fd; /* -1: it is not here, or cannot be read */
        struct part_header *header;
        struct placed_array {
            uint32_t sample, layer, index; /* of the header's tensors */
        } * arrays;                        /* by sample, then layer */
    } open;
    unsigned char *chunk;
};

static int take_sample(void *data, uint32_t segment, uint32_t sample, struct error *error)
{
    struct stored_arrays *stored = data;
    (void)error;
    ARRAY_RESERVE(stored->samples, stored->n_samples, stored->capacity);
    stored->samples[stored->n_samples++] = (struct placed_sample){sample, segment};
    return 0;
}

static int compare_samples(const void *a, const void *b)
{
    uint32_t first = ((const struct placed_sample *)a)->sample, second = ((const struct placed_sample *)b)->sample;
    return first < second ? -1 : first > second;
}

static int compare_arrays(const void *a, const void *b)
{
    const struct placed_array *first = a, *second = b;
    if (first->sample != second->sample)
        return first->sample < second->sample ? -1 : 1;
    return first->layer < second->layer ? -1 : first->layer > second->layer;
}

int stored_arrays_open(const char *store, uint32_t host, struct stored_arrays **opened, struct error *error)
{
    struct stored_arrays *stored = memory_alloc(sizeof *stored);
    bool is_there;
    int store_fd = open(store, O_RDONLY | O_DIRECTORY | O_CLOEXEC), failed = 0;
    *stored = (struct stored_arrays){.fd = -1, .open.fd = -1};
    activation_host_name(host, stored->name);
    if (store_fd >= 0 && faccessat(store_fd, stored->name, F_OK, 0) == 0) {
        stored->fd = followed_link_open(store_fd, stored->name, stored->name, O_RDONLY | O_DIRECTORY, error);
        failed = stored->fd < 0 ||
                 host_manifest_read(&stored->manifest, host, stored->fd, &is_there, take_sample, stored, error) < 0;
    }
    if (store_fd >= 0)
        close(store_fd);
    if (stored->n_samples)
        qsort(stored->samples, stored->n_samples, sizeof *stored->samples, compare_samples);
    if (failed)
        error_prefix(error, "%s", stored->name);
    if (failed)
        stored_arrays_close(stored);
    *opened = failed ? NULL : stored;
    return failed ? -1 : 0;
}

static void close_segment(struct open_segment *segment)
{
    if (segment->fd >= 0)
        close(segment->fd);
    part_header_unref(segment->header);
    free(segment->arrays);
    *segment = (struct open_segment){.fd = -1};
}

void stored_arrays_close(struct stored_arrays *stored)
{
    if (!stored)
        return;
    close_segment(&stored->open);
    host_manifest_fini(&stored->manifest);
    if (stored->fd >= 0)
        close(stored->fd);
    free(stored->samples);
    free(stored->chunk);
    free(stored);
}

static void index_arrays(struct open_segment *segment)
{
    const struct part_header *header = segment->header;
    segment->arrays = memory_alloc_array(header->n_tensors + 1, sizeof *segment->arrays);
    for (uint32_t i = 0; i < header->n_tensors; i++) {
        struct placed_array *array = &segment->arrays[i];
        const struct stored_tensor *tensor = &header->tensors[i];
        array->index = i;
        activation_parse_tensor(tensor->name, tensor->name_length, &array->layer, &array->sample);
    }
    if (header->n_tensors)
        qsort(segment->arrays, header->n_tensors, sizeof *segment->arrays, compare_arrays);
}

/* A file that cannot be read is for `activations verify` to tell of. */
static void open_segment(struct stored_arrays *stored, uint32_t number)
{
    struct open_segment *segment = &stored->open;
    struct error ignored;
    char name[ACTIVATION_NAME_CHARS];
    if (segment->number == number)
        return;
    close_segment(segment);
    segment->number = number;
    activation_segment_name(number, ACTIVATION_SEALED, name);
    segment->fd = openat(stored->fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (segment->fd >= 0)
        segment->header = segment_read_header(segment->fd, name, &ignored);
    if (segment->header)
        index_arrays(segment);
}

static const struct stored_tensor *find_tensor(const struct open_segment *segment, const struct pickle_entry *entry)
{
    const struct placed_array key = {.sample = entry->sample, .layer = entry->layer};
    const struct placed_array *found =
        bsearch(&key, segment->arrays, segment->header->n_tensors, sizeof key, compare_arrays);
    return found ? &segment->header->tensors[found->index] : NULL;
}

static bool has_shape(const struct stored_tensor *tensor, const struct pickle_entry *entry)
{
    return tensor->dtype == entry->dtype && tensor->rank == entry->rank && tensor->bytes == entry->n_bytes &&
           (entry->rank == 0 || memcmp(tensor->shape, entry->shape, entry->rank * sizeof *entry->shape) == 0);
}

static bool holds(struct stored_arrays *stored, const struct stored_tensor *tensor, const unsigned char *bytes)
{
    uint64_t at = tensor->offset;
    stored->chunk = stored->chunk ? stored->chunk : memory_alloc(CHUNK_BYTES);
    for (uint64_t done = 0, count; done < tensor->bytes; done += count) {
        count = tensor->bytes - done < CHUNK_BYTES ? tensor->bytes - done : CHUNK_BYTES;
        ssize_t got = file_io_read_at(stored->open.fd, stored->chunk, (size_t)count, at + done);
        if (got != (ssize_t)count || memcmp(stored->chunk, bytes + done, count) != 0)
            return false;
    }
    return true;
}

static bool is_same(struct stored_arrays *stored, const struct stored_tensor *tensor, const struct pickle_entry *entry)
{
    const struct sample_plane plane = {.rank = entry->rank,
                                       .dtype = entry->dtype,
                                       .shape = entry->shape,
                                       .bytes = entry->bytes,
                                       .n_bytes = entry->n_bytes,
                                       .is_big_endian = entry->is_big_endian,
                                       .axes = entry->axes};
    unsigned char *turned = has_shape(tensor, entry) ? sample_plane_turn(&plane) : NULL;
    bool is_same = has_shape(tensor, entry) && holds(stored, tensor, turned ? turned : entry->bytes);
    free(turned);
    return is_same;
}

int stored_arrays_compare(struct stored_arrays *stored, const struct pickle_entry *entry, struct error *error)
{
    const struct placed_sample key = {.sample = entry->sample};
    const struct placed_sample *place =
        stored->n_samples ? bsearch(&key, stored->samples, stored->n_samples, sizeof key, compare_samples) : NULL;
    if (!place)
        return 0;
    open_segment(stored, place->segment);
    if (!stored->open.header)
        return 0;
    const struct stored_tensor *tensor = find_tensor(&stored->open, entry);
    bool is_narrowed = tensor && tensor->dtype == DTYPE_BF16 && entry->dtype == DTYPE_F32;
    if (tensor && (is_narrowed || is_same(stored, tensor, entry)))
        return 0;
    return fail(error, ERROR_INVALID_ARGUMENT, REASON(SAMPLE_TWICE),
                "%s has sample %" PRIu32 " already, and its layer %" PRIu32
                " is %s; samples of another numbering need a host number of their own",
                stored->name, entry->sample, entry->layer, tensor ? "another array" : "not there");
}
