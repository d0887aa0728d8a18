#include "sample_writer.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/memory.h"
#include "handoff_wire.h"
#include "region.h"
#include "tensorcast/daemon/v1/activation_store.pb-c.h"

enum { MEMORY_BYTES = 32 << 20, ID_BYTES = 64 };

typedef Tensorcast__Daemon__V1__AppendActivationsRequest append_request;

struct sample_writer {
    struct tc_client *client;
    struct wait wait; /* of every call */
    unsigned char *memory;
    int memory_fd;
    struct region region;
    unsigned char id[ID_BYTES];
    size_t id_bytes;
    uint64_t filled, sent; /* of the memory; of the sample */
};

static void free_writer(struct sample_writer *writer)
{
    if (writer->region.lease >= 0)
        close(writer->region.lease);
    if (writer->memory)
        munmap(writer->memory, MEMORY_BYTES);
    if (writer->memory_fd >= 0)
        close(writer->memory_fd);
    free(writer);
}

static int make_memory(struct sample_writer *writer, struct error *error)
{
    writer->memory_fd = memfd_create("tensorcast-samples", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (writer->memory_fd < 0 || ftruncate(writer->memory_fd, MEMORY_BYTES) < 0 ||
        fcntl(writer->memory_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
        return fail_errno(error, errno, "cannot make %d bytes of shared memory", MEMORY_BYTES);
    void *memory = mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, writer->memory_fd, 0);
    if (memory == MAP_FAILED)
        return fail_errno(error, errno, "cannot map %d bytes of shared memory", MEMORY_BYTES);
    writer->memory = memory;
    return 0;
}

static int offer_memory(struct sample_writer *writer, struct arena *arena, struct error *error)
{
    const struct wait *wait = &writer->wait;
    struct handoff_region offer = {.version = htole32(HANDOFF_VERSION),
                                   .kind = htole32(HANDOFF_REGION_HOST),
                                   .allocation_bytes = htole64(MEMORY_BYTES),
                                   .bytes = htole64(MEMORY_BYTES)};
    memcpy(offer.magic, HANDOFF_REGION_MAGIC, sizeof offer.magic);
    const char *socket = region_socket(writer->client, wait, arena, error);
    return socket ? region_offer(socket, &offer, writer->memory_fd, wait, &writer->region, error) : -1;
}

static int ask_open(struct sample_writer *writer, const char *store, uint32_t host, uint64_t segment_bytes,
                    struct arena *arena, struct error *error)
{
    Tensorcast__Daemon__V1__OpenActivationsRequest request = TENSORCAST__DAEMON__V1__OPEN_ACTIVATIONS_REQUEST__INIT;
    request.store = store;
    request.host = host;
    request.segment_bytes = segment_bytes;
    request.memory = (ProtobufCBinaryData){sizeof writer->region.token, writer->region.token};
    const Tensorcast__Daemon__V1__OpenActivationsResponse *response = (const void *)rpc_client_get(
        writer->client->rpc, "ActivationStore/Open", &request.base,
        &tensorcast__daemon__v1__open_activations_response__descriptor, &writer->wait, arena, error);
    if (!response)
        return -1;
    if (!response->writer.len || response->writer.len > ID_BYTES)
        return fail(error, ERROR_INTERNAL, "BAD_ANSWER", "the daemon named a writer by %zu bytes", response->writer.len);
    writer->id_bytes = response->writer.len;
    memcpy(writer->id, response->writer.data, writer->id_bytes);
    return 0;
}

int sample_writer_open(struct tc_client *client, const char *store, uint32_t host, uint64_t segment_bytes,
                       const struct wait *wait, struct sample_writer **opened, struct error *error)
{
    struct sample_writer *writer = memory_alloc(sizeof *writer);
    *writer = (struct sample_writer){.client = client, .wait = *wait, .memory_fd = -1, .region.lease = -1};
    struct arena arena = {0};
    int failed = make_memory(writer, error) < 0 || offer_memory(writer, &arena, error) < 0 ||
                         ask_open(writer, store, host, segment_bytes, &arena, error) < 0
                     ? -1
                     : 0;
    arena_fini(&arena);
    if (failed)
        free_writer(writer);
    else
        *opened = writer;
    return failed;
}

/* --- one sample --------------------------------------------------------------------------------------------------------- */

/* What has come together in the memory. */
static int send_part(struct sample_writer *writer, append_request *request, struct error *error)
{
    struct arena arena = {0};
    append_request part = TENSORCAST__DAEMON__V1__APPEND_ACTIVATIONS_REQUEST__INIT;
    if (!writer->sent)
        part = *request;
    part.writer = (ProtobufCBinaryData){writer->id_bytes, writer->id};
    part.sample = request->sample;
    part.offset = writer->sent;
    part.bytes = writer->filled;
    const void *answer =
        rpc_client_get(writer->client->rpc, "ActivationStore/Append", &part.base,
                       &tensorcast__daemon__v1__append_activations_response__descriptor, &writer->wait, &arena, error);
    arena_fini(&arena);
    writer->sent += writer->filled;
    writer->filled = 0;
    return answer ? 0 : -1;
}

static int put_bytes(struct sample_writer *writer, append_request *request, const unsigned char *bytes, uint64_t count,
                     struct error *error)
{
    while (count) {
        uint64_t room = MEMORY_BYTES - writer->filled, taken = count < room ? count : room;
        memcpy(writer->memory + writer->filled, bytes, taken);
        writer->filled += taken;
        bytes += taken;
        count -= taken;
        if (writer->filled == MEMORY_BYTES && count && send_part(writer, request, error) < 0)
            return -1;
    }
    return 0;
}

static bool is_in_order(const struct sample_plane *plane)
{
    for (uint32_t d = 0; d < plane->rank; d++)
        if (plane->axes[d] != d)
            return false;
    return true;
}

static void copy_in_order(const struct sample_plane *plane, unsigned char *turned)
{
    uint64_t size = dtype_bits(plane->dtype) / 8, n_elements = plane->n_bytes / size, stride = 1;
    uint64_t *index = memory_alloc_array(plane->rank + 1, sizeof *index),
             *strides = memory_alloc_array(plane->rank + 1, sizeof *strides);
    for (uint32_t k = plane->rank; k-- > 0; stride *= plane->shape[plane->axes[k]])
        strides[plane->axes[k]] = stride;
    for (uint64_t to = 0; to < n_elements; to++) {
        uint64_t from = 0;
        for (uint32_t d = 0; d < plane->rank; d++)
            from += index[d] * strides[d];
        memcpy(turned + to * size, plane->bytes + from * size, size);
        for (uint32_t d = plane->rank; d-- > 0 && ++index[d] == plane->shape[d];)
            index[d] = 0;
    }
    free(index);
    free(strides);
}

/* Of a complex number each half by itself. */
static void swap_bytes(enum dtype dtype, unsigned char *bytes, uint64_t n_bytes)
{
    uint64_t size = dtype_bits(dtype) / 8 / (dtype == DTYPE_C64 ? 2 : 1);
    for (uint64_t at = 0; at < n_bytes; at += size) {
        for (uint64_t i = 0; i < size / 2; i++) {
            unsigned char low = bytes[at + i];
            bytes[at + i] = bytes[at + size - 1 - i];
            bytes[at + size - 1 - i] = low;
        }
    }
}

unsigned char *sample_plane_turn(const struct sample_plane *plane)
{
    bool is_ordered = is_in_order(plane);
    if (is_ordered && !plane->is_big_endian)
        return NULL;
    unsigned char *turned = memory_alloc(plane->n_bytes + 1);
    if (is_ordered)
        memcpy(turned, plane->bytes, plane->n_bytes);
    else
        copy_in_order(plane, turned);
    if (plane->is_big_endian)
        swap_bytes(plane->dtype, turned, plane->n_bytes);
    return turned;
}

static int put_plane(struct sample_writer *writer, append_request *request, const struct sample_plane *plane,
                     struct error *error)
{
    /* what does not fit behind the others is sent apart, so that elements stay where they are aligned */
    if (writer->filled && plane->n_bytes > MEMORY_BYTES - writer->filled && send_part(writer, request, error) < 0)
        return -1;
    unsigned char *turned = sample_plane_turn(plane);
    int failed = put_bytes(writer, request, turned ? turned : plane->bytes, plane->n_bytes, error);
    free(turned);
    return failed;
}

static int compare_planes(const void *a, const void *b)
{
    const struct sample_plane *first = a, *second = b;
    unsigned bits = dtype_bits(first->dtype), other = dtype_bits(second->dtype);
    if (bits != other)
        return bits > other ? -1 : 1;
    return first->layer < second->layer ? -1 : first->layer > second->layer;
}

static void fill_columns(append_request *request, const struct sample_plane *planes, size_t n_planes, struct arena *arena)
{
    size_t n_dims = 0;
    for (size_t i = 0; i < n_planes; i++)
        n_dims += planes[i].rank;
    request->n_layers = request->n_dtypes = request->n_ranks = n_planes;
    request->n_dims = n_dims;
    request->layers = arena_array(arena, n_planes + 1, sizeof *request->layers);
    request->dtypes = arena_array(arena, n_planes + 1, sizeof *request->dtypes);
    request->ranks = arena_array(arena, n_planes + 1, sizeof *request->ranks);
    request->dims = arena_array(arena, n_dims + 1, sizeof *request->dims);
    for (size_t i = 0, at = 0; i < n_planes; at += planes[i++].rank) {
        request->layers[i] = planes[i].layer;
        request->dtypes[i] = (uint32_t)planes[i].dtype + 1;
        request->ranks[i] = planes[i].rank;
        for (uint32_t d = 0; d < planes[i].rank; d++)
            request->dims[at + d] = planes[i].shape[d];
    }
}

int sample_writer_append(struct sample_writer *writer, uint32_t sample, struct sample_plane *planes, size_t n_planes,
                         const char *info, struct error *error)
{
    append_request request = TENSORCAST__DAEMON__V1__APPEND_ACTIVATIONS_REQUEST__INIT;
    struct arena arena = {0};
    int failed = 0;
    if (n_planes)
        qsort(planes, n_planes, sizeof *planes, compare_planes);
    request.sample = sample;
    request.info = info;
    fill_columns(&request, planes, n_planes, &arena);
    writer->filled = writer->sent = 0;
    for (size_t i = 0; i < n_planes && !failed; i++)
        failed = put_plane(writer, &request, &planes[i], error);
    if (!failed)
        failed = send_part(writer, &request, error);
    arena_fini(&arena);
    return failed;
}

int sample_writer_close(struct sample_writer *writer, struct error *error)
{
    Tensorcast__Daemon__V1__CommitActivationsRequest commit = TENSORCAST__DAEMON__V1__COMMIT_ACTIVATIONS_REQUEST__INIT;
    Tensorcast__Daemon__V1__CloseActivationsRequest end = TENSORCAST__DAEMON__V1__CLOSE_ACTIVATIONS_REQUEST__INIT;
    struct arena arena = {0};
    const ProtobufCMessageDescriptor *answer = &tensorcast__daemon__v1__activations_resume__descriptor;
    commit.writer = end.writer = (ProtobufCBinaryData){writer->id_bytes, writer->id};
    bool is_durable =
        rpc_client_get(writer->client->rpc, "ActivationStore/Commit", &commit.base, answer, &writer->wait, &arena, error) &&
        rpc_client_get(writer->client->rpc, "ActivationStore/Close", &end.base, answer, &writer->wait, &arena, error);
    arena_fini(&arena);
    free_writer(writer);
    return is_durable ? 0 : -1;
}
