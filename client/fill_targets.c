/* tc_load_targets: what goes where, regions lent for the length of one call, and its report. */
#include "fill_targets.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/huge_pages.h"
#include "base/map.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "client.h"
#include "cuda_memory.h"
#include "dtype_name.h"
#include "handoff.h"
#include "report_json.h"
#include "tensorcast.h"
#include "tensorcast/daemon/v1/store_daemon.pb-c.h"
#include "variant.h"
#include "wait.h"

/* --- target region: ---
 * Host regions are memfds that cannot shrink: whatever this process does later, the daemon never touches memory that is gone. */

struct tc_region {
    void *memory; /* with a device an address there */
    uint64_t bytes;
    uint64_t mapped_bytes; /* 0 = nothing is mapped */
    int memfd;             /* -1 = GPU memory */
    char *device;          /* as the caller named it; NULL = host memory */
};

/* The ranges of a region that will be lent, as 2 MiB pieces of it. */
struct target_pieces {
    unsigned char *is_wanted; /* one for each piece; NULL = GPU memory */
    uint64_t n;
};

struct target_lease { /* of one region, for one load */
    struct region offer;
    struct cuda_memory *cuda; /* through which GPU memory is lent; NULL = host memory */
};

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

enum { HUGE_BYTES = HUGE_PAGE_BYTES, BATCH_PIECES = 32, BACKING_THREADS = 8 };

static struct tc_region *end_failed(struct tc_region *region, const struct error *cause, struct tc_error *error)
{
    tc_region_destroy(region);
    client_fail(error, cause);
    return NULL;
}

/* The whole memfd at a multiple of 2 MiB, so that huge pages stay huge. */
static int map_region(struct tc_region *region, struct error *error)
{
    uint64_t length;
    if (!checked_align(region->bytes, HUGE_BYTES, &length) || length > SIZE_MAX / 2)
        return fail(error, ERROR_INVALID_ARGUMENT, "BAD_REGION", "%llu bytes cannot be mapped",
                    (unsigned long long)region->bytes);
    char *reserved = mmap(NULL, length + HUGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED)
        return fail(error, ERROR_INVALID_ARGUMENT, "BAD_REGION", "this process has no room for %llu bytes: %s",
                    (unsigned long long)region->bytes, strerror(errno));
    char *start = (char *)(((uintptr_t)reserved + HUGE_BYTES - 1) & ~((uintptr_t)HUGE_BYTES - 1));
    size_t before = (size_t)(start - reserved);
    if (before)
        munmap(reserved, before);
    munmap(start + length, HUGE_BYTES - before);
    if (mmap(start, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, region->memfd, 0) == MAP_FAILED) {
        fail(error, ERROR_INVALID_ARGUMENT, "BAD_REGION", "the region's memory cannot be mapped to be written: %s",
             strerror(errno));
        munmap(start, length);
        return -1;
    }
    if (region->bytes >= HUGE_BYTES)
        madvise(start, length, MADV_HUGEPAGE); /* a kernel without them refuses, and nothing is lost */
    region->memory = start;
    region->mapped_bytes = length;
    return 0;
}

struct tc_region *tc_region_create(uint64_t bytes, struct tc_error *error)
{
    struct error cause;
    struct tc_region *region = memory_alloc(sizeof *region);
    *region = (struct tc_region){.bytes = bytes, .memfd = -1};
    int failed = 0;
    if (!bytes || bytes > INT64_MAX)
        failed = fail(&cause, ERROR_INVALID_ARGUMENT, "BAD_REGION", "a region of %llu bytes", (unsigned long long)bytes);
    if (!failed && (region->memfd = memfd_create("tensorcast-region", MFD_CLOEXEC | MFD_ALLOW_SEALING)) < 0)
        failed = fail_errno(&cause, errno, "cannot make a memfd");
    if (!failed && (ftruncate(region->memfd, (off_t)bytes) ||
                    fcntl(region->memfd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)))
        failed = fail_errno(&cause, errno, "cannot make a region of %llu bytes", (unsigned long long)bytes);
    if (failed || map_region(region, &cause))
        return end_failed(region, &cause, error);
    return region;
}

/* Why a descriptor's memory cannot be a region; NULL when it can. */
static const char *why_unfit(int memfd, uint64_t *bytes)
{
    struct stat info;
    int seals = fcntl(memfd, F_GET_SEALS);
    if (seals < 0)
        return "it is no memfd that takes seals (MFD_ALLOW_SEALING)";
    if (!(seals & F_SEAL_SHRINK))
        return "it could shrink; add F_SEAL_SHRINK";
    if (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE))
        return "it is sealed against writing";
    if (fstat(memfd, &info) || info.st_size <= 0)
        return "it is empty";
    *bytes = (uint64_t)info.st_size;
    return NULL;
}

struct tc_region *tc_region_open(int memfd, struct tc_error *error)
{
    struct error cause;
    struct tc_region *region = memory_alloc(sizeof *region);
    *region = (struct tc_region){.memfd = fcntl(memfd, F_DUPFD_CLOEXEC, 0)};
    const char *why = why_unfit(region->memfd, &region->bytes);
    if (why) {
        fail(&cause, ERROR_INVALID_ARGUMENT, "BAD_REGION", "descriptor %d cannot be a region: %s", memfd, why);
        return end_failed(region, &cause, error);
    }
    if (map_region(region, &cause))
        return end_failed(region, &cause, error);
    return region;
}

struct tc_region *tc_region_wrap(const char *device, void *memory, uint64_t bytes, struct tc_error *error)
{
    struct error cause;
    struct tc_region *region = memory_alloc(sizeof *region);
    *region = (struct tc_region){.memory = memory, .bytes = bytes, .memfd = -1};
    if (!cuda_memory_is_meant(device) || !memory || !bytes) {
        fail(&cause, ERROR_INVALID_ARGUMENT, "BAD_REGION", "a region of GPU memory needs a device, an address and a size");
        return end_failed(region, &cause, error);
    }
    region->device = memory_copy_text(device);
    return region;
}

void *tc_region_memory(const struct tc_region *region, uint64_t *bytes)
{
    if (bytes)
        *bytes = region->bytes;
    return region->memory;
}

void tc_region_destroy(struct tc_region *region)
{
    if (!region)
        return;
    if (region->mapped_bytes)
        munmap(region->memory, region->mapped_bytes);
    if (region->memfd >= 0)
        close(region->memfd);
    free(region->device);
    free(region);
}

/* --- pages ------------------------------------------------------------------------------------------------------- */

static void target_pieces_create(const struct tc_region *region, struct target_pieces *pieces)
{
    *pieces = (struct target_pieces){0};
    if (region->memfd < 0)
        return;
    pieces->n = (region->bytes + HUGE_BYTES - 1) / HUGE_BYTES;
    pieces->is_wanted = memory_alloc(pieces->n);
}

/* Adds the pieces in which [lo, hi) lies; what is outside of the region is for the daemon to refuse. */
static void target_pieces_add(struct target_pieces *pieces, uint64_t lo, uint64_t hi)
{
    uint64_t end = hi / HUGE_BYTES + (hi % HUGE_BYTES != 0);
    for (uint64_t i = lo / HUGE_BYTES; pieces->is_wanted && i < end && i < pieces->n; i++)
        pieces->is_wanted[i] = 1;
}

struct batches { /* of neighbours */
    const struct tc_region *region;
    enum huge_rung rung;
    struct batch {
        uint64_t first, n;
    } * list;
};

static int back_batch(void *data, size_t i, struct error *error)
{
    const struct batches *batches = data;
    uint64_t offset = batches->list[i].first * HUGE_BYTES, bytes = batches->list[i].n * HUGE_BYTES, huge_bytes;
    uint64_t left = batches->region->bytes - offset;
    return huge_pages_back(batches->rung, (unsigned char *)batches->region->memory + offset, bytes < left ? bytes : left,
                           &huge_bytes, error);
}

/* Makes their pages, on several threads. The process that makes a page is charged for it, so the daemon refuses memory with
 * holes. RESOURCE_EXHAUSTED when there is no memory. */
static int target_pieces_back(const struct target_pieces *pieces, const struct tc_region *region, struct error *error)
{
    struct batches batches = {.region = region,
                              .rung =
                                  region->bytes < HUGE_BYTES || huge_pages_on_fault() ? HUGE_RUNG_NONE : HUGE_RUNG_COLLAPSE,
                              .list = memory_alloc_array(pieces->n + 1, sizeof *batches.list)};
    size_t n = 0;
    for (uint64_t i = 0; i < pieces->n; i++) {
        if (!pieces->is_wanted[i])
            continue;
        struct batch *last = n ? &batches.list[n - 1] : NULL;
        if (last && last->first + last->n == i && last->n < BATCH_PIECES)
            last->n++;
        else
            batches.list[n++] = (struct batch){i, 1};
    }
    int failed = parallel_run(n, BACKING_THREADS, back_batch, &batches, error);
    free(batches.list);
    return failed;
}

/* --- for one load ------------------------------------------------------------------------------------------------ */

static int lend_gpu(const struct tc_region *region, const char *socket, const struct wait *wait, struct target_lease *lease,
                    struct error *error)
{
    struct handoff_region wire;
    int memory_fd;
    if (cuda_memory_open(region->device, &lease->cuda, error) ||
        cuda_memory_lend(lease->cuda, region->memory, region->bytes, &wire, &memory_fd, error))
        return -1;
    int failed = region_offer(socket, &wire, memory_fd, wait, &lease->offer, error);
    if (memory_fd >= 0)
        close(memory_fd);
    return failed;
}

/* Offers a region on the hand-off socket; the lease is to be ended whatever comes back. `device` becomes the GPU's UUID, "" = host memory; lives as
 * long as the lease. */
static int target_region_lend(const struct tc_region *region, const char *socket, const struct wait *wait,
                              struct target_lease *lease, const char **device, struct error *error)
{
    *lease = (struct target_lease){.offer.lease = -1};
    *device = "";
    if (region->memfd >= 0) {
        struct handoff_region wire = {.version = htole32(HANDOFF_VERSION),
                                      .kind = htole32(HANDOFF_REGION_HOST),
                                      .allocation_bytes = htole64(region->bytes),
                                      .bytes = htole64(region->bytes)};
        memcpy(wire.magic, HANDOFF_REGION_MAGIC, sizeof wire.magic);
        return region_offer(socket, &wire, region->memfd, wait, &lease->offer, error);
    }
    if (lend_gpu(region, socket, wait, lease, error))
        return -1;
    *device = cuda_memory_uuid(lease->cuda);
    return 0;
}

/* Waits until the daemon has let go of it; see region_end(). */
static int target_region_end(struct target_lease *lease, struct error *error)
{
    int failed = region_end(&lease->offer, error);
    cuda_memory_close(lease->cuda);
    return failed;
}

/* --- target columns: ---
 * Columns in the order of the message: a target for each tensor of the view, then fills, then covers. */

struct target_columns {                       /* all in the arena, or borrowed from the caller */
    struct tc_view view;                      /* what is to be loaded */
    const struct tc_target **tensors;         /* the target of each of its items */
    Tensorcast__Daemon__V1__Targets *message; /* without tokens */
    const struct tc_region **regions;         /* message->n_regions, in the order in which tokens belong */
};

typedef Tensorcast__Daemon__V1__Targets message;

static int refuse_target(const struct tc_target *target, struct error *error, const char *why)
{
    return fail(error, ERROR_INVALID_ARGUMENT, "BAD_TARGET", "target %.128s %s",
                target->name ? target->name : "without a name", why);
}

/* Its number in the protocol, 0 for none; element_bytes 0 for types below a byte. */
static int dtype_number(const char *name, uint64_t *element_bytes)
{
    uint64_t bits;
    for (int number = 1; dtype_name_of(number, &bits); number++)
        if (name && strcmp(dtype_name_of(number, &bits), name) == 0) {
            *element_bytes = bits / 8;
            return number;
        }
    return 0;
}

/* Which of the message's regions it is; a new one when it comes for the first time. Targets of one region come together. */
static uint32_t find_region(struct target_columns *columns, const struct tc_region *region)
{
    for (size_t i = columns->message->n_regions; i-- > 0;)
        if (columns->regions[i] == region)
            return (uint32_t)i;
    columns->regions[columns->message->n_regions] = region;
    return (uint32_t)columns->message->n_regions++;
}

static int add_row(const struct tc_target *target, struct target_columns *columns, struct error *error)
{
    message *to = columns->message;
    uint64_t element_bytes = 0;
    int dtype = dtype_number(target->dtype, &element_bytes);
    if (!target->region)
        return refuse_target(target, error, "has no region");
    if (!dtype)
        return refuse_target(target, error, "has a dtype that no tensor has; it is a name of safetensors, such as BF16");
    if (!element_bytes)
        return refuse_target(target, error, "has a dtype below one byte, which has no strides; load it with tc_load_view()");
    if (target->rank > TC_MAX_RANK)
        return refuse_target(target, error, "has too many dimensions");
    if (target->rank && !target->shape)
        return refuse_target(target, error, "has dimensions but no shape");
    uint64_t stride = element_bytes;
    if (target->strides) {
        memcpy(to->strides + to->n_strides, target->strides, target->rank * sizeof *target->strides);
    } else {
        for (size_t k = target->rank; k-- > 0;) {
            to->strides[to->n_strides + k] = (int64_t)stride;
            if (!checked_mul(stride, target->shape[k] ? target->shape[k] : 1, &stride) || stride > INT64_MAX)
                return refuse_target(target, error, "has more bytes than there can be");
        }
    }
    to->n_strides += target->rank;
    if (target->rank)
        memcpy(to->dims + to->n_dims, target->shape, target->rank * sizeof *target->shape);
    to->n_dims += target->rank;
    to->dtypes[to->n_dtypes++] = (Tensorcast__Daemon__V1__DType)dtype;
    to->ranks[to->n_ranks++] = (uint32_t)target->rank;
    to->region_indexes[to->n_region_indexes++] = find_region(columns, target->region);
    to->offsets[to->n_offsets++] = target->offset;
    return 0;
}

/* The message knows no const, so it gets a copy of the value. */
static int add_fill(const struct tc_target *target, struct target_columns *columns, struct arena *arena, struct error *error)
{
    message *to = columns->message;
    uint64_t element_bytes;
    if (add_row(target, columns, error) || !dtype_number(target->dtype, &element_bytes))
        return -1;
    uint8_t *value = arena_alloc(arena, element_bytes);
    memcpy(value, target->value, element_bytes);
    to->fill_names[to->n_fill_names++] = target->name;
    to->fill_values[to->n_fill_values++] = (ProtobufCBinaryData){element_bytes, value};
    return 0;
}

/* --- names ------------------------------------------------------------------------------------------------------- */

static void view_of_targets(const struct tc_targets *targets, struct arena *arena, struct tc_view *view)
{
    struct tc_view_item *items = arena_array(arena, targets->n_targets + 1, sizeof *items);
    *view = (struct tc_view){.items = items};
    for (size_t i = 0; i < targets->n_targets; i++)
        if (!targets->targets[i].value)
            items[view->n_items++].name = targets->targets[i].name;
}

static int index_names(const struct tc_targets *targets, struct map *by_name, struct error *error)
{
    for (size_t i = 0; i < targets->n_targets; i++) {
        const struct tc_target *target = &targets->targets[i];
        if (!target->name)
            return refuse_target(target, error, "is none");
        if (map_find(by_name, target->name, strlen(target->name)) != MAP_NONE)
            return refuse_target(target, error, "comes twice");
        map_add(by_name, target->name, strlen(target->name), (uint32_t)i);
    }
    for (size_t i = 0; i < targets->n_covers; i++)
        if (!targets->covers[i].name)
            return refuse_target(&targets->covers[i], error, "is none");
    return 0;
}

/* Each tensor of the view has one target without a value, and no such target is left over. */
static int match_names(const struct tc_targets *targets, const struct map *by_name, struct target_columns *columns,
                       struct arena *arena, struct error *error)
{
    bool *is_used = arena_array(arena, targets->n_targets + 1, sizeof *is_used);
    for (size_t i = 0; i < columns->view.n_items; i++) {
        const char *name = columns->view.items[i].name;
        uint32_t index = map_find(by_name, name, strlen(name));
        if (index == MAP_NONE || targets->targets[index].value)
            return fail(error, ERROR_INVALID_ARGUMENT, "BAD_TARGET", "tensor %.128s of the view has no target", name);
        columns->tensors[i] = &targets->targets[index];
        is_used[index] = true;
    }
    for (size_t i = 0; i < targets->n_targets; i++)
        if (!targets->targets[i].value && !is_used[i])
            return refuse_target(&targets->targets[i], error,
                                 "is no tensor of the view and has no value: nothing would be written to it");
    return 0;
}

/* --- all of it --------------------------------------------------------------------------------------------------- */

static void make_room(const struct tc_targets *targets, struct arena *arena, struct target_columns *columns)
{
    message *to = columns->message = arena_alloc(arena, sizeof *to);
    size_t n = targets->n_targets + targets->n_covers + 1, n_dims = 1;
    for (size_t i = 0; i < targets->n_targets; i++)
        n_dims += targets->targets[i].rank <= TC_MAX_RANK ? targets->targets[i].rank : 0;
    for (size_t i = 0; i < targets->n_covers; i++)
        n_dims += targets->covers[i].rank <= TC_MAX_RANK ? targets->covers[i].rank : 0;
    tensorcast__daemon__v1__targets__init(to);
    columns->regions = arena_array(arena, n, sizeof *columns->regions);
    columns->tensors = arena_array(arena, columns->view.n_items + 1, sizeof *columns->tensors);
    to->fill_names = arena_array(arena, n, sizeof *to->fill_names);
    to->fill_values = arena_array(arena, n, sizeof *to->fill_values);
    to->cover_names = arena_array(arena, n, sizeof *to->cover_names);
    to->dtypes = arena_array(arena, n, sizeof *to->dtypes);
    to->ranks = arena_array(arena, n, sizeof *to->ranks);
    to->region_indexes = arena_array(arena, n, sizeof *to->region_indexes);
    to->offsets = arena_array(arena, n, sizeof *to->offsets);
    to->dims = arena_array(arena, n_dims, sizeof *to->dims);
    to->strides = arena_array(arena, n_dims, sizeof *to->strides);
}

static int add_all(const struct tc_targets *targets, struct target_columns *columns, struct arena *arena,
                   struct error *error)
{
    for (size_t i = 0; i < columns->view.n_items; i++)
        if (add_row(columns->tensors[i], columns, error))
            return -1;
    for (size_t i = 0; i < targets->n_targets; i++)
        if (targets->targets[i].value && add_fill(&targets->targets[i], columns, arena, error))
            return -1;
    for (size_t i = 0; i < targets->n_covers; i++) {
        if (add_row(&targets->covers[i], columns, error))
            return -1;
        columns->message->cover_names[columns->message->n_cover_names++] = targets->covers[i].name;
    }
    return 0;
}

/* view NULL: the tensors that targets without a value name, whole. INVALID_ARGUMENT for names that are missing or come twice,
 * unknown dtypes, too many dimensions, no region. What is right by itself but not in its region, or against the tensor, is
 * the daemon's to say. */
static int target_columns_build(const struct tc_view *view, const struct tc_targets *targets, struct arena *arena,
                                struct target_columns *columns, struct error *error)
{
    struct map by_name;
    *columns = (struct target_columns){0};
    if (view)
        columns->view = *view;
    else
        view_of_targets(targets, arena, &columns->view);
    make_room(targets, arena, columns);
    map_init(&by_name, targets->n_targets);
    int failed = index_names(targets, &by_name, error) || match_names(targets, &by_name, columns, arena, error) ? -1 : 0;
    map_fini(&by_name);
    return failed ? failed : add_all(targets, columns, arena, error);
}

/* --- fill targets --- */

struct lending { /* regions that are lent, in order */
    struct target_lease *leases;
    size_t n_leases;
    const char *device; /* of all of them; "" = host memory */
};

/* The bytes between the first and the last element of a target. */
static void add_target(struct target_pieces *pieces, const message *columns, size_t i, const uint64_t *dims,
                       const int64_t *strides)
{
    uint64_t bits, lo = columns->offsets[i], hi = lo;
    if (!dtype_name_of((int)columns->dtypes[i], &bits))
        return;
    for (uint32_t k = 0; k < columns->ranks[i]; k++) {
        if (dims[k] == 0)
            return;
        if (strides[k] < 0)
            lo -= (dims[k] - 1) * (0 - (uint64_t)strides[k]);
        else
            hi += (dims[k] - 1) * (uint64_t)strides[k];
    }
    target_pieces_add(pieces, lo, hi + bits / 8);
}

/* Makes the pages of all host memory that is to be lent. */
static int back_all(const struct target_columns *columns, struct error *error)
{
    const message *to = columns->message;
    struct target_pieces *pieces = memory_alloc_array(to->n_regions + 1, sizeof *pieces);
    size_t at = 0;
    int failed = 0;
    for (size_t r = 0; r < to->n_regions; r++)
        target_pieces_create(columns->regions[r], &pieces[r]);
    for (size_t i = 0; i < to->n_offsets; at += to->ranks[i++])
        add_target(&pieces[to->region_indexes[i]], to, i, to->dims + at, to->strides + at);
    for (size_t r = 0; r < to->n_regions; r++) {
        failed = failed || target_pieces_back(&pieces[r], columns->regions[r], error) ? -1 : 0;
        free(pieces[r].is_wanted);
    }
    free(pieces);
    return failed;
}

/* Of several regions all lie in one kind of memory. */
static int lend_all(struct tc_client *client, const struct target_columns *columns, const struct wait *wait,
                    struct lending *lending, struct arena *arena, struct error *error)
{
    message *to = columns->message;
    to->regions = arena_array(arena, to->n_regions + 1, sizeof *to->regions);
    lending->leases = arena_array(arena, to->n_regions + 1, sizeof *lending->leases);
    lending->device = "";
    const char *socket = region_socket(client, wait, arena, error);
    if (!socket)
        return -1;
    for (size_t i = 0; i < to->n_regions; i++) {
        struct target_lease *lease = &lending->leases[lending->n_leases++];
        const char *device;
        if (target_region_lend(columns->regions[i], socket, wait, lease, &device, error))
            return -1;
        if (i && strcmp(device, lending->device) != 0)
            return fail(error, ERROR_UNIMPLEMENTED, "MIXED_TARGETS",
                        "the regions are on different devices; one load fills host memory or one GPU");
        lending->device = device;
        to->regions[i] = (ProtobufCBinaryData){sizeof lease->offer.token, lease->offer.token};
    }
    return 0;
}

/* Whatever happens, the daemon has let go of all regions in the end. */
static int end_all(struct lending *lending, struct error *error)
{
    int failed = 0;
    for (size_t i = 0; i < lending->n_leases; i++)
        failed |= target_region_end(&lending->leases[i], error);
    return failed;
}

static char *write_report(const Tensorcast__Daemon__V1__LoadResult *result, const struct target_columns *columns)
{
    size_t n = columns->view.n_items;
    struct report_json_tensor *tensors = memory_alloc_array(n + 1, sizeof *tensors);
    for (size_t i = 0; i < n; i++) {
        const struct tc_target *target = columns->tensors[i];
        uint64_t bits, bytes = dtype_name_of((int)columns->message->dtypes[i], &bits) ? bits / 8 : 0;
        for (size_t k = 0; k < target->rank; k++)
            bytes *= target->shape[k];
        tensors[i] = (struct report_json_tensor){.name = target->name,
                                                 .name_length = strlen(target->name),
                                                 .dtype = target->dtype,
                                                 .shape = target->shape,
                                                 .rank = target->rank,
                                                 .offset = target->offset,
                                                 .bytes = bytes};
    }
    char *json = report_json(result->report, tensors, n, false);
    free(tensors);
    return json;
}

/* Errors of a daemon that was not heard say nothing of what it has written by then, nor do those about its answer. Into what
 * pieces of files are fetched is memory of this library. */
static int tell_undefined(const struct load_question *question, const struct load_stream *stream, struct error *error)
{
    load_stream_how_far(stream, error);
    if (question->files)
        return -1;
    if (stream->has_ended || error->kind == ERROR_KIND_DEADLINE_EXCEEDED || error->code == ERROR_CANCELLED ||
        error->code == ERROR_UNAVAILABLE)
        error_append(error, "; the content of the targets is undefined");
    return -1;
}

static int ask_and_fill(struct tc_client *client, struct load_question *question, const struct tc_targets *targets,
                        struct arena *arena, char **json, struct error *error)
{
    const struct wait wait = client_wait(question->options);
    struct load_stream stream = {.options = question->options};
    struct target_columns columns;
    struct lending lending = {0};
    struct error held;
    if (target_columns_build(question->view, targets, arena, &columns, error))
        return -1;
    question->view = &columns.view;
    question->targets = columns.message;
    int failed = back_all(&columns, error) || lend_all(client, &columns, &wait, &lending, arena, error) ? -1 : 0;
    question->device = lending.device;
    if (!failed && load_stream_ask(client, question, &wait, arena, &stream, error))
        failed = tell_undefined(question, &stream, error);
    if (end_all(&lending, &held)) {
        *error = held;
        return -1;
    }
    if (failed || load_stream_done(&stream, stream.result->report->target_bytes, error))
        return -1;
    if (json)
        *json = write_report(stream.result, &columns);
    return 0;
}

int fill_targets(struct tc_client *client, struct load_question *question, const struct tc_targets *targets, char **json,
                 struct error *error)
{
    struct arena arena;
    arena_init(&arena, 0);
    int failed = ask_and_fill(client, question, targets, &arena, json, error);
    arena_fini(&arena);
    return failed;
}

int tc_load_targets(struct tc_client *client, const char *artifact, const struct tc_view *view,
                    const struct tc_targets *targets, const struct tc_options *options, char **json, struct tc_error *error)
{
    struct error cause;
    struct load_question question = {.artifact = artifact, .view = view, .options = options, .device = ""};
    if (fill_targets(client, &question, targets, json, &cause) == 0)
        return 0;
    variant_locate(options ? options->variant : NULL, &cause);
    return client_fail(error, &cause);
}
