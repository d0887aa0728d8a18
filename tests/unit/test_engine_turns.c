/* What loads of one engine leave to each other: turns, threads and staging memory, also where a device hangs. */
#include "tests/support/unit.h"

#include <time.h>

#include "execute/engine_private.h"
#include "tests/support/load_scene.h"

#define LOCAL EXECUTOR_PREFERENCE_TENSOR_BATCHED_LOCAL
#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)

static uint64_t seed;

TEST(a_small_load_is_not_stuck_behind_a_large_one)
{
    struct load_scene scene;
    scene_init(&scene, seed++, 64 * MIB, 1, 0);
    scene_add_tensor(&scene, 1, (uint64_t[]){12 * MIB});
    scene_add_tensor(&scene, 1, (uint64_t[]){1000});
    scene_write(&scene, 2, false);
    struct load *large = scene_load_create_item(&scene, "t.0", 0, NULL, LOCAL),
                *small = scene_load_create_item(&scene, "t.1", 0, NULL, LOCAL);
    bool gate = false;
    large->source->gate = &gate; /* the large one has begun when the small one comes */
    scene_load_start(large);
    scene_load_start(small);
    __atomic_store_n(&gate, true, __ATOMIC_RELEASE);
    scene_wait(&scene);
    assert_true(load_has_succeeded(large));
    assert_true(load_has_succeeded(small));
    assert_int_equal(small->order, 1);
    load_destroy(large);
    load_destroy(small);
    scene_fini(&scene);
}

/* t.0, t.1 ... in a file and on a device each, of more blocks than most devices have threads. */
static void init_devices(struct load_scene *scene, uint64_t staging_bytes, uint64_t n_threads, size_t n_devices)
{
    scene_init(scene, seed++, staging_bytes, n_threads, 0);
    uint64_t n_blocks = scene->engine->n_workers < 8 ? scene->engine->n_workers + 1 : 8;
    for (size_t i = 0; i < n_devices; i++)
        scene_add_tensor(scene, 1, (uint64_t[]){n_blocks * scene->engine->block_bytes});
    scene_write(scene, n_devices, false);
}

static struct load *start_on(struct load_scene *scene, unsigned device, const bool *gate)
{
    char name[24];
    snprintf(name, sizeof name, "t.%u", device);
    struct load *load = scene_load_create_item(scene, name, 0, NULL, LOCAL);
    scene_pretend_disk(load, 0);
    load->source->base.caps.device_set = 100 + device;
    load->source->gate = gate;
    scene_load_start(load);
    return load;
}

static void hang_devices(uint64_t staging_bytes, uint64_t n_threads, size_t n_hung, size_t n_loads)
{
    struct load_scene scene;
    struct load *hung[20];
    bool gate = false;
    assert_true(n_loads <= 20);
    init_devices(&scene, staging_bytes, n_threads, n_hung + 1);
    for (size_t i = 0; i < n_loads; i++)
        hung[i] = start_on(&scene, (unsigned)(i % n_hung), &gate);
    for (int i = 0; i < 3; i++) { /* also a load that comes when the others have long been stuck */
        struct load *load = start_on(&scene, (unsigned)n_hung, NULL);
        bool is_done = scene_wait_for(load);
        __atomic_store_n(&gate, !is_done, __ATOMIC_RELEASE);
        assert_true(is_done && load_has_succeeded(load));
        assert_true(engine_staging_bytes(scene.engine) <= staging_bytes);
        load_destroy(load);
    }
    for (size_t i = 0; i < n_loads; i++)
        assert_false(hung[i]->is_done);
    __atomic_store_n(&gate, true, __ATOMIC_RELEASE);
    scene_wait(&scene);
    for (size_t i = 0; i < n_loads; i++) {
        assert_true(load_has_succeeded(hung[i]));
        load_destroy(hung[i]);
    }
    scene_fini(&scene);
}

TEST(a_device_that_hangs_stops_only_its_own_loads)
{
    hang_devices(64 * MIB, 4, 1, 1);
    hang_devices(64 * MIB, 4, 1, 8);
    hang_devices(64 * MIB, 4, 3, 9);
    hang_devices(64 * MIB, 0, 2, 8);
}

/* With one thread for each of sixteen devices. */
TEST(fifteen_devices_that_hang_leave_a_thread_and_sixteen_are_waited_for)
{
    enum { HUNG = 16 };
    struct load_scene scene;
    struct load *loads[HUNG + 1];
    bool gate = false;
    scene_init(&scene, seed++, 128 * MIB, 1, 0);
    for (size_t i = 0; i <= HUNG; i++)
        scene_add_tensor(&scene, 1, (uint64_t[]){MIB});
    scene_write(&scene, HUNG + 1, false);
    for (unsigned i = 0; i < HUNG - 1; i++)
        loads[i] = start_on(&scene, i, &gate);
    loads[HUNG] = start_on(&scene, HUNG, NULL);
    bool is_done = scene_wait_for(loads[HUNG]);
    __atomic_store_n(&gate, !is_done, __ATOMIC_RELEASE);
    assert_true(is_done && load_has_succeeded(loads[HUNG]));
    load_destroy(loads[HUNG]);
    loads[HUNG - 1] = start_on(&scene, HUNG - 1, &gate);
    loads[HUNG] = start_on(&scene, HUNG, NULL); /* of a seventeenth device */
    __atomic_store_n(&gate, true, __ATOMIC_RELEASE);
    scene_wait(&scene);
    for (size_t i = 0; i <= HUNG; i++) {
        assert_true(load_has_succeeded(loads[i]));
        load_destroy(loads[i]);
    }
    scene_fini(&scene);
}

TEST(a_device_that_hangs_leaves_staging_memory_to_others)
{
    hang_devices(8 * MIB, 4, 1, 5);
    hang_devices(2 * MIB, 4, 1, 3);
    hang_devices(64 * KIB, 1, 1, 3);
    hang_devices(64 * MIB, 32, 2, 8);
}

TEST(a_load_from_a_device_that_hangs_ends_when_the_device_goes_on_after_its_cancel)
{
    struct load_scene scene;
    bool gate = false;
    init_devices(&scene, 64 * MIB, 2, 2);
    struct load *hung = start_on(&scene, 0, &gate), *other = start_on(&scene, 1, NULL);
    assert_true(scene_wait_for(other));
    while (__atomic_load_n(&hung->source->n_reads, __ATOMIC_RELAXED) == 0) /* until it hangs */
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    run_cancel(hung->run);
    struct load *later = start_on(&scene, 1, NULL);
    assert_true(scene_wait_for(later));
    assert_false(hung->is_done); /* its memory is being written to */
    __atomic_store_n(&gate, true, __ATOMIC_RELEASE);
    assert_true(scene_wait_for(hung));
    assert_int_equal(hung->error.code, ERROR_CANCELLED);
    load_destroy(hung);
    load_destroy(other);
    load_destroy(later);
    scene_fini(&scene);
}

TEST(threads_are_two_per_core_up_to_eight_then_one_up_to_sixteen)
{
    static const uint64_t wanted[][2] = {{0, 4}, {1, 4}, {2, 4},   {3, 6},   {4, 8},
                                         {7, 8}, {8, 8}, {12, 12}, {16, 16}, {224, 16}};
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
        assert_int_equal(engine_auto_threads(wanted[i][0]), wanted[i][1]);
}

TEST(users_take_turns_however_many_loads_each_has)
{
    enum { N_LOADS = 12 };
    struct load_scene scene;
    struct load *many[N_LOADS];
    char name[24];
    bool gate = false;
    scene_init(&scene, seed++, 64 * KIB, 1, 0);
    for (int i = 0; i < N_LOADS; i++)
        scene_add_tensor(&scene, 1, (uint64_t[]){256 * KIB});
    scene_add_tensor(&scene, 1, (uint64_t[]){768 * KIB});
    scene_write(&scene, 1, false);
    for (int i = 0; i < N_LOADS; i++) {
        snprintf(name, sizeof name, "t.%d", i);
        many[i] = scene_load_create_item(&scene, name, 0, NULL, LOCAL);
        many[i]->uid = 1000;
        many[i]->source->gate = &gate; /* none is done before all are there */
        scene_load_start(many[i]);
    }
    snprintf(name, sizeof name, "t.%d", N_LOADS);
    struct load *one = scene_load_create_item(&scene, name, 0, NULL, LOCAL);
    one->uid = 1001;
    scene_load_start(one);
    __atomic_store_n(&gate, true, __ATOMIC_RELEASE);
    scene_wait(&scene);
    assert_true(load_has_succeeded(one));
    assert_int_equal(one->order, 1); /* by turns of loads it would be the last: it is three times as large */
    load_destroy(one);
    for (int i = 0; i < N_LOADS; i++) {
        assert_true(load_has_succeeded(many[i]));
        load_destroy(many[i]);
    }
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
