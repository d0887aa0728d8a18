/* See transfer_scene.h. */
#include "base/metadata.h"
#include "tests/support/transfer_scene.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "tests/support/random_bytes.h"
#include "tests/support/transfer_apply.h"

enum { UNTOUCHED = 0xA5, MOST_TRANSFERS = 40, HEAP_ALIGN = 4096 };

/* --- plain memory as a destination ---------------------------------------------------------------------------------- */

static void count_call(struct heap_destination *heap, int *counter)
{
    pthread_mutex_lock(&heap->lock);
    (*counter)++;
    pthread_mutex_unlock(&heap->lock);
}

static int prepare_heap(struct destination *destination, uint64_t offset, uint64_t bytes, struct error *error)
{
    struct heap_destination *heap = (struct heap_destination *)destination;
    count_call(heap, &heap->n_prepared);
    if (heap->fails_prepare || offset > heap->bytes || bytes > heap->bytes - offset)
        return fail(error, ERROR_RESOURCE_EXHAUSTED, "HEAP_FULL", "nothing can be prepared");
    return 0;
}

static int write_heap(struct destination *destination, uint64_t offset, const void *src, const struct device_rows *rows,
                      struct error *error)
{
    struct heap_destination *heap = (struct heap_destination *)destination;
    count_call(heap, &heap->n_written);
    if (heap->fails_write)
        return fail(error, ERROR_UNAVAILABLE, "HEAP_BROKEN", "nothing can be written");
    for (uint64_t row = 0; row < rows->count; row++)
        memcpy(heap->memory + offset + row * rows->dst_stride, (const unsigned char *)src + row * rows->src_stride,
               rows->bytes);
    return 0;
}

static int finish_heap(struct destination *destination, const struct mapping *mapping, struct error *error)
{
    struct heap_destination *heap = (struct heap_destination *)destination;
    (void)mapping;
    count_call(heap, &heap->n_finished);
    return heap->fails_finish ? fail(error, ERROR_UNAVAILABLE, "HEAP_UNFINISHED", "it cannot be finished") : 0;
}

static void abandon_heap(struct destination *destination)
{
    struct heap_destination *heap = (struct heap_destination *)destination;
    count_call(heap, &heap->n_abandoned);
}

static const struct destination_ops heap_ops = {
    .name = "heap", .prepare = prepare_heap, .write = write_heap, .finish = finish_heap, .abandon = abandon_heap};

struct heap_destination *heap_destination_create(uint64_t bytes, bool has_address)
{
    struct heap_destination *heap = memory_alloc(sizeof *heap);
    heap->memory = aligned_alloc(HEAP_ALIGN, (bytes / HEAP_ALIGN + 1) * HEAP_ALIGN); /* as memory of a device */
    heap->bytes = bytes;
    memset(heap->memory, UNTOUCHED, bytes);
    heap->base = (struct destination){.ops = &heap_ops, .address = has_address ? heap->memory : NULL, .has_ending = true};
    pthread_mutex_init(&heap->lock, NULL);
    return heap;
}

void heap_destination_destroy(struct heap_destination *heap)
{
    pthread_mutex_destroy(&heap->lock);
    free(heap->memory);
    free(heap);
}

/* --- the source ----------------------------------------------------------------------------------------------------- */

static int read_image(struct source *source, struct source_read *read, struct error *error)
{
    struct scene_source *scene = (struct scene_source *)source;
    uint64_t at = read->offset;
    __atomic_add_fetch(&scene->n_reads, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&scene->n_cached_reads, read->is_cached, __ATOMIC_RELAXED);
    for (int i = 0; i < read->n_iov; i++) {
        uint64_t bytes = read->iov[i].iov_len, left = scene->base.files->size_bytes - at;
        if (at <= scene->fail_from && scene->fail_from < at + bytes)
            return fail(error, ERROR_UNAVAILABLE, "BROKEN", "the byte cannot be read");
        bytes = bytes < left ? bytes : left;
        if (read->iov[i].iov_base)
            memcpy(read->iov[i].iov_base, scene->image + at, bytes);
        arrival_tell(read->arrival, bytes);
        __atomic_add_fetch(&scene->read_bytes, bytes, __ATOMIC_RELAXED);
        at += bytes;
    }
    return 0;
}

static uint64_t resident(struct source *source, size_t file, const struct source_extent *extents, size_t n_extents)
{
    uint64_t bytes = 0;
    (void)file;
    for (size_t i = 0; i < n_extents; i++)
        bytes += extents[i].bytes;
    return (uint64_t)((double)bytes * ((const struct scene_source *)source)->resident_share);
}

static const struct source_ops source_ops = {.name = "scene", .read = read_image, .resident_bytes = resident};

/* --- runs ----------------------------------------------------------------------------------------------------------- */

uint64_t transfer_scene_random(struct transfer_scene *scene, uint64_t below)
{
    scene->random ^= scene->random << 13;
    scene->random ^= scene->random >> 7;
    scene->random ^= scene->random << 17;
    return (scene->random * 0x2545F4914F6CDD1Du >> 16) % below;
}

void transfer_scene_init(struct transfer_scene *scene, uint64_t seed, uint64_t image_bytes)
{
    memset(scene, 0, sizeof *scene);
    scene->random = seed * 0x9E3779B97F4A7C15u + 1;
    scene->image_bytes = image_bytes;
    scene->image = memory_alloc(image_bytes);
    random_bytes_fill(scene->image, image_bytes, transfer_scene_random(scene, UINT64_MAX));
    scene->file = (struct source_file){.name = "part", .size_bytes = image_bytes, .changes_by = CHANGES_RACY};
    scene->source = (struct scene_source){
        .base = {.ops = &source_ops, .reference = "scene:part", .files = &scene->file, .n_files = 1, .references = 1},
        .image = scene->image,
        .fail_from = UINT64_MAX};
    scene->artifact = (struct artifact){.source = &scene->source.base};
    pthread_mutex_init(&scene->engine.lock, NULL);
    pthread_cond_init(&scene->engine.unpinned, NULL);
    scene->scan = (struct scan){.source = &scene->source.base, .block_bytes = image_bytes};
    item_init(&scene->item, &scene->engine, false);
    scene->item.scan = &scene->scan;
}

void transfer_scene_drop_run(struct transfer_scene *scene)
{
    struct scene_run *run = &scene->runs[--scene->n_runs];
    destination_fini(&run->heap->base);
    heap_destination_destroy(run->heap);
    free(run->expected);
    free(run->plan.steps);
    metadata_free(run->run.needs.list);
    arena_fini(&run->mapping.arena);
}

void transfer_scene_fini(struct transfer_scene *scene)
{
    while (scene->n_runs > 0)
        transfer_scene_drop_run(scene);
    item_fini(&scene->item);
    pthread_cond_destroy(&scene->engine.unpinned);
    pthread_mutex_destroy(&scene->engine.lock);
    free(scene->image);
}

/* One step for each read: its rows, or all from the first to the last byte. */
static void make_steps(struct transfer_scene *scene, struct scene_run *run)
{
    struct plan *plan = &run->plan;
    struct mapping_reads reads = mapping_reads(&run->mapping, 0);
    plan->steps = memory_alloc_array(reads.n + 1, sizeof *plan->steps);
    plan->n_steps = reads.n;
    for (size_t i = 0; i < plan->n_steps; i++) {
        const struct transfer *read = &reads.list[i];
        uint64_t span = transfer_end(read) - read->src_offset;
        plan->steps[i] = transfer_scene_random(scene, 2)
                             ? (struct plan_step){read->src_offset, span, 1, span, 0}
                             : (struct plan_step){read->src_offset, read->row_bytes, read->n_rows, read->src_stride, 0};
    }
    run->step_first[1] = plan->n_steps;
    plan->file_first = run->step_first;
}

static void measure(struct mapping *mapping, const struct transfer *transfer)
{
    const struct operation *operation = mapping_operation(mapping, transfer);
    uint64_t bytes = operation ? operation_dst_bytes(operation, transfer->row_bytes) : transfer->row_bytes;
    uint64_t end = transfer_dst_end(transfer, bytes);
    mapping->view_bytes += transfer->n_rows * bytes;
    mapping->replica_bytes = end > mapping->replica_bytes ? end : mapping->replica_bytes;
}

struct scene_run *transfer_scene_add_operations(struct transfer_scene *scene, const struct transfer *transfers, size_t n,
                                                struct operation *operations, size_t n_operations, bool has_address)
{
    struct scene_run *run = &scene->runs[scene->n_runs++];
    struct mapping *mapping = &run->mapping;
    struct error error;
    *mapping = (struct mapping){
        .artifact = &scene->artifact, .n_transfers = n, .operations = operations, .n_operations = n_operations};
    mapping->transfers = arena_array(&mapping->arena, n + 1, sizeof *transfers);
    memcpy(mapping->transfers, transfers, n * sizeof *transfers);
    if (mapping_order(mapping, &error))
        abort();
    for (size_t i = 0; i < n; i++)
        measure(mapping, &transfers[i]);
    make_steps(scene, run);
    run->heap = heap_destination_create(mapping->replica_bytes, has_address);
    destination_begin(&run->heap->base, mapping->replica_bytes);
    run->expected = memory_alloc(mapping->replica_bytes + 1);
    memset(run->expected, UNTOUCHED, mapping->replica_bytes);
    for (size_t i = 0; i < n; i++)
        transfer_apply(&transfers[i], mapping_operation(mapping, &transfers[i]), scene->image, run->expected);
    run->run = (struct run){.engine = &scene->engine,
                            .options = {.mapping = mapping, .plan = &run->plan},
                            .destination = &run->heap->base,
                            .block_bytes = scene->image_bytes,
                            .stage = RUN_ACTIVE};
    item_add_part(&scene->item, &run->run);
    return run;
}

struct scene_run *transfer_scene_add_transfers(struct transfer_scene *scene, const struct transfer *transfers, size_t n,
                                               bool has_address)
{
    return transfer_scene_add_operations(scene, transfers, n, NULL, 0, has_address);
}

struct scene_run *transfer_scene_add_run(struct transfer_scene *scene, uint64_t most_bytes, bool has_address)
{
    struct transfer transfers[MOST_TRANSFERS];
    uint64_t src = 0, dst = 0;
    size_t n = 0;
    while (n < MOST_TRANSFERS) {
        struct transfer transfer = {.row_bytes = 1 + transfer_scene_random(scene, most_bytes),
                                    .n_rows = transfer_scene_random(scene, 3) ? 1 + transfer_scene_random(scene, 12) : 1};
        bool is_one = transfer.n_rows == 1;
        src += transfer_scene_random(scene, 3) ? transfer_scene_random(scene, 2 * most_bytes) : 0;
        dst += transfer_scene_random(scene, 2) ? transfer_scene_random(scene, 64) : 0;
        transfer.src_offset = src;
        transfer.dst_offset = dst;
        transfer.src_stride = transfer.row_bytes;
        transfer.dst_stride = transfer.row_bytes;
        transfer.src_stride += !is_one && transfer_scene_random(scene, 3) ? transfer_scene_random(scene, most_bytes) : 0;
        transfer.dst_stride += !is_one && transfer_scene_random(scene, 3) ? transfer_scene_random(scene, most_bytes) : 0;
        src = transfer_end(&transfer);
        dst = transfer_dst_end(&transfer, transfer.row_bytes);
        if (src > scene->image_bytes)
            break;
        transfers[n++] = transfer;
    }
    return transfer_scene_add_transfers(scene, transfers, n, has_address);
}

static void on_done(struct run *started, void *data, const struct error *error)
{
    struct scene_run *run = data;
    run->has_failed = error != NULL;
    run->error = error ? *error : run->error;
    run->report = *run_report(started);
    if (--run->scene->n_running == 0)
        loop_stop(run->scene->loop);
}

void transfer_scene_run_all(struct transfer_scene *scene, struct engine_options options)
{
    struct engine *engine;
    struct error error;
    options.loop = scene->loop = loop_create();
    if (engine_create(&options, &engine, &error))
        abort();
    scene->n_running = scene->n_runs;
    for (size_t i = 0; i < scene->n_runs; i++) {
        struct scene_run *run = &scene->runs[i];
        destination_fini(&run->heap->base);
        run->scene = scene;
        run->started = run_start(engine, &(struct run_options){.mapping = &run->mapping,
                                                               .plan = &run->plan,
                                                               .destination = &run->heap->base,
                                                               .done = on_done,
                                                               .data = run});
    }
    loop_run(scene->loop);
    for (size_t i = 0; i < scene->n_runs; i++)
        run_destroy(scene->runs[i].started);
    engine_destroy(engine);
    loop_destroy(scene->loop);
}

bool transfer_scene_is_right(const struct scene_run *run)
{
    uint64_t i = 0;
    if (memcmp(run->heap->memory, run->expected, run->mapping.replica_bytes) == 0)
        return true;
    while (run->heap->memory[i] == run->expected[i])
        i++;
    fprintf(stderr, "byte %llu is %d instead of %d\n", (unsigned long long)i, run->heap->memory[i], run->expected[i]);
    return false;
}
