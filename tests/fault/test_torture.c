/* Torture: runs a small load once to count what it asks of its backends, then again and again with call 1, 2, .. n failing.
 * Every time the error is the injected one, nothing is published, nothing is left behind, and a load beside it succeeds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/support/load_scene.h"

#include <cmocka.h> /* last: it makes a macro of fail */

#define MIB ((uint64_t)1 << 20)

struct variant {
    const char *name;
    int executor;
    double resident_share;
    bool hides_address, on_disk;
    uint64_t staging_bytes;
    bool is_remote;
};

static const struct variant variants[] = {
    {"generic, cached", EXECUTOR_PREFERENCE_GENERIC_BYTE_RANGE, 1, false, false, 1 << 20, false},
    {"generic, uncached", EXECUTOR_PREFERENCE_GENERIC_BYTE_RANGE, 0, false, false, 1 << 20, false},
    {"local, cached", EXECUTOR_PREFERENCE_TENSOR_BATCHED_LOCAL, 1, false, false, 1 << 20, false},
    {"local, uncached", EXECUTOR_PREFERENCE_TENSOR_BATCHED_LOCAL, 0, false, false, 1 << 20, false},
    {"local, uncached, hardly any staging", EXECUTOR_PREFERENCE_TENSOR_BATCHED_LOCAL, 0, false, false, 64 << 10, false},
    {"generic, no address", EXECUTOR_PREFERENCE_GENERIC_BYTE_RANGE, 0, true, false, 1 << 20, false},
    {"local, from disk", EXECUTOR_PREFERENCE_TENSOR_BATCHED_LOCAL, 0, false, true, 1 << 20, false},
    {"from a store", EXECUTOR_PREFERENCE_AUTO, 0, false, false, 64 << 20, true},
    {"from a store, hardly any staging, no address", EXECUTOR_PREFERENCE_AUTO, 0, true, false, 128 << 10, true},
};

static uint64_t seed;

static void set_up(struct load_scene *scene, const struct variant *variant)
{
    scene_init(scene, seed, variant->staging_bytes, 1, 0); /* one thread: the same calls every time */
    scene_add_tensor(scene, 1, (uint64_t[]){MIB});         /* several blocks */
    scene_add_tensor(scene, 2, (uint64_t[]){64, 3000});
    scene_add_tensor(scene, 3, (uint64_t[]){9, 7, 11});
    scene_add_tensor(scene, 2, (uint64_t[]){40, 9000});
    scene_write(scene, 2, variant->on_disk);
    if (!variant->is_remote)
        return;
    struct source_remote *remote = scene_move_away(scene);
    remote->base.caps.request_bytes = 256 << 10;
    remote->base.caps.parallel_requests = 1; /* for the same reason */
}

static struct load *make_load(struct load_scene *scene, const struct variant *variant, struct device *device)
{
    static const struct slice columns[2] = {{1, 60}, {100, 900}}, box[3] = {{1, 8}, {2, 5}, {3, 9}};
    static const struct view_item items[] = {
        {"t.1", 3, 2, columns}, {"t.0", 3, 0, NULL}, {"t.2", 3, 3, box}, {"t.3", 3, 0, NULL}};
    struct view_spec view = {.items = items, .n_items = 4, .align_bytes = 64};
    struct load *load = scene_load_create(scene, &view, variant->executor, device);
    if (!variant->on_disk && !variant->is_remote) {
        load->source->base.caps.direct_reads = true;
        load->source->base.caps.direct_offset_alignment = load->source->base.caps.direct_memory_alignment = 512;
        load->source->base.caps.residency = true;
    }
    load->source->resident_share = variant->resident_share;
    return load;
}

/* What a daemon does with a load that has run: seal and hand out, both of which may fail, too. */
static bool publish(struct load *load)
{
    struct error *error = &load->error;
    if (load->has_failed)
        return false;
    int fd = device_seal(load->segment, error) ? -1 : device_export_fd(load->segment, error);
    load->has_failed = fd < 0;
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static bool run_once(struct load_scene *scene, struct load *load)
{
    scene_load_start(load);
    scene_wait(scene);
    return publish(load);
}

struct counts {
    uint64_t reads, device_calls;
};

static struct counts count_calls(const struct variant *variant)
{
    struct load_scene scene;
    set_up(&scene, variant);
    struct device_fault *device = device_fault_create(scene.device);
    device->hides_address = variant->hides_address;
    struct load *load = make_load(&scene, variant, &device->base);
    assert_true(run_once(&scene, load));
    assert_true(load_is_right(load));
    struct counts counts = {load->source->n_reads, device->n_calls};
    load_destroy(load);
    device_destroy(&device->base);
    scene_fini(&scene);
    assert_true(counts.reads > 1 && counts.device_calls > 3);
    return counts;
}

static void assert_failed_cleanly(const struct load *load, enum error_code code)
{
    assert_true(load->has_failed);
    assert_int_equal(load->error.code, code);
    assert_string_equal(load->error.reason, "INJECTED");
}

/* The load beside it reads the same files into other memory: at the same time when memory fails, which is the victim's own;
 * after it when a read fails, which takes down the loads that read with it. */
static void fail_call(const struct variant *variant, uint64_t read, uint64_t device_call)
{
    struct load_scene scene;
    set_up(&scene, variant);
    struct device_fault *device = device_fault_create(scene.device);
    device->hides_address = variant->hides_address;
    device->fail_from = device_call;
    struct load *victim = make_load(&scene, variant, &device->base);
    struct load *bystander = make_load(&scene, variant, scene.device);
    victim->source->fail_from = read;
    scene_load_start(victim);
    if (device_call > 0)
        scene_load_start(bystander);
    scene_wait(&scene);
    bool is_published = publish(victim);
    if (is_published) /* what came from the load beside it made some calls unnecessary */
        assert_true(read == 0 && device->n_calls < device_call);
    else
        assert_failed_cleanly(victim, read ? ERROR_DATA_LOSS : ERROR_RESOURCE_EXHAUSTED);
    if (device_call == 0) {
        scene_load_start(bystander);
        scene_wait(&scene);
    }
    assert_true(publish(bystander));
    assert_true(load_is_right(bystander));
    load_destroy(victim);
    assert_int_equal(device->n_segments, 0);
    load_destroy(bystander);
    device_destroy(&device->base);
    scene_fini(&scene);
}

static void every_backend_call_may_fail_once(void **state)
{
    const struct variant *variant = *state;
    struct counts counts = count_calls(variant);
    for (uint64_t n = 1; n <= counts.reads; n++)
        fail_call(variant, n, 0);
    uint64_t step = counts.device_calls > 300 ? counts.device_calls / 150 : 1; /* row by row without an address: a sample */
    for (uint64_t n = 1; n <= counts.device_calls; n += step)
        fail_call(variant, 0, n);
}

int main(void)
{
    const char *given = getenv("TEST_SEED");
    struct CMUnitTest tests[sizeof variants / sizeof *variants];
    seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
    print_message("TEST_SEED=%llu\n", (unsigned long long)seed);
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++)
        tests[i] = (struct CMUnitTest){variants[i].name, every_backend_call_may_fail_once, NULL, NULL, (void *)&variants[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
