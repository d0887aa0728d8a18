/* See load_scene.h. */
#include "tests/support/load_scene.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/loop.h"
#include "base/memory.h"
#include "tests/support/random_bytes.h"
#include "tests/support/random_transfers.h"
#include "tests/support/source_bytes.h"
#include "tests/support/source_memory.h"
#include "tests/support/transfer_apply.h"

/* --- device fault --- */

struct fault_segment {
    struct segment base;
    struct segment *inner;
};

struct segment *device_fault_inner(struct segment *segment)
{
    return ((struct fault_segment *)segment)->inner;
}

static int count_call(struct device *device, const char *what, struct error *error)
{
    struct device_fault *fault = (struct device_fault *)device;
    uint64_t number = __atomic_add_fetch(&fault->n_calls, 1, __ATOMIC_RELAXED);
    if (fault->delay_ns)
        nanosleep(&(struct timespec){.tv_nsec = (long)fault->delay_ns}, NULL);
    if (number != fault->fail_from)
        return 0;
    return fail(error, ERROR_RESOURCE_EXHAUSTED, "INJECTED", "injected failure of device call %llu, %s",
                (unsigned long long)number, what);
}

static int fault_allocate(struct device *device, uint64_t bytes, struct segment *segment, struct error *error)
{
    struct device_fault *fault = (struct device_fault *)device;
    struct segment *inner;
    if (count_call(device, "allocate", error) || device_allocate(fault->inner, bytes, &inner, error))
        return -1;
    segment->host_address = fault->hides_address ? NULL : inner->host_address;
    segment->allocated_bytes = inner->allocated_bytes;
    segment->dirty = inner->dirty || fault->gives_dirty_memory;
    if (fault->gives_dirty_memory && device_prepare(inner, 0, inner->allocated_bytes, error) == 0)
        memset(inner->host_address, 0xE7, inner->allocated_bytes);
    ((struct fault_segment *)segment)->inner = inner;
    __atomic_add_fetch(&fault->n_segments, 1, __ATOMIC_RELAXED);
    return 0;
}

static int fault_prepare(struct segment *segment, uint64_t offset, uint64_t bytes, struct error *error)
{
    return count_call(segment->device, "prepare", error) ? -1
                                                         : device_prepare(device_fault_inner(segment), offset, bytes, error);
}

static int fault_copy(struct segment *segment, uint64_t offset, const void *src, const struct device_rows *rows,
                      struct error *error)
{
    return count_call(segment->device, "copy", error) ? -1
                                                      : device_copy(device_fault_inner(segment), offset, src, rows, error);
}

static int fault_seal(struct segment *segment, struct error *error)
{
    return count_call(segment->device, "seal", error) ? -1 : device_seal(device_fault_inner(segment), error);
}

static int fault_export_fd(struct segment *segment, struct error *error)
{
    return count_call(segment->device, "export", error) ? -1 : device_export_fd(device_fault_inner(segment), error);
}

static enum page_kind fault_page_kind(struct segment *segment)
{
    return device_page_kind(device_fault_inner(segment));
}

static void fault_release(struct segment *segment)
{
    struct device_fault *fault = (struct device_fault *)segment->device;
    segment_unref(device_fault_inner(segment));
    __atomic_sub_fetch(&fault->n_segments, 1, __ATOMIC_RELAXED);
}

static void fault_destroy(struct device *device)
{
    free(device);
}

static const struct device_ops fault_ops = {
    .name = "fault",
    .segment_size = sizeof(struct fault_segment),
    .allocate = fault_allocate,
    .prepare = fault_prepare,
    .copy = fault_copy,
    .seal = fault_seal,
    .export_fd = fault_export_fd,
    .page_kind = fault_page_kind,
    .release = fault_release,
    .destroy = fault_destroy,
};

struct device_fault *device_fault_create(struct device *inner)
{
    struct device_fault *fault = memory_alloc(sizeof *fault);
    fault->base = (struct device){.ops = &fault_ops, .caps = inner->caps};
    fault->inner = inner;
    return fault;
}

/* --- source remote --- */

enum { SLICE_NS = 1000000, LINK_PIECE_BYTES = 1 << 20 };

static void raise_to(uint64_t *most, uint64_t value)
{
    uint64_t seen = __atomic_load_n(most, __ATOMIC_RELAXED);
    while (value > seen && !__atomic_compare_exchange_n(most, &seen, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

static void lower_to(uint64_t *least, uint64_t value)
{
    uint64_t seen = __atomic_load_n(least, __ATOMIC_RELAXED);
    while (value < seen && !__atomic_compare_exchange_n(least, &seen, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

static int sleep_until(uint64_t until_ns, const struct cancel *cancel, struct error *error)
{
    for (uint64_t now_ns = clock_now_ns(); now_ns < until_ns; now_ns = clock_now_ns()) {
        if (cancel_is_set(cancel))
            return fail(error, ERROR_CANCELLED, "READ_CANCELLED", "no load waits for this range any more");
        uint64_t rest_ns = until_ns - now_ns < SLICE_NS ? until_ns - now_ns : SLICE_NS;
        nanosleep(&(struct timespec){.tv_nsec = (long)rest_ns}, NULL);
    }
    return 0;
}

/* When the last of so many bytes is through the link, if they enter it now. */
static uint64_t through_link_ns(struct source_remote *remote, uint64_t bytes)
{
    uint64_t now_ns = clock_now_ns();
    if (!remote->link_bytes_per_s)
        return now_ns;
    pthread_mutex_lock(&remote->lock);
    uint64_t from_ns = remote->link_free_ns > now_ns ? remote->link_free_ns : now_ns;
    uint64_t end_ns = remote->link_free_ns = from_ns + bytes * 1000000000 / remote->link_bytes_per_s;
    pthread_mutex_unlock(&remote->lock);
    return end_ns;
}

static int wait_for_release(struct source_remote *remote, const struct cancel *cancel, struct error *error)
{
    __atomic_add_fetch(&remote->n_held, 1, __ATOMIC_RELEASE);
    while (!__atomic_load_n(&remote->is_released, __ATOMIC_RELAXED))
        if (sleep_until(clock_now_ns() + SLICE_NS, cancel, error))
            return -1;
    return 0;
}

static int transfer(struct source_remote *remote, uint64_t started_ns, uint64_t bytes, const struct source_read *read,
                    struct error *error)
{
    for (uint64_t sent = 0; sent < bytes;) {
        uint64_t piece = bytes - sent < LINK_PIECE_BYTES ? bytes - sent : LINK_PIECE_BYTES, until_ns = started_ns;
        sent += piece;
        if (remote->connection_bytes_per_s)
            until_ns += sent * 1000000000 / remote->connection_bytes_per_s;
        uint64_t link_ns = through_link_ns(remote, piece);
        if (sleep_until(until_ns > link_ns ? until_ns : link_ns, read->cancel, error))
            return -1;
        arrival_tell(read->arrival, piece);
        if (sent == remote->holds_after_bytes && wait_for_release(remote, read->cancel, error))
            return -1;
    }
    return 0;
}

static int copy(struct source_remote *remote, const struct source_read *read, struct error *error)
{
    uint64_t offset = read->offset;
    for (int i = 0; i < read->n_iov; i++) {
        const struct iovec *iov = &read->iov[i];
        if (iov->iov_base && remote->invents_bytes)
            memset(iov->iov_base, 7, iov->iov_len);
        else if (iov->iov_base && source_read_bytes(remote->inner, read->file, offset, iov->iov_base, iov->iov_len, error))
            return -1;
        offset += iov->iov_len;
    }
    return 0;
}

static int remote_read(struct source *source, struct source_read *read, struct error *error)
{
    struct source_remote *remote = (struct source_remote *)source;
    uint64_t bytes = 0;
    for (int i = 0; i < read->n_iov; i++)
        bytes += read->iov[i].iov_len;
    __atomic_add_fetch(&remote->n_reads, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&remote->read_bytes, bytes, __ATOMIC_RELAXED);
    raise_to(&remote->longest_read, bytes);
    lower_to(&remote->shortest_read, bytes);
    raise_to(&remote->most_in_flight, __atomic_add_fetch(&remote->in_flight, 1, __ATOMIC_RELAXED));
    int result = sleep_until(clock_now_ns() + remote->latency_ns, read->cancel, error);
    uint64_t started_ns = clock_now_ns();
    if (result == 0)
        result = copy(remote, read, error) || transfer(remote, started_ns, bytes, read, error) ? -1 : 0;
    if (result && error->code == ERROR_CANCELLED)
        __atomic_add_fetch(&remote->n_cancelled, 1, __ATOMIC_RELAXED);
    __atomic_sub_fetch(&remote->in_flight, 1, __ATOMIC_RELAXED);
    return result;
}

static int remote_check_unchanged(struct source *source, size_t file, bool by_name, struct error *error)
{
    return by_name ? source_check_unchanged(((struct source_remote *)source)->inner, file, error) : 0;
}

static void remote_speed(struct source *source, struct source_speed *speed)
{
    struct source_remote *remote = (struct source_remote *)source;
    if (remote->hides_speed)
        return;
    *speed = (struct source_speed){.latency_us = remote->latency_ns / 1000,
                                   .connection_bytes_per_s = remote->connection_bytes_per_s,
                                   .bytes_per_s = remote->link_bytes_per_s,
                                   .parallel_requests = remote->allowed_requests,
                                   .requests = __atomic_load_n(&remote->n_reads, __ATOMIC_RELAXED),
                                   .received_bytes = __atomic_load_n(&remote->read_bytes, __ATOMIC_RELAXED)};
}

static void remote_close(struct source *source)
{
    struct source_remote *remote = (struct source_remote *)source;
    pthread_mutex_destroy(&remote->lock);
    source_unref(remote->inner);
}

static const struct source_ops remote_ops = {
    .name = "remote",
    .source_size = sizeof(struct source_remote),
    .read = remote_read,
    .check_unchanged = remote_check_unchanged,
    .speed = remote_speed,
    .close = remote_close,
};

struct source_remote *source_remote_create(struct source *inner)
{
    struct source_remote *remote = memory_alloc(sizeof *remote);
    remote->base = *inner;
    remote->base.ops = &remote_ops;
    remote->base.references = 1;
    remote->base.reference = memory_copy_text(inner->reference);
    remote->base.files = memory_copy(inner->files, inner->n_files * sizeof *inner->files);
    for (size_t i = 0; i < inner->n_files; i++)
        remote->base.files[i].name = memory_copy_text(inner->files[i].name);
    remote->base.handles = memory_alloc_array(inner->n_files, sizeof *inner->handles);
    remote->base.caps = (struct source_caps){.filesystem = SOURCE_NETWORK,
                                             .filesystem_type = "store",
                                             SOURCE_CAPS_OF_REQUESTS,
                                             .request_bytes = 16 << 20,
                                             .parallel_requests = 32};
    remote->shortest_read = UINT64_MAX;
    remote->inner = inner;
    pthread_mutex_init(&remote->lock, NULL);
    return remote;
}

/* --- the scene --- */

uint64_t scene_random(struct load_scene *scene, uint64_t below)
{
    scene->random ^= scene->random << 13;
    scene->random ^= scene->random >> 7;
    scene->random ^= scene->random << 17;
    return (scene->random * 0x2545F4914F6CDD1Du >> 16) % below;
}

static const char file_letters[SCENE_MAX_FILES + 1] = "0123456789abcdefg"; /* in the order of names */

void scene_init(struct load_scene *scene, uint64_t seed, uint64_t staging_bytes, uint64_t n_threads, uint64_t pool_bytes)
{
    struct error error;
    *scene = (struct load_scene){.seed = seed, .random = seed * 0x9E3779B97F4A7C15u + 1};
    scene->loop = loop_create();
    scene->device = device_host_create(pool_bytes);
    struct engine_options options = {.loop = scene->loop, .staging_budget_bytes = staging_bytes, .io_threads = n_threads};
    int result = engine_create(&options, &scene->engine, &error);
    assert(result == 0);
    (void)result;
}

void scene_use_extent_cache(struct load_scene *scene, uint64_t staging_bytes, uint64_t cache_bytes)
{
    struct error error;
    struct engine_options options = {
        .loop = scene->loop, .staging_budget_bytes = staging_bytes, .extent_cache_bytes = cache_bytes};
    engine_destroy(scene->engine);
    int result = engine_create(&options, &scene->engine, &error);
    assert(result == 0);
    (void)result;
}

struct source_remote *scene_move_away(struct load_scene *scene)
{
    struct source_remote *remote = source_remote_create(scene->artifact->source);
    scene->artifact->source = &remote->base;
    return remote;
}

static void remove_files(struct load_scene *scene)
{
    char path[128];
    for (size_t i = 0; i < scene->n_files && scene->folder[0]; i++) {
        snprintf(path, sizeof path, "%s/part%c.safetensors", scene->folder, file_letters[i]);
        unlink(path);
    }
    if (scene->folder[0])
        rmdir(scene->folder);
}

void scene_fini(struct load_scene *scene)
{
    artifact_unref(scene->artifact);
    engine_destroy(scene->engine);
    device_destroy(scene->device);
    loop_destroy(scene->loop);
    remove_files(scene);
    for (size_t i = 0; i < scene->n_files; i++)
        free(scene->images[i]);
    source_memory_clear();
}

void scene_add_tensor(struct load_scene *scene, uint32_t rank, const uint64_t *shape)
{
    assert(scene->n_tensors < SCENE_MAX_TENSORS);
    struct scene_tensor *tensor = &scene->tensors[scene->n_tensors];
    snprintf(tensor->name, sizeof tensor->name, "t.%zu", scene->n_tensors++);
    tensor->rank = rank;
    for (uint32_t d = 0; d < rank; d++)
        tensor->shape[d] = shape[d];
}

static uint64_t tensor_bytes(const struct scene_tensor *tensor)
{
    uint64_t bytes = 1;
    for (uint32_t d = 0; d < tensor->rank; d++)
        bytes *= tensor->shape[d];
    return bytes;
}

static void make_image(struct load_scene *scene, size_t file)
{
    char header[8192] = "{";
    uint64_t end = 0;
    for (size_t i = file; i < scene->n_tensors; i += scene->n_files) {
        const struct scene_tensor *tensor = &scene->tensors[i];
        size_t used = strlen(header);
        used += (size_t)snprintf(header + used, sizeof header - used, "%s\"%s\":{\"dtype\":\"U8\",\"shape\":[",
                                 i > file ? "," : "", tensor->name);
        for (uint32_t d = 0; d < tensor->rank; d++)
            used += (size_t)snprintf(header + used, sizeof header - used, "%s%llu", d ? "," : "",
                                     (unsigned long long)tensor->shape[d]);
        uint64_t next = end + tensor_bytes(tensor);
        snprintf(header + used, sizeof header - used, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)end,
                 (unsigned long long)next);
        end = next;
    }
    strcat(header, "}");
    uint64_t length = strlen(header);
    scene->image_bytes[file] = 8 + length + end;
    unsigned char *image = scene->images[file] = memory_alloc(scene->image_bytes[file]);
    random_bytes_fill(image, scene->image_bytes[file], scene_random(scene, UINT64_MAX));
    memcpy(image, &length, 8);
    memcpy(image + 8, header, length);
}

static void put_file(struct load_scene *scene, size_t file)
{
    char name[64], path[160];
    snprintf(name, sizeof name, "part%c.safetensors", file_letters[file]);
    if (!scene->folder[0]) {
        source_memory_put("scene", name, scene->images[file], scene->image_bytes[file]);
        return;
    }
    snprintf(path, sizeof path, "%s/%s", scene->folder, name);
    FILE *out = fopen(path, "we");
    assert(out);
    size_t written = fwrite(scene->images[file], 1, scene->image_bytes[file], out);
    assert(written == scene->image_bytes[file]);
    (void)written;
    fclose(out);
}

void scene_add_mixed_tensors(struct load_scene *scene, size_t n_tensors, uint64_t scale)
{
    for (size_t i = 0; i < n_tensors; i++) {
        uint32_t rank = (uint32_t)scene_random(scene, 4);
        uint64_t shape[3];
        for (uint32_t d = 0; d < rank; d++)
            shape[d] = scene_random(scene, 40) == 0 ? 0
                                                    : 1 + scene_random(scene, rank == 1   ? scale * 64
                                                                              : rank == 2 ? scale
                                                                                          : 40);
        scene_add_tensor(scene, rank, shape);
    }
}

void scene_write(struct load_scene *scene, size_t n_files, bool on_disk)
{
    char reference[128] = "memory:scene";
    struct error error;
    scene->n_files = n_files;
    if (on_disk) {
        strcpy(scene->folder, "/tmp/tensorcast-scene-XXXXXX");
        char *made = mkdtemp(scene->folder);
        assert(made);
        (void)made;
        snprintf(reference, sizeof reference, "disk:%s", scene->folder);
    }
    for (size_t i = 0; i < n_files; i++) {
        make_image(scene, i);
        put_file(scene, i);
    }
    struct source_options options = {.trusted_roots = (const char *const[]){"/tmp"}, .n_trusted_roots = 1};
    if (artifact_resolve(reference, &options, NULL, false, &scene->artifact, &error)) {
        fprintf(stderr, "resolve: %s\n", error.message);
        abort();
    }
}

void scene_init_matrices(struct load_scene *scene)
{
    scene_init(scene, 7, 8 << 20, 2, 0);
    for (int i = 0; i < 4; i++)
        scene_add_tensor(scene, 2, (uint64_t[]){SCENE_ROWS, SCENE_COLUMNS});
    scene_write(scene, 2, false);
}

static struct plan *make_plan(const struct load *load, const struct view_spec *view, int executor,
                              const struct device *device)
{
    struct error error;
    struct materialization_strategy strategy = {.enable_local_batched_disk_load = true,
                                                .allow_mixed_execution = true,
                                                .remote_fine_slices = load->scene->fine_slices};
    struct load_spec spec = {.artifact = "scene", .view = *view, .policy = {.executor = executor}};
    struct plan_facts facts = {.strategy = &strategy,
                               .costs = &cost_defaults,
                               .source = load->source->base.caps,
                               .extent_cache_bytes = 64 << 20,
                               .device = device->caps,
                               .staging_budget_bytes = 64 << 20};
    source_speed(&load->source->base, &facts.speed);
    struct plan *plan = plan_build(load->mapping, &spec, &facts, &error);
    assert(plan);
    return plan;
}

static struct load *create_of_mapping(struct load_scene *scene, struct mapping *mapping, const struct view_spec *view,
                                      int executor, struct device *device)
{
    struct load *load = memory_alloc(sizeof *load);
    load->scene = scene;
    load->mapping = mapping;
    load->source = source_fault_create(source_ref(scene->artifact->source));
    load->artifact = *scene->artifact;
    load->artifact.source = &load->source->base;
    load->mapping->artifact = &load->artifact;
    load->plan = make_plan(load, view, executor, device);
    if (device_allocate(device, load->mapping->replica_bytes, &load->segment, &load->error))
        load->has_failed = true;
    return load;
}

static struct mapping *build_mapping(struct load_scene *scene, const struct view_spec *view)
{
    struct error error;
    struct mapping *mapping = mapping_build(view, scene->artifact, &error);
    if (!mapping) {
        fprintf(stderr, "mapping: %s\n", error.message);
        abort();
    }
    return mapping;
}

struct load *scene_load_create(struct load_scene *scene, const struct view_spec *view, int executor, struct device *device)
{
    return create_of_mapping(scene, build_mapping(scene, view), view, executor, device);
}

struct load *scene_load_create_transfers(struct load_scene *scene, struct random_transfers *transfers, int executor,
                                         struct device *device)
{
    const struct view_spec view = {.whole = true, .align_bytes = 64};
    struct mapping *mapping = build_mapping(scene, &view);
    struct error error;
    mapping->n_transfers = transfers->n;
    mapping->transfers = arena_array(&mapping->arena, transfers->n + 1, sizeof *mapping->transfers);
    memcpy(mapping->transfers, transfers->list, transfers->n * sizeof *mapping->transfers);
    mapping->operations = transfers->operations;
    mapping->n_operations = transfers->n_operations;
    if (mapping_order(mapping, &error))
        abort();
    mapping->view_bytes = 0;
    mapping->replica_bytes = transfers->dst_bytes;
    for (size_t i = 0; i < transfers->n; i++) {
        const struct operation *operation = mapping_operation(mapping, &transfers->list[i]);
        uint64_t bytes = transfer_bytes(&transfers->list[i]);
        mapping->view_bytes += operation ? operation_dst_bytes(operation, bytes) : bytes;
    }
    mapping->n_tensors = 1;
    mapping->tensors[0].offset = 0;
    mapping->tensors[0].bytes = mapping->replica_bytes;
    mapping->tensors[0].job = JOB_RECT2D;
    return create_of_mapping(scene, mapping, &view, executor, device);
}

struct load *scene_load_create_item(struct load_scene *scene, const char *name, uint32_t n_slices,
                                    const struct slice *slices, int executor)
{
    struct view_item item = {name, strlen(name), n_slices, slices};
    return scene_load_create(scene, &(struct view_spec){.items = &item, .n_items = 1, .align_bytes = 64}, executor,
                             scene->device);
}

struct load *scene_load_create_rows(struct load_scene *scene, const char *name, int64_t lo, int64_t hi)
{
    const struct slice slices[2] = {{lo, hi}, {0, INT64_MAX}};
    return scene_load_create_item(scene, name, 2, slices, EXECUTOR_PREFERENCE_AUTO);
}

struct load *scene_load_create_random(struct load_scene *scene, int executor, struct device *device)
{
    struct view_item items[SCENE_MAX_TENSORS];
    struct slice slices[SCENE_MAX_TENSORS][3];
    size_t order[SCENE_MAX_TENSORS];
    for (size_t i = 0; i < scene->n_tensors; i++) {
        size_t j = scene_random(scene, i + 1);
        order[i] = order[j];
        order[j] = i;
    }
    size_t n_items = 1 + scene_random(scene, scene->n_tensors);
    for (size_t i = 0; i < n_items; i++) {
        const struct scene_tensor *tensor = &scene->tensors[order[i]];
        bool whole = scene_random(scene, 3) == 0;
        for (uint32_t d = 0; d < tensor->rank; d++) {
            uint64_t a = scene_random(scene, tensor->shape[d] + 1), b = scene_random(scene, tensor->shape[d] + 1);
            bool all = scene_random(scene, 3) == 0;
            slices[i][d] =
                all ? (struct slice){0, INT64_MAX} : (struct slice){(int64_t)(a < b ? a : b), (int64_t)(a < b ? b : a)};
        }
        items[i] = (struct view_item){tensor->name, strlen(tensor->name), whole ? 0 : tensor->rank, slices[i]};
    }
    uint64_t align = (uint64_t)1 << scene_random(scene, 13);
    return scene_load_create(scene, &(struct view_spec){.items = items, .n_items = n_items, .align_bytes = align}, executor,
                             device);
}

static void on_done(struct run *run, void *data, const struct error *error)
{
    struct load *load = data;
    assert(!load->is_done && run == load->run);
    load->is_done = true;
    load->order = ++load->scene->n_done;
    load->has_failed = error != NULL;
    if (error)
        load->error = *error;
    load->report = *run_report(run);
    if (--load->scene->n_running == 0 || load->scene->awaited == load)
        loop_stop(load->scene->loop);
}

void scene_load_start_in(struct load *load, struct collective *collective, uint32_t rank)
{
    assert(!load->run);
    if (load->has_failed) /* there is no segment */
        return;
    load->scene->n_running++;
    load->run = run_start(load->scene->engine, &(struct run_options){.mapping = load->mapping,
                                                                     .plan = load->plan,
                                                                     .segment = load->segment,
                                                                     .done = on_done,
                                                                     .data = load,
                                                                     .holders = load->scene->holders,
                                                                     .lanes = load->lanes,
                                                                     .uid = load->uid,
                                                                     .collective = collective,
                                                                     .rank = rank,
                                                                     .n_sharers = 1,
                                                                     .is_of_group = load->scene->is_of_group});
}

void scene_pretend_disk(struct load *load, double resident_share)
{
    load->source->base.caps.direct_reads = true;
    load->source->base.caps.direct_offset_alignment = load->source->base.caps.direct_memory_alignment = 512;
    load->source->base.caps.residency = true;
    load->source->resident_share = resident_share;
}

void scene_load_start(struct load *load)
{
    scene_load_start_in(load, NULL, 0);
}

void scene_wait(struct load_scene *scene)
{
    if (scene->n_running > 0)
        loop_run(scene->loop);
}

static void give_up(void *data)
{
    loop_stop(data);
}

bool scene_wait_for(struct load *load)
{
    struct load_scene *scene = load->scene;
    struct loop_timer *patience = loop_timer_create(scene->loop, give_up, scene->loop);
    loop_timer_start(patience, SCENE_PATIENCE_MS, 0);
    scene->awaited = load;
    if (!load->is_done)
        loop_run(scene->loop);
    scene->awaited = NULL;
    loop_timer_destroy(patience);
    return load->is_done;
}

bool load_is_right(const struct load *load)
{
    const void *memory = load->segment->host_address;
    return load_is_right_in(load, memory ? memory : device_fault_inner(load->segment)->host_address);
}

bool load_is_right_in(const struct load *load, const void *memory)
{
    const struct mapping *mapping = load->mapping;
    unsigned char *expected = memory_alloc(load->segment->allocated_bytes);
    for (size_t i = 0; i < mapping->n_transfers; i++) {
        const struct transfer *transfer = &mapping->transfers[i];
        transfer_apply(transfer, mapping_operation(mapping, transfer), load->scene->images[transfer->file], expected);
    }
    bool right = memcmp(expected, memory, load->segment->allocated_bytes) == 0;
    free(expected);
    return right;
}

bool load_has_succeeded(const struct load *load)
{
    uint64_t wanted = load->mapping->view_bytes;
    const char *problem = !load->is_done                                                    ? "is not done"
                          : load->has_failed                                                ? load->error.message
                          : !load_is_right(load)                                            ? "has wrong bytes"
                          : run_done_bytes(load->run) != wanted                             ? "has not done every byte"
                          : load->report.direct_bytes + load->report.copied_bytes != wanted ? "has lost count of its bytes"
                                                                                            : NULL;
    if (problem)
        fprintf(stderr, "seed %llu: the load %s\n", (unsigned long long)load->scene->seed, problem);
    return !problem;
}

void load_destroy(struct load *load)
{
    if (!load)
        return;
    run_destroy(load->run);
    segment_unref(load->segment);
    plan_destroy(load->plan);
    load->mapping->artifact = load->scene->artifact;
    mapping_destroy(load->mapping);
    source_unref(&load->source->base);
    free(load);
}

struct source_remote *remote_scene_move_away(struct load_scene *scene)
{
    struct source_remote *remote = scene_move_away(scene);
    remote->base.caps.request_bytes = REMOTE_SCENE_REQUEST;
    return remote;
}

struct load *remote_scene_load_columns(struct load_scene *scene, const char *name, int64_t from, int64_t to)
{
    return scene_load_create_item(scene, name, 2, (struct slice[2]){{0, INT64_MAX}, {from, to}}, EXECUTOR_PREFERENCE_AUTO);
}

void remote_scene_release(struct source_remote *remote)
{
    __atomic_store_n(&remote->is_released, true, __ATOMIC_RELAXED);
}
