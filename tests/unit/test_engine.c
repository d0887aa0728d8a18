/* The I/O engine: every byte lands where a naive copy puts it, whatever is cached, shared, late, short or broken. What loads
 * leave to each other is in test_engine_turns.c. */
#include "tests/support/unit.h"

#include <time.h>
#include <unistd.h>

#include "execute/engine_private.h"
#include "tests/support/load_scene.h"

#define GENERIC EXECUTOR_PREFERENCE_GENERIC_BYTE_RANGE
#define LOCAL EXECUTOR_PREFERENCE_TENSOR_BATCHED_LOCAL
#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define MS ((uint64_t)1000000)

enum { MOST_PROVIDERS = 16 };
static uint64_t seed;

static void run_random_loads(uint64_t staging_bytes, uint64_t n_threads, double resident_share, int n_loads,
                             bool hides_address)
{
    struct load_scene scene;
    struct load *loads[8];
    scene_init(&scene, seed++, staging_bytes, n_threads, 64 * MIB);
    scene_add_mixed_tensors(&scene, 30, 300);
    scene_write(&scene, 3, false);
    struct device_fault *device = device_fault_create(scene.device);
    device->hides_address = hides_address;
    for (int round = 0; round < 3; round++) {
        device->gives_dirty_memory = round > 0 && !hides_address; /* a queue zeroes what has no address */
        for (int i = 0; i < n_loads; i++) {
            loads[i] = scene_load_create_random(&scene, scene_random(&scene, 2) ? GENERIC : LOCAL, &device->base);
            scene_pretend_disk(loads[i], resident_share);
            scene_load_start(loads[i]);
        }
        scene_wait(&scene);
        for (int i = 0; i < n_loads; i++)
            assert_true(load_has_succeeded(loads[i]));
        assert_true(engine_staging_bytes(scene.engine) <= (staging_bytes < 4 * KIB ? 4 * KIB : staging_bytes));
        for (int i = 0; i < n_loads; i++)
            load_destroy(loads[i]);
    }
    assert_int_equal(device->n_segments, 0);
    device_destroy(&device->base);
    scene_fini(&scene);
}

TEST(any_view_of_cached_files_is_right)
{
    for (int i = 0; i < 6; i++)
        run_random_loads(64 * MIB, 0, 1, 1 + i % 4, false);
}

TEST(any_view_of_uncached_files_is_right)
{
    for (int i = 0; i < 6; i++)
        run_random_loads(64 * MIB, 0, 0, 1 + i % 4, false);
}

TEST(any_view_is_right_with_hardly_any_staging)
{
    static const uint64_t budgets[] = {1, 4 * KIB, 48 * KIB, 300 * KIB, 1 * MIB};
    for (size_t i = 0; i < 5; i++) {
        run_random_loads(budgets[i], 0, i % 2, 3, false);
        run_random_loads(budgets[i], 3, (i + 1) % 2, 3, false);
    }
}

TEST(memory_without_an_address_is_filled_through_staging)
{
    run_random_loads(64 * MIB, 0, 0, 3, true);
    run_random_loads(256 * KIB, 0, 1, 3, true);
}

TEST(the_report_of_a_load_alone_says_what_its_plan_says)
{
    for (int i = 0; i < 24; i++) {
        struct load_scene scene;
        scene_init(&scene, seed++, i % 3 ? 64 * MIB : 64 * KIB, 0, 0);
        scene_add_mixed_tensors(&scene, 20, 400);
        scene_write(&scene, 2, i % 4 == 3);
        struct load *load = scene_load_create_random(&scene, i % 2 ? GENERIC : LOCAL, scene.device);
        if (i % 4 != 3)
            scene_pretend_disk(load, i % 4 / 2);
        scene_load_start(load);
        scene_wait(&scene);
        assert_true(load_has_succeeded(load));
        assert_int_equal(load->report.read_bytes, load->plan->candidates[load->plan->executor].read_bytes);
        assert_int_equal(load->report.shared_bytes, 0);
        assert_true(load->report.cached_bytes <= load->report.read_bytes);
        load_destroy(load);
        scene_fini(&scene);
    }
}

TEST(loads_at_the_same_time_read_common_bytes_once)
{
    static const double resident[] = {0, 1};
    for (int cached = 0; cached < 2; cached++) {
        struct load_scene scene;
        struct load *ranks[4];
        uint64_t read = 0, wanted = 0;
        bool gate = false;
        scene_init(&scene, seed++, 64 * MIB, 1, 0);
        scene_add_tensor(&scene, 1, (uint64_t[]){10 * MIB});
        scene_add_tensor(&scene, 2, (uint64_t[]){1024, 4096});
        scene_write(&scene, 1, false);
        for (int r = 0; r < 4; r++) {
            struct slice columns[2] = {{0, INT64_MAX}, {r * 1024, (r + 1) * 1024}};
            struct view_item items[2] = {{"t.0", 3, 0, NULL}, {"t.1", 3, 2, columns}};
            ranks[r] = scene_load_create(&scene, &(struct view_spec){.items = items, .n_items = 2, .align_bytes = 64}, LOCAL,
                                         scene.device);
            scene_pretend_disk(ranks[r], resident[cached]);
            ranks[r]->source->gate = &gate; /* the others arrive while the first block is read */
            scene_load_start(ranks[r]);
        }
        __atomic_store_n(&gate, true, __ATOMIC_RELEASE);
        scene_wait(&scene);
        for (int r = 0; r < 4; r++) {
            assert_true(load_has_succeeded(ranks[r]));
            read += ranks[r]->source->read_bytes;
            wanted += ranks[r]->report.read_bytes + ranks[r]->report.shared_bytes;
        }
        /* what the first one had begun before the others came is copied, or read again when it is cached */
        assert_in_range(read, 14 * MIB, cached ? 23 * MIB : 15 * MIB);
        assert_true(wanted >= 4 * 10 * MIB);
        for (int r = 0; r < 4; r++)
            load_destroy(ranks[r]);
        scene_fini(&scene);
    }
}

TEST(a_late_load_copies_from_a_replica_instead_of_reading)
{
    struct load_scene scene;
    scene_init(&scene, seed++, 64 * MIB, 0, 0);
    scene_add_tensor(&scene, 2, (uint64_t[]){2048, 4096});
    scene_write(&scene, 1, false);
    struct slice whole_rows[2] = {{100, 2000}, {0, INT64_MAX}}, inside[2] = {{200, 1900}, {64, 4000}};
    struct load *first = scene_load_create_item(&scene, "t.0", 2, whole_rows, LOCAL);
    scene_pretend_disk(first, 0);
    scene_load_start(first);
    scene_wait(&scene);
    assert_true(load_has_succeeded(first));

    struct load *second = scene_load_create_item(&scene, "t.0", 2, inside, LOCAL);
    scene_pretend_disk(second, 0);
    scene_load_start(second);
    scene_wait(&scene);
    assert_true(load_has_succeeded(second));
    assert_int_equal(second->source->n_reads, 0);
    assert_int_equal(second->report.read_bytes, 0);
    assert_int_equal(second->report.shared_bytes, second->mapping->view_bytes);

    struct load *wider =
        scene_load_create_item(&scene, "t.0", 0, NULL, LOCAL); /* rows 0..99 and 2000..2047 are in no run yet */
    scene_pretend_disk(wider, 0);
    scene_load_start(wider);
    scene_wait(&scene);
    assert_true(load_has_succeeded(wider));
    assert_int_equal(wider->report.read_bytes, 148 * 4096);
    assert_int_equal(wider->report.shared_bytes, 1900 * 4096);

    load_destroy(first);
    load_destroy(wider);
    struct load *fourth = scene_load_create_item(&scene, "t.0", 0, NULL, LOCAL); /* the provider that is left has columns */
    scene_pretend_disk(fourth, 0);
    scene_load_start(fourth);
    scene_wait(&scene);
    assert_true(load_has_succeeded(fourth));
    assert_true(fourth->report.read_bytes > 0);
    load_destroy(fourth);
    load_destroy(second);
    scene_fini(&scene);
}

/* What a load of everything reads when a replica of everything is older than so many others of one row. */
static uint64_t bytes_read_behind(size_t n_newer)
{
    struct load_scene scene;
    struct load *rows[MOST_PROVIDERS], *whole[2];
    struct slice first_row[2] = {{0, 1}, {0, INT64_MAX}};
    scene_init(&scene, seed++, 64 * MIB, 0, 0);
    scene_add_tensor(&scene, 2, (uint64_t[]){64, 4096});
    scene_write(&scene, 1, false);
    whole[0] = scene_load_create_item(&scene, "t.0", 0, NULL, LOCAL);
    scene_pretend_disk(whole[0], 0);
    scene_load_start(whole[0]);
    scene_wait(&scene);
    for (size_t i = 0; i < n_newer; i++) {
        rows[i] = scene_load_create_item(&scene, "t.0", 2, first_row, LOCAL);
        scene_pretend_disk(rows[i], 0);
        scene_load_start(rows[i]);
        scene_wait(&scene);
    }
    whole[1] = scene_load_create_item(&scene, "t.0", 0, NULL, LOCAL);
    scene_pretend_disk(whole[1], 0);
    scene_load_start(whole[1]);
    scene_wait(&scene);
    assert_true(load_has_succeeded(whole[0]) && load_has_succeeded(whole[1]));
    uint64_t read_bytes = whole[1]->report.read_bytes;
    load_destroy(whole[0]);
    load_destroy(whole[1]);
    for (size_t i = 0; i < n_newer; i++) {
        assert_true(load_has_succeeded(rows[i]));
        load_destroy(rows[i]);
    }
    scene_fini(&scene);
    return read_bytes;
}

TEST(the_newest_sixteen_replicas_are_copied_from_and_older_ones_read_again)
{
    assert_int_equal(bytes_read_behind(MOST_PROVIDERS - 1), 0);
    assert_int_equal(bytes_read_behind(MOST_PROVIDERS), 63 * 4096);
}

TEST(the_next_ranks_columns_come_from_the_blocks_just_read)
{
    struct load_scene scene;
    struct load *ranks[4];
    uint64_t read = 0;
    scene_init(&scene, seed++, 64 * MIB, 0, 0);
    scene_add_tensor(&scene, 2, (uint64_t[]){4096, 2048});
    scene_write(&scene, 1, false);
    for (int r = 0; r < 4; r++) {
        struct slice columns[2] = {{0, INT64_MAX}, {r * 512, (r + 1) * 512}};
        ranks[r] = scene_load_create_item(&scene, "t.0", 2, columns, LOCAL);
        scene_pretend_disk(ranks[r], 0);
        scene_load_start(ranks[r]);
        scene_wait(&scene); /* one after the other */
        assert_true(load_has_succeeded(ranks[r]));
        read += ranks[r]->source->read_bytes;
    }
    assert_in_range(read, 8 * MIB, 8 * MIB + 64 * KIB);
    for (int r = 0; r < 4; r++)
        load_destroy(ranks[r]);
    scene_fini(&scene);
}

TEST(a_cached_late_load_reads_the_page_cache)
{
    struct load_scene scene;
    struct load *loads[2];
    scene_init(&scene, seed++, 64 * MIB, 0, 0);
    scene_add_tensor(&scene, 1, (uint64_t[]){5 * MIB});
    scene_write(&scene, 1, false);
    for (int i = 0; i < 2; i++) {
        loads[i] = scene_load_create_item(&scene, "t.0", 0, NULL, i ? GENERIC : LOCAL);
        scene_pretend_disk(loads[i], 1);
        scene_load_start(loads[i]);
        scene_wait(&scene);
        assert_true(load_has_succeeded(loads[i]));
        assert_int_equal(loads[i]->report.read_bytes, 5 * MIB);
        assert_int_equal(loads[i]->report.cached_bytes, 5 * MIB);
        assert_int_equal(loads[i]->report.direct_bytes, 5 * MIB);
    }
    load_destroy(loads[0]);
    load_destroy(loads[1]);
    scene_fini(&scene);
}

TEST(a_failing_read_fails_only_the_loads_that_need_the_block)
{
    struct load_scene scene;
    scene_init(&scene, seed++, 64 * MIB, 1, 0);
    scene_add_tensor(&scene, 1, (uint64_t[]){5 * MIB});
    scene_add_tensor(&scene, 1, (uint64_t[]){5 * MIB});
    scene_write(&scene, 2, false);
    struct load *broken = scene_load_create_item(&scene, "t.0", 0, NULL, LOCAL),
                *sound = scene_load_create_item(&scene, "t.1", 0, NULL, LOCAL);
    broken->source->fail_from = 2;
    scene_load_start(broken);
    scene_load_start(sound);
    scene_wait(&scene);
    assert_true(broken->has_failed);
    assert_int_equal(broken->error.code, ERROR_DATA_LOSS);
    assert_non_null(strstr(broken->error.message, "part0.safetensors"));
    assert_true(load_has_succeeded(sound));
    load_destroy(broken);
    load_destroy(sound);
    scene_fini(&scene);
}

TEST(a_cancelled_load_ends_once_and_leaves_the_others_alone)
{
    for (int i = 0; i < 20; i++) {
        struct load_scene scene;
        scene_init(&scene, seed++, 4 * MIB, 2, 0); /* blocks of 1 MiB */
        scene_add_tensor(&scene, 1, (uint64_t[]){4 * MIB});
        scene_write(&scene, 1, false);
        struct load *leaver = scene_load_create_item(&scene, "t.0", 0, NULL, LOCAL),
                    *stayer = scene_load_create_item(&scene, "t.0", 0, NULL, GENERIC);
        scene_pretend_disk(leaver, 0);
        scene_pretend_disk(stayer, 0);
        bool gate = i > 0;
        leaver->source->gate = stayer->source->gate = &gate;
        leaver->source->delay_ns = stayer->source->delay_ns = MS;
        scene_load_start(leaver);
        scene_load_start(stayer);
        nanosleep(&(struct timespec){.tv_nsec = (long)(i * MS / 4)}, NULL);
        run_cancel(leaver->run);
        run_cancel(leaver->run);
        __atomic_store_n(&gate, true, __ATOMIC_RELEASE);
        scene_wait(&scene);
        if (leaver->has_failed)
            assert_int_equal(leaver->error.code, ERROR_CANCELLED);
        if (i == 0)
            assert_true(leaver->has_failed);
        run_cancel(leaver->run); /* too late: nothing happens */
        assert_true(load_has_succeeded(stayer));
        load_destroy(leaver);
        load_destroy(stayer);
        scene_fini(&scene);
    }
}

TEST(a_file_that_is_cut_off_under_the_load_is_data_loss)
{
    struct load_scene scene;
    char path[128];
    scene_init(&scene, seed++, 64 * MIB, 0, 0);
    scene_add_tensor(&scene, 1, (uint64_t[]){9 * MIB});
    scene_write(&scene, 1, true);
    struct load *load = scene_load_create_item(&scene, "t.0", 0, NULL, LOCAL);
    snprintf(path, sizeof path, "%s/part0.safetensors", scene.folder);
    assert_int_equal(truncate(path, 4 * MIB + 100), 0);
    scene_load_start(load);
    scene_wait(&scene);
    assert_true(load->has_failed);
    assert_int_equal(load->error.code, ERROR_DATA_LOSS);
    assert_non_null(strstr(load->error.message, "part0.safetensors"));
    load_destroy(load);
    scene_fini(&scene);
}

TEST(real_files_are_read_right_cached_and_uncached)
{
    for (int i = 0; i < 4; i++) {
        struct load_scene scene;
        struct load *loads[3];
        scene_init(&scene, seed++, 64 * MIB, 0, 0);
        scene_add_mixed_tensors(&scene, 20, 900);
        scene_write(&scene, 3, true);
        if (i % 2)
            sync();
        for (int j = 0; j < 3; j++) {
            loads[j] = scene_load_create_random(&scene, j % 2 ? GENERIC : LOCAL, scene.device);
            loads[j]->source->resident_share = i % 2 ? 0 : 1;
            scene_load_start(loads[j]);
        }
        scene_wait(&scene);
        for (int j = 0; j < 3; j++) {
            assert_true(load_has_succeeded(loads[j]));
            load_destroy(loads[j]);
        }
        scene_fini(&scene);
    }
}

TEST(a_plan_that_misses_bytes_is_never_a_success)
{
    static const double resident[] = {0, 1};
    for (int i = 0; i < 2; i++) {
        struct load_scene scene;
        scene_init(&scene, seed++, 64 * MIB, 0, 0);
        scene_add_tensor(&scene, 1, (uint64_t[]){3 * MIB});
        scene_write(&scene, 1, false);
        struct load *load = scene_load_create_item(&scene, "t.0", 0, NULL, LOCAL);
        scene_pretend_disk(load, resident[i]);
        load->plan->steps[0].bytes -= 5000;
        scene_load_start(load);
        scene_wait(&scene);
        assert_true(load->has_failed);
        assert_int_equal(load->error.code, ERROR_INTERNAL);
        load_destroy(load);
        scene_fini(&scene);
    }
}

TEST(a_view_without_bytes_is_done_at_once)
{
    struct load_scene scene;
    scene_init(&scene, seed++, 64 * MIB, 0, 0);
    scene_add_tensor(&scene, 2, (uint64_t[]){0, 5});
    scene_write(&scene, 1, false);
    struct load *load = scene_load_create_item(&scene, "t.0", 0, NULL, LOCAL);
    scene_load_start(load);
    scene_wait(&scene);
    assert_true(load_has_succeeded(load));
    assert_int_equal(load->report.read_bytes, 0);
    load_destroy(load);
    scene_fini(&scene);
}

/* A window of a block has 32768 rows, here of 16 bytes: all of a block are four times as many. */
TEST(columns_of_a_byte_are_right_in_any_number)
{
    static const uint64_t n_rows[] = {32768, 32769, 200000};
    const struct slice columns[2] = {{0, INT64_MAX}, {3, 4}};
    for (size_t i = 0; i < sizeof n_rows / sizeof *n_rows; i++) {
        struct load_scene scene;
        scene_init(&scene, seed++, 64 * MIB, 1, 0);
        scene_add_tensor(&scene, 2, (uint64_t[]){n_rows[i], 16});
        scene_write(&scene, 1, false);
        struct load *load = scene_load_create_item(&scene, "t.0", 2, columns, LOCAL);
        scene_pretend_disk(load, 0);
        scene_load_start(load);
        scene_wait(&scene);
        assert_true(load_has_succeeded(load)); /* with the right bytes */
        load_destroy(load);
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
