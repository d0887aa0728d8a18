/* Loads from stores beside others: who waits for whom, how many requests there are at once, how far a load is, and how it
 * ends. */
#include "tests/support/unit.h"

#include <time.h>

#include "tests/support/load_scene.h"

#define AUTO EXECUTOR_PREFERENCE_AUTO
#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define MS ((uint64_t)1000000)

static uint64_t seed;

static void wait_until_held(const struct source_remote *remote, uint64_t n_held)
{
    while (__atomic_load_n(&remote->n_held, __ATOMIC_ACQUIRE) < n_held)
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

TEST(waiting_for_a_store_holds_up_no_disk)
{
    struct load_scene scene;
    scene_init(&scene, seed++, 64 * MIB, 1, 0);
    scene_add_tensor(&scene, 1, (uint64_t[]){5 * MIB});
    scene_write(&scene, 1, false);
    struct source *files = source_ref(scene.artifact->source);
    scene_move_away(&scene); /* whose blocks are not those of the disk, else both would share a read */
    bool gate = false;
    struct load *far = scene_load_create_item(&scene, "t.0", 0, NULL, AUTO);
    far->source->gate = &gate;
    scene_load_start(far);
    struct source *store = scene.artifact->source;
    scene.artifact->source = files;
    struct load *near = scene_load_create_item(&scene, "t.0", 0, NULL, AUTO);
    scene_load_start(near);
    while (run_done_bytes(near->run) < near->mapping->view_bytes)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    assert_int_equal(run_done_bytes(far->run), 0);
    __atomic_store_n(&gate, true, __ATOMIC_RELEASE);
    scene_wait(&scene);
    assert_true(load_has_succeeded(near));
    assert_true(load_has_succeeded(far));
    load_destroy(far);
    load_destroy(near);
    source_unref(store);
    scene_fini(&scene);
}

TEST(requests_at_once_follow_what_the_store_allows)
{
    static const uint32_t allowed[] = {0, 1, 3};
    for (size_t i = 0; i < 3; i++) {
        struct load_scene scene;
        scene_init(&scene, seed++, 64 * MIB, 0, 0);
        scene_add_tensor(&scene, 1, (uint64_t[]){4 * MIB});
        scene_write(&scene, 1, false);
        struct source_remote *remote = scene_move_away(&scene);
        remote->base.caps.request_bytes = 64 * KIB;
        remote->base.caps.parallel_requests = 8;
        remote->latency_ns = 5 * MS;
        remote->allowed_requests = allowed[i];
        struct load *first =
            scene_load_create_item(&scene, "t.0", 1, (struct slice[]){{0, 100}}, AUTO); /* it learns what is allowed */
        scene_load_start(first);
        scene_wait(&scene);
        remote->most_in_flight = 0;
        struct load *load = scene_load_create_item(&scene, "t.0", 1, (struct slice[]){{MIB, 4 * MIB}}, AUTO);
        scene_load_start(load);
        scene_wait(&scene);
        assert_true(load_has_succeeded(load));
        assert_true(remote->most_in_flight <= (allowed[i] ? allowed[i] : 8));
        load_destroy(first);
        load_destroy(load);
        scene_fini(&scene);
    }
}

TEST(progress_counts_bytes_as_they_come_and_not_only_whole_requests)
{
    for (int hides_address = 0; hides_address < 2; hides_address++) {
        struct load_scene scene;
        scene_init(&scene, seed++, 64 * MIB, 0, 0);
        scene_add_tensor(&scene, 1, (uint64_t[]){6 * MIB});
        scene_write(&scene, 1, false);
        struct source_remote *remote = remote_scene_move_away(&scene);
        remote->holds_after_bytes = MIB;
        struct device_fault *device = device_fault_create(scene.device);
        device->hides_address = hides_address;
        struct view_item item = {"t.0", 3, 0, NULL};
        struct view_spec view = {.items = &item, .n_items = 1, .align_bytes = 64};
        struct load *load = scene_load_create(&scene, &view, AUTO, &device->base);
        scene_load_start(load);
        wait_until_held(remote, 2);
        uint64_t done_bytes = run_done_bytes(load->run), n_reads = __atomic_load_n(&remote->n_reads, __ATOMIC_RELAXED);
        assert_in_range(done_bytes, 2 * MIB - 2, (n_reads + 1) * MIB); /* one that is shorter has come whole */
        remote_scene_release(remote);
        scene_wait(&scene);
        assert_int_equal(run_done_bytes(load->run), 6 * MIB);
        assert_true(load_has_succeeded(load));
        load_destroy(load);
        device_destroy(&device->base);
        scene_fini(&scene);
    }
}

TEST(progress_counts_each_ranks_share_of_what_comes)
{
    struct load_scene scene;
    struct load *ranks[2];
    scene_init(&scene, seed++, 64 * MIB, 0, 0);
    scene_add_tensor(&scene, 2, (uint64_t[]){1024, 2048});
    scene_write(&scene, 1, false);
    struct source_remote *remote = scene_move_away(&scene);
    remote->holds_after_bytes = MIB;
    remote->base.caps.parallel_requests = 1;
    for (int r = 0; r < 2; r++) { /* a quarter of each row, and all the rest of it */
        ranks[r] = remote_scene_load_columns(&scene, "t.0", r ? 512 : 0, r ? 2048 : 512);
        scene_load_start(ranks[r]);
    }
    wait_until_held(remote, 1);
    uint64_t few = run_done_bytes(ranks[0]->run), many = run_done_bytes(ranks[1]->run);
    assert_true(few <= MIB / 2 && many <= 3 * MIB / 2 && few + many >= MIB / 4 && few + many <= MIB + 2);
    remote_scene_release(remote);
    scene_wait(&scene);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(run_done_bytes(ranks[r]->run), r ? 3 * MIB / 2 : MIB / 2);
        assert_true(load_has_succeeded(ranks[r]));
        load_destroy(ranks[r]);
    }
    scene_fini(&scene);
}

TEST(a_cancelled_load_does_not_wait_for_the_store)
{
    for (int round = 0; round < 8; round++) {
        struct load_scene scene;
        scene_init(&scene, seed++, 64 * MIB, 0, 0);
        scene_add_tensor(&scene, 1, (uint64_t[]){5 * MIB});
        scene_write(&scene, 1, false);
        struct source_remote *remote = remote_scene_move_away(&scene);
        remote->latency_ns = 3600 * 1000 * MS; /* no test waits for so long */
        struct device_fault *device = device_fault_create(scene.device);
        device->hides_address = round % 2;
        struct view_item item = {"t.0", 3, 0, NULL};
        struct view_spec view = {.items = &item, .n_items = 1, .align_bytes = 64};
        struct load *load = scene_load_create(&scene, &view, AUTO, &device->base);
        scene_load_start(load);
        while (round >= 2 && !__atomic_load_n(&remote->in_flight, __ATOMIC_RELAXED))
            nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
        run_cancel(load->run);
        scene_wait(&scene);
        assert_true(load->has_failed);
        assert_int_equal(load->error.code, ERROR_CANCELLED);
        assert_string_equal(load->error.reason, "LOAD_CANCELLED");
        load_destroy(load);
        device_destroy(&device->base);
        scene_fini(&scene);
    }
}

TEST(reads_go_on_while_another_load_needs_them)
{
    struct load_scene scene;
    scene_init(&scene, seed++, 64 * MIB, 0, 0);
    scene_add_tensor(&scene, 1, (uint64_t[]){5 * MIB});
    scene_write(&scene, 1, false);
    struct source_remote *remote = remote_scene_move_away(&scene);
    struct load *leaver = scene_load_create_item(&scene, "t.0", 0, NULL, AUTO),
                *stayer = scene_load_create_item(&scene, "t.0", 1, (struct slice[]){{5, INT64_MAX}}, AUTO);
    remote->holds_after_bytes = MIB;
    scene_load_start(leaver);
    scene_load_start(stayer);
    wait_until_held(remote, 1);
    run_cancel(leaver->run);
    __atomic_store_n(&remote->is_released, true, __ATOMIC_RELAXED);
    scene_wait(&scene);
    assert_true(leaver->has_failed);
    assert_true(load_has_succeeded(stayer));
    load_destroy(leaver);
    load_destroy(stayer);
    scene_fini(&scene);
}

TEST(a_failed_read_ends_the_others_of_its_load)
{
    struct load_scene scene;
    scene_init(&scene, seed++, 64 * MIB, 0, 0);
    scene_add_tensor(&scene, 1, (uint64_t[]){11 * MIB});
    scene_write(&scene, 1, false);
    struct source_remote *remote = remote_scene_move_away(&scene);
    remote->latency_ns = 3600 * 1000 * MS;
    struct load *load = scene_load_create_item(&scene, "t.0", 0, NULL, AUTO);
    load->source->fail_from = 3;
    scene_load_start(load);
    scene_wait(&scene);
    assert_true(load->has_failed);
    assert_int_equal(load->error.code, ERROR_DATA_LOSS);
    assert_string_equal(load->error.reason, "INJECTED");
    load_destroy(load);
    scene_fini(&scene);
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
