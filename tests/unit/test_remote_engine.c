/* The engine on remote sources: few large requests, every byte in its place, and nothing fetched twice. What loads leave to
 * each other is in test_remote_turns.c. */
#include "tests/support/unit.h"

#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tests/support/load_scene.h"

#define AUTO EXECUTOR_PREFERENCE_AUTO
#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define MS ((uint64_t)1000000)

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static const bool has_shadow_memory = true;
#else
static const bool has_shadow_memory = false;
#endif
static uint64_t seed;

static void run_random_loads(uint64_t staging_bytes, uint64_t cache_bytes, uint64_t request_bytes, bool hides_address)
{
    struct load_scene scene;
    struct load *loads[6];
    scene_init(&scene, seed++, staging_bytes, 0, 64 * MIB);
    scene_use_extent_cache(&scene, staging_bytes, cache_bytes);
    scene_add_mixed_tensors(&scene, 30, 300);
    scene_write(&scene, 3, false);
    struct source_remote *remote = scene_move_away(&scene);
    remote->base.caps.request_bytes = request_bytes;
    remote->latency_ns = MS;
    struct device_fault *device = device_fault_create(scene.device);
    device->hides_address = hides_address;
    for (int round = 0; round < 3; round++) {
        device->gives_dirty_memory = round > 0 && !hides_address; /* a queue zeroes what has no address */
        size_t n_loads = 1 + scene_random(&scene, 6);
        scene.fine_slices = scene_random(&scene, 8) == 0;
        for (size_t i = 0; i < n_loads; i++) {
            loads[i] = scene_load_create_random(&scene, AUTO, &device->base);
            scene_load_start(loads[i]);
        }
        scene_wait(&scene);
        for (size_t i = 0; i < n_loads; i++)
            assert_true(load_has_succeeded(loads[i]));
        assert_true(engine_staging_bytes(scene.engine) <= staging_bytes + 64 * KIB);
        assert_true(engine_extent_bytes(scene.engine) <= cache_bytes);
        for (size_t i = 0; i < n_loads; i++)
            load_destroy(loads[i]);
    }
    assert_int_equal(device->n_segments, 0);
    device_destroy(&device->base);
    scene_fini(&scene);
}

TEST(any_view_is_right)
{
    for (int i = 0; i < 4; i++) {
        run_random_loads(64 * MIB, 0, 16 * MIB, false);
        run_random_loads(64 * MIB, 64 * MIB, 16 * MIB, false);
        run_random_loads(4 * MIB, 256 * KIB, 64 * KIB, false);
        run_random_loads(1 * MIB, 0, 64 * KIB, false);
    }
}

TEST(memory_without_an_address_is_filled_through_windows)
{
    for (int i = 0; i < 3; i++) {
        run_random_loads(64 * MIB, 64 * MIB, 16 * MIB, true);
        run_random_loads(256 * KIB, 0, 1 * MIB, true);
    }
}

static void assert_did_what_the_plan_says(struct load *load, const struct source_remote *remote)
{
    const struct candidate *chosen = &load->plan->candidates[load->plan->executor];
    assert_true(load_has_succeeded(load));
    assert_int_equal(load->plan->executor, EXECUTOR_GENERIC_BYTE_RANGE);
    assert_int_equal(remote->n_reads, chosen->requests);
    assert_int_equal(remote->read_bytes, chosen->read_bytes);
    assert_int_equal(load->report.requests, chosen->requests);
    assert_int_equal(load->report.read_bytes, chosen->read_bytes);
    assert_int_equal(load->report.shared_bytes, 0);
}

TEST(a_plan_says_how_many_requests_there_will_be)
{
    for (int i = 0; i < 24; i++) {
        struct load_scene scene;
        scene_init(&scene, seed++, 64 * MIB, 0, 0);
        scene.fine_slices = i % 4 == 3;
        scene_add_mixed_tensors(&scene, 20, 400);
        scene_write(&scene, 2, false);
        struct source_remote *remote = scene_move_away(&scene);
        remote->base.caps.request_bytes = 64 * KIB << i % 3;
        remote->latency_ns = 200000;
        remote->connection_bytes_per_s = i % 2 ? 20 * MIB : 2000 * MIB; /* gaps of 4 KiB, of 400 KiB */
        struct device_fault *device = device_fault_create(scene.device);
        device->hides_address = i % 8 >= 6;
        struct load *load = scene_load_create_random(&scene, AUTO, &device->base);
        scene_load_start(load);
        scene_wait(&scene);
        if (scene.fine_slices)
            assert_int_equal(load->report.read_bytes, load->plan->candidates[0].unique_source_bytes);
        assert_did_what_the_plan_says(load, remote);
        load_destroy(load);
        device_destroy(&device->base);
        scene_fini(&scene);
    }
}

TEST(contiguous_bytes_take_no_staging_and_large_requests)
{
    struct load_scene scene;
    scene_init(&scene, seed++, 64 * MIB, 0, 0);
    scene_add_tensor(&scene, 1, (uint64_t[]){11 * MIB});
    scene_write(&scene, 1, false);
    struct source_remote *remote = remote_scene_move_away(&scene);
    struct load *load = scene_load_create_item(&scene, "t.0", 0, NULL, AUTO);
    scene_load_start(load);
    scene_wait(&scene);
    assert_did_what_the_plan_says(load, remote);
    assert_int_equal(remote->n_reads, 6); /* the first block less its header, four whole ones, and an end */
    assert_int_equal(remote->longest_read, REMOTE_SCENE_REQUEST);
    assert_int_equal(load->report.direct_bytes, 11 * MIB);
    assert_int_equal(load->report.peak_temporary_bytes, 0);
    assert_int_equal(engine_staging_bytes(scene.engine), 0);
    load_destroy(load);
    scene_fini(&scene);
}

TEST(columns_are_scattered_without_staging)
{
    struct load_scene scene;
    scene_init(&scene, seed++, 64 * MIB, 0, 0);
    scene_add_tensor(&scene, 2, (uint64_t[]){4000, 1024});
    scene_write(&scene, 1, false);
    struct source_remote *remote = remote_scene_move_away(&scene);
    struct load *load =
        remote_scene_load_columns(&scene, "t.0", 100, 225); /* 2047 rows of a block: more buffers than IOV_MAX */
    scene_load_start(load);
    scene_wait(&scene);
    assert_did_what_the_plan_says(load, remote);
    assert_int_equal(remote->n_reads, 2);
    assert_int_equal(load->report.direct_bytes, load->mapping->view_bytes);
    assert_int_equal(load->report.peak_temporary_bytes, 0);
    load_destroy(load);
    scene_fini(&scene);
}

/* So many pieces are scattered out of one read; with more than 8192 the block is kept whole, or cut into windows. */
TEST(columns_of_a_byte_are_right_in_any_number)
{
    for (uint64_t staging_bytes = 64 * KIB; staging_bytes <= 64 * MIB; staging_bytes *= 1024) {
        for (uint64_t n_rows = 8192; n_rows <= 40000; n_rows += n_rows < 8193 ? 1 : 31807) {
            struct load_scene scene;
            scene_init(&scene, seed++, staging_bytes, 0, 0);
            scene_add_tensor(&scene, 2, (uint64_t[]){n_rows, 16});
            scene_write(&scene, 1, false);
            scene_move_away(&scene);
            struct load *load = remote_scene_load_columns(&scene, "t.0", 3, 4);
            scene_load_start(load);
            scene_wait(&scene);
            assert_true(load_has_succeeded(load)); /* with the right bytes */
            load_destroy(load);
            scene_fini(&scene);
        }
    }
}

TEST(far_columns_are_asked_for_one_by_one)
{
    struct load_scene scene;
    scene_init(&scene, seed++, 64 * MIB, 0, 0);
    scene_add_tensor(&scene, 2, (uint64_t[]){4, 5 * MIB});
    scene_write(&scene, 1, false);
    struct source_remote *remote = scene_move_away(&scene);
    struct load *load = remote_scene_load_columns(&scene, "t.0", 1 * MIB, 1 * MIB + 4096);
    scene_load_start(load);
    scene_wait(&scene);
    assert_did_what_the_plan_says(load, remote);
    assert_int_equal(remote->n_reads, 4);
    assert_int_equal(remote->read_bytes, 4 * 4096);
    load_destroy(load);
    scene_fini(&scene);
}

TEST(ranks_at_the_same_time_ask_for_every_byte_once)
{
    struct load_scene scene;
    struct load *ranks[4];
    scene_init(&scene, seed++, 64 * MIB, 1, 0);
    scene_add_tensor(&scene, 1, (uint64_t[]){5 * MIB});
    scene_add_tensor(&scene, 2, (uint64_t[]){4096, 1024});
    scene_write(&scene, 1, false);
    struct source_remote *remote = remote_scene_move_away(&scene);
    remote->latency_ns = 50 * MS;
    remote->holds_after_bytes = MIB;
    remote->base.caps.parallel_requests = 2; /* the whole tensor keeps them busy until all are here */
    for (int r = 0; r < 4; r++) {
        struct slice columns[2] = {{0, INT64_MAX}, {r * 256, (r + 1) * 256}};
        struct view_item items[2] = {{"t.0", 3, 0, NULL}, {"t.1", 3, 2, columns}};
        ranks[r] = scene_load_create(&scene, &(struct view_spec){.items = items, .n_items = 2, .align_bytes = 64}, AUTO,
                                     scene.device);
        scene_load_start(ranks[r]);
    }
    remote_scene_release(remote);
    scene_wait(&scene);
    for (int r = 0; r < 4; r++)
        assert_true(load_has_succeeded(ranks[r]));
    assert_int_equal(remote->read_bytes, 9 * MIB);
    assert_in_range(remote->n_reads, 5, 7);
    for (int r = 0; r < 4; r++)
        load_destroy(ranks[r]);
    scene_fini(&scene);
}

/* One after the other, as late as a rank can be. */
static uint64_t read_columns_in_turn(uint64_t cache_bytes)
{
    struct load_scene scene;
    struct load *ranks[4];
    scene_init(&scene, seed++, 64 * MIB, 0, 0);
    scene_use_extent_cache(&scene, 64 * MIB, cache_bytes);
    scene.is_of_group = true;
    scene_add_tensor(&scene, 2, (uint64_t[]){6000, 1024});
    scene_write(&scene, 1, false);
    struct source_remote *remote = remote_scene_move_away(&scene);
    for (int r = 0; r < 4; r++) {
        ranks[r] = remote_scene_load_columns(&scene, "t.0", r * 256, (r + 1) * 256);
        scene_load_start(ranks[r]);
        scene_wait(&scene);
        assert_true(load_has_succeeded(ranks[r]));
    }
    uint64_t read_bytes = remote->read_bytes;
    for (int r = 0; r < 4; r++)
        load_destroy(ranks[r]);
    scene_fini(&scene);
    return read_bytes;
}

TEST(a_late_ranks_columns_come_from_the_extent_cache)
{
    uint64_t tensor_bytes = 6000 * 1024, edges = 4 * 1024;
    assert_in_range(read_columns_in_turn(8 * MIB), tensor_bytes - edges, tensor_bytes + edges);
    assert_in_range(read_columns_in_turn(2 * MIB), 2 * tensor_bytes, 4 * tensor_bytes);
    assert_in_range(read_columns_in_turn(0), 4 * tensor_bytes - 4 * edges, 4 * tensor_bytes);
}

TEST(the_last_of_many_ranks_finds_its_columns_too)
{
    struct load_scene scene;
    struct load *first, *last;
    scene_init(&scene, seed++, 64 * MIB, 0, 0);
    scene_use_extent_cache(&scene, 64 * MIB, 8 * MIB);
    scene_add_tensor(&scene, 2, (uint64_t[]){6000, 1024});
    scene_write(&scene, 1, false);
    struct source_remote *remote = remote_scene_move_away(&scene);
    first = remote_scene_load_columns(&scene, "t.0", 0, 1024 / 16 * 15); /* fifteen ranks at once */
    scene_load_start(first);
    scene_wait(&scene);
    last = remote_scene_load_columns(&scene, "t.0", 1024 / 16 * 15, 1024);
    scene_load_start(last);
    scene_wait(&scene);
    assert_true(load_has_succeeded(first));
    assert_true(load_has_succeeded(last));
    assert_in_range(remote->read_bytes, 6000 * 1024 - 4 * 1024, 6000 * 1024 + 4 * 1024);
    load_destroy(first);
    load_destroy(last);
    scene_fini(&scene);
}

/* Bytes of the extent cache after half the columns of 64 blocks. What it has is not counted as staging. */
static uint64_t keep_columns(bool is_of_group)
{
    struct load_scene scene;
    scene_init(&scene, seed++, 4 * MIB, 0, 0);
    scene_use_extent_cache(&scene, 4 * MIB, 64 * MIB);
    scene.is_of_group = is_of_group;
    scene_add_tensor(&scene, 2, (uint64_t[]){8192, 8192});
    scene_write(&scene, 1, false);
    scene_move_away(&scene)->base.caps.request_bytes = MIB;
    struct load *load = remote_scene_load_columns(&scene, "t.0", 0, 4096);
    scene_load_start(load);
    scene_wait(&scene);
    assert_true(load_has_succeeded(load));
    uint64_t kept_bytes = engine_extent_bytes(scene.engine);
    assert_in_range(engine_staging_bytes(scene.engine), 0, 4 * MIB);
    load_destroy(load);
    scene_fini(&scene);
    return kept_bytes;
}

TEST(a_load_alone_keeps_few_extents_and_one_of_a_group_all)
{
    assert_in_range(keep_columns(false), 33 * MIB, 34 * MIB);
    assert_in_range(keep_columns(true), 63 * MIB, 64 * MIB);
}

TEST(a_late_load_copies_from_a_replica)
{
    struct load_scene scene;
    struct load *loads[2];
    scene_init(&scene, seed++, 64 * MIB, 0, 0);
    scene_add_tensor(&scene, 2, (uint64_t[]){4096, 1024});
    scene_write(&scene, 1, false);
    struct source_remote *remote = remote_scene_move_away(&scene);
    loads[0] = scene_load_create_item(&scene, "t.0", 0, NULL, AUTO);
    loads[1] = remote_scene_load_columns(&scene, "t.0", 125, 750);
    for (int i = 0; i < 2; i++) {
        scene_load_start(loads[i]);
        scene_wait(&scene);
        assert_true(load_has_succeeded(loads[i]));
    }
    assert_int_equal(remote->read_bytes, 4096 * 1024);
    assert_int_equal(loads[1]->report.shared_bytes, loads[1]->mapping->view_bytes);
    load_destroy(loads[0]);
    load_destroy(loads[1]);
    scene_fini(&scene);
}

static uint64_t status_kib(const char *name)
{
    char line[256];
    unsigned long long kib = 0;
    FILE *file = fopen("/proc/self/status", "re");
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, name, strlen(name)) == 0 && sscanf(line + strlen(name), ": %llu", &kib) == 1)
            break;
    if (file)
        fclose(file);
    return kib;
}

/* A checkpoint of zeros that takes no memory: one tensor in a sparse file. */
static void write_sparse_scene(struct load_scene *scene, uint64_t bytes)
{
    scene_add_tensor(scene, 1, (uint64_t[]){1});
    scene_write(scene, 1, true);
    char path[128], header[128];
    snprintf(path, sizeof path, "%s/part0.safetensors", scene->folder);
    uint64_t length =
        (uint64_t)snprintf(header, sizeof header, "{\"t.0\":{\"dtype\":\"U8\",\"shape\":[%llu],\"data_offsets\":[0,%llu]}}",
                           (unsigned long long)bytes, (unsigned long long)bytes);
    FILE *out = fopen(path, "we");
    assert_non_null(out);
    assert_int_equal(fwrite(&length, 8, 1, out), 1);
    assert_int_equal(fwrite(header, 1, length, out), length);
    fclose(out);
    assert_int_equal(truncate(path, (off_t)(8 + length + bytes)), 0);
    artifact_unref(scene->artifact);
    struct source_options options = {.trusted_roots = (const char *const[]){"/tmp"}, .n_trusted_roots = 1};
    struct error error;
    snprintf(path, sizeof path, "disk:%s", scene->folder);
    assert_int_equal(artifact_resolve(path, &options, NULL, false, &scene->artifact, &error), 0);
}

TEST(memory_stays_at_destination_staging_and_a_little)
{
    static const uint64_t staging_bytes = 32 * MIB;
    if (has_shadow_memory)
        skip();
    for (int hides_address = 0; hides_address < 2; hides_address++) {
        struct load_scene scene;
        scene_init(&scene, seed++, staging_bytes, 0, 0);
        scene_use_extent_cache(&scene, staging_bytes, 64 * MIB);
        write_sparse_scene(&scene, 8 * staging_bytes);
        struct source_remote *remote = scene_move_away(&scene);
        remote->latency_ns = 20 * MS;
        struct device_fault *device = device_fault_create(scene.device);
        device->hides_address = hides_address;
        uint64_t before_kib = status_kib("VmRSS");
        FILE *reset = fopen("/proc/self/clear_refs", "we"); /* VmHWM begins anew */
        assert_non_null(reset);
        fputs("5", reset);
        fclose(reset);
        struct view_item item = {"t.0", 3, 0, NULL};
        struct view_spec view = {.items = &item, .n_items = 1, .align_bytes = 64};
        struct load *load = scene_load_create(&scene, &view, AUTO, &device->base);
        scene_load_start(load);
        scene_wait(&scene);
        assert_false(load->has_failed);
        uint64_t grown_kib = status_kib("VmHWM") - before_kib;
        assert_in_range(grown_kib, (8 * staging_bytes - MIB) / KIB, /* the kernel counts pages in batches */
                        (9 * staging_bytes + 64 * MIB) / KIB);
        load_destroy(load);
        device_destroy(&device->base);
        scene_fini(&scene);
    }
}

static int set_up_all_tests(void **state)
{
    const char *given = getenv("TEST_SEED");
    seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL) * 1000;
    print_message("TEST_SEED=%llu\n", (unsigned long long)seed);
    (void)state;
    return 0;
}

TESTS_IN(set_up_all_tests, NULL)
