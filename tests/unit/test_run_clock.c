/* The time of a run is divided without a rest: among what its items did, and what it waited for while it had none. */
#include "tests/support/unit.h"

#include <time.h>

#include "base/clock.h"
#include "blocks/blocks.h"
#include "observe/lanes.h"
#include "tests/support/load_scene.h"

#define AUTO EXECUTOR_PREFERENCE_AUTO
#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define MS ((uint64_t)1000000)

static uint64_t sum_of(const struct run_spent *spent)
{
    uint64_t sum = 0;
    for (int i = 0; i < CAUSES; i++)
        sum += spent->ns[i];
    return sum;
}

/* Of a run that is done: what rounding loses is less than a microsecond for each block. */
static struct run_spent check_spent(struct load *load)
{
    struct run_spent spent;
    run_spent(load->run, &spent);
    uint64_t all_ns = run_report(load->run)->execute_ns, known_ns = sum_of(&spent);
    uint64_t lost_ns = known_ns < all_ns ? all_ns - known_ns : known_ns - all_ns;
    assert_in_range(lost_ns, 0, MS + all_ns / 100);
    assert_int_equal(spent.report.read_bytes, run_report(load->run)->read_bytes);
    return spent;
}

static void wait_until_held(const struct source_remote *remote, uint64_t n_held)
{
    while (__atomic_load_n(&remote->n_held, __ATOMIC_ACQUIRE) < n_held)
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

TEST(a_load_from_a_store_has_waited_for_its_answers)
{
    struct load_scene scene;
    scene_init(&scene, 1, 64 * MIB, 0, 0);
    scene_add_tensor(&scene, 1, (uint64_t[]){4 * MIB});
    scene_write(&scene, 1, false);
    struct source_remote *remote = scene_move_away(&scene);
    remote->base.caps.request_bytes = 64 * KIB;
    remote->base.caps.parallel_requests = 8;
    remote->latency_ns = 20 * MS;
    struct load *load = scene_load_create_item(&scene, "t.0", 0, NULL, AUTO);
    load->lanes = lanes_create();
    scene_load_start(load);
    scene_wait(&scene);
    assert_true(load_has_succeeded(load));
    const struct run_spent spent = check_spent(load);
    assert_true(spent.ns[CAUSE_STORE] >= 19 * MS); /* however many wait beside each other */
    assert_int_equal(spent.ns[CAUSE_DISK] + spent.ns[CAUSE_GROUP] + spent.ns[CAUSE_PEERS], 0);

    struct lanes_copy copy = lanes_copy(load->lanes);
    uint64_t bytes = 0;
    bool has_store = false;
    for (size_t i = 0; i < copy.n_spans; i++)
        bytes += copy.spans[i].bytes;
    for (size_t i = 0; i < copy.n_lanes; i++)
        has_store |= copy.lanes[i].crew == LANE_STORE;
    assert_int_equal(bytes, 4 * MIB);
    assert_true(has_store);
    lanes_copy_free(&copy);
    lanes_unref(load->lanes);
    load_destroy(load);
    scene_fini(&scene);
}

/* Another host sends everything: it is as far away as the store. */
static int get_of_host(struct block_holder *holder, struct block_want *want, struct error *error)
{
    struct block_want rest = {.source = want->source, .read = want->read};
    uint64_t bytes = 0;
    (void)holder;
    for (int i = 0; i < want->read.n_iov; i++)
        bytes += want->read.iov[i].iov_len;
    if (blocks_get(&rest, error))
        return -1;
    want->read.checksum_value = rest.read.checksum_value;
    want->count->add(want->count, BLOCK_ASKED, NULL, bytes);
    want->count->add(want->count, BLOCK_FROM_HOST, "alpha", bytes);
    return 0;
}

TEST(a_load_of_other_hosts_has_waited_for_them)
{
    struct load_scene scene;
    struct block_holder holder = {.get = get_of_host, .block_bytes = 64 * KIB};
    scene_init(&scene, 5, 64 * MIB, 0, 0);
    scene_add_tensor(&scene, 1, (uint64_t[]){MIB});
    scene_write(&scene, 1, false);
    struct source_remote *remote = scene_move_away(&scene);
    remote->base.caps.request_bytes = 64 * KIB;
    remote->latency_ns = 20 * MS;
    scene.holders = &holder;
    struct load *load = scene_load_create_item(&scene, "t.0", 0, NULL, AUTO);
    scene_load_start(load);
    scene_wait(&scene);
    assert_true(load_has_succeeded(load));
    const struct run_spent spent = check_spent(load);
    assert_true(spent.ns[CAUSE_PEERS] >= 5 * MS);               /* others may wait for memory beside it */
    assert_true(spent.ns[CAUSE_STORE] < spent.ns[CAUSE_PEERS]); /* from the last block to the end */
    load_destroy(load);
    scene_fini(&scene);
}

TEST(a_load_from_a_disk_reads_and_copies)
{
    struct load_scene scene;
    scene_init(&scene, 2, 8 * MIB, 4, 0);
    scene_add_mixed_tensors(&scene, 20, 300);
    scene_write(&scene, 2, true);
    struct load *load = scene_load_create_random(&scene, AUTO, scene.device);
    scene_load_start(load);
    scene_wait(&scene);
    assert_true(load_has_succeeded(load));
    const struct run_spent spent = check_spent(load);
    assert_true(spent.ns[CAUSE_DISK] > 0);
    assert_int_equal(spent.ns[CAUSE_STORE], 0);
    load_destroy(load);
    scene_fini(&scene);
}

TEST(what_is_in_flight_counts_before_it_is_done)
{
    struct load_scene scene;
    struct run_spent spent;
    scene_init(&scene, 3, 64 * MIB, 1, 0);
    scene_add_tensor(&scene, 1, (uint64_t[]){5 * MIB});
    scene_write(&scene, 1, false);
    struct source_remote *remote = scene_move_away(&scene);
    remote->holds_after_bytes = MIB;
    struct load *load = scene_load_create_item(&scene, "t.0", 0, NULL, AUTO);
    uint64_t before_ns = clock_now_ns();
    scene_load_start(load);
    wait_until_held(remote, 1);
    nanosleep(&(struct timespec){.tv_nsec = 30 * (long)MS}, NULL);
    run_spent(load->run, &spent);
    uint64_t passed_ns = clock_now_ns() - before_ns;
    assert_true(spent.ns[CAUSE_STORE] >= 30 * MS);
    assert_in_range(sum_of(&spent), 30 * MS, passed_ns);
    remote_scene_release(remote);
    scene_wait(&scene);
    check_spent(load);
    load_destroy(load);
    scene_fini(&scene);
}

TEST(who_has_no_turn_waits_in_the_queue)
{
    struct load_scene scene;
    scene_init(&scene, 4, 8 * MIB, 1, 0); /* one thread */
    scene_add_tensor(&scene, 1, (uint64_t[]){MIB});
    scene_add_tensor(&scene, 1, (uint64_t[]){MIB});
    scene_write(&scene, 2, false);
    bool gate = false;
    struct load *first = scene_load_create_item(&scene, "t.0", 0, NULL, AUTO);
    struct load *second = scene_load_create_item(&scene, "t.1", 0, NULL, AUTO);
    first->source->gate = &gate;
    scene_load_start(first);
    while (__atomic_load_n(&first->source->n_reads, __ATOMIC_RELAXED) == 0) /* until it stands at the gate */
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    scene_load_start(second);
    nanosleep(&(struct timespec){.tv_nsec = 30 * (long)MS}, NULL);
    __atomic_store_n(&gate, true, __ATOMIC_RELEASE);
    scene_wait(&scene);
    struct run_spent spent = check_spent(second);
    assert_true(spent.ns[CAUSE_QUEUE] >= 20 * MS);
    spent = check_spent(first);
    assert_true(spent.ns[CAUSE_DISK] >= 20 * MS);
    load_destroy(first);
    load_destroy(second);
    scene_fini(&scene);
}
