/* The engine against a store that is simulated: 50 ms to the first byte, 100 MB/s per connection, a link for all of them.
 *
 *   remote_bench            every case
 *   remote_bench MIB        with so many MiB per load (4096)
 *
 * Prints what was reached beside what the formula C * chunk / (L + chunk / r) allows, how many requests the engine settled
 * on beside how many fill the link, and what ranks that come one after the other ask of the store beside what they need. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/support/load_scene.h"

#define MIB ((uint64_t)1 << 20)

enum { N_RANKS = 4, LATENCY_MS = 50, CONNECTION_BYTES_PER_S = 100000000, STAGING_MIB = 64 };

static uint64_t load_bytes = 4096 * MIB;

/* One matrix of zeros in a sparse file: rows of 32 KiB. */
static void open_scene(struct load_scene *scene, uint64_t cache_bytes)
{
    char path[128], reference[128], header[128];
    struct error error;
    scene_init(scene, 1, STAGING_MIB * MIB, 0, 0);
    scene_use_extent_cache(scene, STAGING_MIB * MIB, cache_bytes);
    scene_add_tensor(scene, 1, (uint64_t[]){1});
    scene_write(scene, 1, true);
    snprintf(path, sizeof path, "%s/part0.safetensors", scene->folder);
    uint64_t length = (uint64_t)snprintf(
        header, sizeof header, "{\"t.0\":{\"dtype\":\"U8\",\"shape\":[%" PRIu64 ",32768],\"data_offsets\":[0,%" PRIu64 "]}}",
        load_bytes / 32768, load_bytes);
    FILE *out = fopen(path, "we");
    if (!out || fwrite(&length, 8, 1, out) != 1 || fwrite(header, 1, length, out) != length || fclose(out) != 0 ||
        truncate(path, (off_t)(8 + length + load_bytes)) != 0)
        abort();
    artifact_unref(scene->artifact);
    struct source_options options = {.trusted_roots = (const char *const[]){"/tmp"}, .n_trusted_roots = 1};
    snprintf(reference, sizeof reference, "disk:%s", scene->folder);
    if (artifact_resolve(reference, &options, NULL, false, &scene->artifact, &error) != 0)
        abort();
}

static struct source_remote *move_away(struct load_scene *scene, uint64_t link_bytes_per_s)
{
    struct source_remote *remote = scene_move_away(scene);
    remote->latency_ns = (uint64_t)LATENCY_MS * NS_PER_MS;
    remote->connection_bytes_per_s = CONNECTION_BYTES_PER_S;
    remote->link_bytes_per_s = link_bytes_per_s;
    remote->invents_bytes = true;
    return remote;
}

static struct load *make_load(struct load_scene *scene, int64_t from, int64_t to)
{
    struct slice columns[2] = {{0, INT64_MAX}, {from, to}};
    struct view_item item = {"t.0", 3, 2, columns};
    return scene_load_create(scene, &(struct view_spec){.items = &item, .n_items = 1, .align_bytes = 64},
                             EXECUTOR_PREFERENCE_AUTO, scene->device);
}

static void check(const struct load *load)
{
    if (load->has_failed) {
        fprintf(stderr, "a load failed: %s\n", load->error.message);
        exit(1);
    }
}

static double alone_s(void)
{
    return LATENCY_MS / 1e3 + 16.0 * MIB / CONNECTION_BYTES_PER_S;
}

static void note_limit(void *data, const struct engine_origin *origin)
{
    *(uint32_t *)data = origin->parallel_requests;
}

static void run_whole(const char *name, uint64_t link_bytes_per_s)
{
    struct load_scene scene;
    open_scene(&scene, 0);
    struct source_remote *remote = move_away(&scene, link_bytes_per_s);
    struct load *load = make_load(&scene, 0, INT64_MAX);
    uint64_t started_ns = clock_now_ns();
    scene_load_start(load);
    scene_wait(&scene);
    double took_s = (double)(clock_now_ns() - started_ns) / 1e9, bytes_per_s = (double)load_bytes / took_s;
    check(load);
    uint32_t limit = 0;
    engine_each_origin(scene.engine, note_limit, &limit);
    double formula = (double)remote->most_in_flight * 16.0 * MIB / alone_s();
    if (link_bytes_per_s && formula > (double)link_bytes_per_s)
        formula = (double)link_bytes_per_s;
    printf("%-24s %6.2f GB/s, formula %6.2f: %.2fx; %" PRIu64 " requests, most at once %" PRIu64 ", settled on %" PRIu32,
           name, bytes_per_s / 1e9, formula / 1e9, formula / bytes_per_s, remote->n_reads, remote->most_in_flight, limit);
    if (link_bytes_per_s)
        printf(", %.1f fill the link", (double)link_bytes_per_s / (16.0 * MIB / alone_s()));
    putchar('\n');
    load_destroy(load);
    scene_fini(&scene);
}

static void run_late_ranks(const char *name, uint64_t cache_bytes, uint64_t apart_ms, bool is_of_group)
{
    struct load_scene scene;
    struct load *ranks[N_RANKS];
    open_scene(&scene, cache_bytes);
    scene.is_of_group = is_of_group;
    struct source_remote *remote = move_away(&scene, 0);
    uint64_t started_ns = clock_now_ns();
    for (int64_t r = 0; r < N_RANKS; r++)
        ranks[r] = make_load(&scene, r * 32768 / N_RANKS, (r + 1) * 32768 / N_RANKS);
    for (int r = 0; r < N_RANKS; r++) {
        nanosleep(&(struct timespec){.tv_nsec = r ? (long)(apart_ms * NS_PER_MS) : 0}, NULL);
        scene_load_start(ranks[r]);
    }
    scene_wait(&scene);
    double took_s = (double)(clock_now_ns() - started_ns) / 1e9;
    for (int r = 0; r < N_RANKS; r++)
        check(ranks[r]);
    printf("%-24s %6.2f s, store bytes %.3fx of unique, %" PRIu64 " requests\n", name, took_s,
           (double)remote->read_bytes / (double)load_bytes, remote->n_reads);
    for (int r = 0; r < N_RANKS; r++)
        load_destroy(ranks[r]);
    scene_fini(&scene);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        load_bytes = strtoull(argv[1], NULL, 10) * MIB;
    run_whole("whole, no link limit", 0);
    run_whole("whole, link of 1 GB/s", 1000000000);
    run_late_ranks("4 late ranks, no cache", 0, 100, true);
    run_late_ranks("4 late ranks, 512 MiB", 512 * MIB, 100, true);
    run_late_ranks("4 late ranks, 1 GiB", 1024 * MIB, 100, true);
    run_late_ranks("no group, 100 ms apart", 1024 * MIB, 100, false);
    run_late_ranks("no group, 20 ms apart", 1024 * MIB, 20, false);
    return 0;
}
