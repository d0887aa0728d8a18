/* The CUDA device backend, the real plugin on the fake CUDA of tests/fake/cuda: every byte arrives, nothing is published or
 * overwritten too early, every failing call is reported and leaves nothing behind, and a broken device stays alone with it.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "device/plugin.h"
#include "fake_cuda.h"
#include "observe/log.h"
#include "tests/support/load_scene.h"

#include <cmocka.h> /* last: it makes a macro of fail */

#define GENERIC EXECUTOR_PREFERENCE_GENERIC_BYTE_RANGE
#define LOCAL EXECUTOR_PREFERENCE_TENSOR_AWARE_LOCAL
#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)

enum { OUT_OF_MEMORY = 2, LAUNCH_FAILURE = 719 };

static char plugin_folder[4096];
static uint64_t seed = 1;

/* --- the stage ----------------------------------------------------------------------------------------------------------
 */

struct stage {
    struct device_plugins plugins;
    struct load_scene scene;
    struct device *gpu;
    struct fake_cuda_live before;
};

static void set_up(struct stage *stage, uint64_t staging_bytes, uint64_t n_threads)
{
    fake_cuda_reset();
    stage->before = fake_cuda_live();
    device_plugins_load(&stage->plugins, plugin_folder);
    assert_int_equal(stage->plugins.n_devices, 2);
    stage->gpu = stage->plugins.devices[0];
    scene_init(&stage->scene, seed++, staging_bytes, n_threads, 0);
}

static void add_tensors(struct stage *stage)
{
    scene_add_tensor(&stage->scene, 1, (uint64_t[]){5 * MIB + 3});
    scene_add_tensor(&stage->scene, 2, (uint64_t[]){64, 3000});
    scene_add_tensor(&stage->scene, 3, (uint64_t[]){9, 7, 11});
    scene_add_tensor(&stage->scene, 2, (uint64_t[]){400, 9000});
    scene_write(&stage->scene, 2, false);
}

/* Whatever a test did, nothing of it may be left in the runtime; the memory of a broken device is given up on purpose. */
static void tear_down(struct stage *stage, bool is_broken)
{
    scene_fini(&stage->scene);
    device_plugins_destroy(&stage->plugins);
    struct fake_cuda_live live = fake_cuda_live();
    if (!is_broken)
        assert_memory_equal(&live, &stage->before, sizeof live);
}

static struct load *make_load(struct stage *stage, int executor, struct device *device)
{
    static const struct slice columns[2] = {{1, 60}, {100, 900}}, box[3] = {{1, 8}, {2, 5}, {3, 9}},
                              right[2] = {{0, 400}, {2000, 9000}};
    static const struct view_item items[] = {
        {"t.1", 3, 2, columns}, {"t.0", 3, 0, NULL}, {"t.2", 3, 3, box}, {"t.3", 3, 2, right}};
    const struct view_spec view = {.items = items, .n_items = 4, .align_bytes = 256};
    return load_create(&stage->scene, &view, executor, device);
}

/* For tests that load hundreds of times: two blocks, an inner slice, and gaps to zero. */
static void add_few_tensors(struct stage *stage)
{
    scene_add_tensor(&stage->scene, 1, (uint64_t[]){300 * KIB + 3});
    scene_add_tensor(&stage->scene, 2, (uint64_t[]){64, 3000});
    scene_write(&stage->scene, 2, false);
}

static struct load *make_small_load(struct stage *stage, struct device *device)
{
    static const struct slice columns[2] = {{1, 60}, {100, 900}};
    static const struct view_item items[] = {{"t.1", 3, 2, columns}, {"t.0", 3, 0, NULL}};
    const struct view_spec view = {.items = items, .n_items = 2, .align_bytes = 256};
    return load_create(&stage->scene, &view, GENERIC, device);
}

static void pretend_disk(struct load *load, double resident_share)
{
    load->source->base.caps.direct_reads = true;
    load->source->base.caps.direct_offset_alignment = load->source->base.caps.direct_memory_alignment = 512;
    load->source->base.caps.residency = true;
    load->source->resident_share = resident_share;
}

/* What a client sees that was given the descriptor, which is closed. */
static bool is_right_behind(const struct load *load, int fd)
{
    void *memory = mmap(NULL, load->segment->allocated_bytes, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    assert_ptr_not_equal(memory, MAP_FAILED);
    bool right = load_is_right_in(load, memory);
    munmap(memory, load->segment->allocated_bytes);
    return right;
}

static bool is_right(struct load *load)
{
    struct error error;
    if (load->segment->host_address)
        return load_is_right(load);
    int fd = device_export_fd(load->segment, &error);
    assert_true(fd >= 0);
    return is_right_behind(load, fd);
}

static void assert_published(struct load *load)
{
    struct error error;
    if (load->has_failed)
        print_error("%s\n", load->error.message);
    assert_false(load->has_failed);
    assert_int_equal(device_seal(load->segment, &error), 0);
    assert_true(is_right(load));
}

/* --- finding devices ----------------------------------------------------------------------------------------------------
 */

static void devices_are_found_by_uuid_and_by_number(void **state)
{
    struct stage stage;
    struct error error;
    (void)state;
    set_up(&stage, 64 * MIB, 1);
    const struct device_plugins *plugins = &stage.plugins;
    assert_string_equal(plugins->devices[0]->caps.name, "GPU-fa4e0000-0000-0000-0000-000000000000");
    assert_string_equal(plugins->devices[1]->model, "Fake GPU 1");
    assert_int_equal(plugins->devices[1]->memory_bytes, 1 << 30);
    assert_ptr_equal(device_plugins_find(plugins, "cuda", &error), plugins->devices[0]);
    assert_ptr_equal(device_plugins_find(plugins, "cuda:1", &error), plugins->devices[1]);
    assert_ptr_equal(device_plugins_find(plugins, "gpu-FA4E0000-0000-0000-0000-000000000001", &error), plugins->devices[1]);
    assert_null(device_plugins_find(plugins, "cuda:2", &error));
    assert_int_equal(error.code, ERROR_NOT_FOUND);
    static const char *const unknown[] = {"mps",    "cuda:", "cuda:-1", "cuda:x", "cuda1", "cuda:99999999999999999999",
                                          "cuda:1 "};
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
        assert_null(device_plugins_find(plugins, unknown[i], &error));
        assert_int_equal(error.code, ERROR_UNIMPLEMENTED);
    }
    tear_down(&stage, false);
}

static void without_a_driver_the_reason_is_told_to_whoever_asks(void **state)
{
    struct device_plugins plugins;
    struct error error;
    (void)state;
    setenv("TENSORCAST_TEST_FAKE_CUDA", "0", 1);
    fake_cuda_reset();
    device_plugins_load(&plugins, plugin_folder);
    setenv("TENSORCAST_TEST_FAKE_CUDA", "1", 1);
    assert_int_equal(plugins.n_devices, 0);
    assert_null(device_plugins_find(&plugins, "cuda:0", &error));
    assert_int_equal(error.code, ERROR_FAILED_PRECONDITION);
    assert_non_null(strstr(error.message, "libcuda.so.1"));
    device_plugins_destroy(&plugins);
}

static void without_a_plugin_the_folder_is_named(void **state)
{
    struct device_plugins plugins;
    struct error error;
    (void)state;
    device_plugins_load(&plugins, "/nonexistent");
    assert_null(device_plugins_find(&plugins, "cuda:0", &error));
    assert_int_equal(error.code, ERROR_FAILED_PRECONDITION);
    assert_non_null(strstr(error.message, "/nonexistent/tensorcast-cuda.so"));
}

static void a_plugin_that_others_may_write_is_not_loaded(void **state)
{
    char folder[] = "/tmp/tc-plugin-XXXXXX", path[64];
    struct device_plugins plugins;
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/tensorcast-cuda.so", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("not a library", file);
    fclose(file);
    assert_int_equal(chmod(path, 0666), 0);
    device_plugins_load(&plugins, folder);
    assert_non_null(strstr(plugins.problem, "nobody else may write"));
    assert_int_equal(chmod(path, 0644), 0);
    device_plugins_load(&plugins, folder);
    assert_non_null(strstr(plugins.problem, "cannot be opened"));
    unlink(path);
    rmdir(folder);
}

static void a_plugin_of_another_interface_is_refused(void **state)
{
    struct device_plugin plugin = {DEVICE_PLUGIN_HEADER};
    struct error error;
    (void)state;
    assert_int_equal(device_plugin_check(&plugin, &error), 0);
    plugin.segment_bytes++;
    assert_int_equal(device_plugin_check(&plugin, &error), -1);
    assert_string_equal(error.reason, "PLUGIN_ABI");
    plugin.segment_bytes--;
    plugin.abi++;
    assert_int_equal(device_plugin_check(&plugin, &error), -1);
    assert_string_equal(error.reason, "PLUGIN_ABI");
}

static void a_host_with_an_unusable_device_serves_none(void **state)
{
    struct device_plugins plugins;
    (void)state;
    static const char *const functions[] = {"cuInit", "cuDeviceGet", "cuDeviceGetUuid", "cudaGetDriverEntryPointByVersion"};
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        fake_cuda_reset();
        fake_cuda_fail(functions[i], i == 2 ? 2 : 1, LAUNCH_FAILURE, false);
        device_plugins_load(&plugins, plugin_folder);
        assert_int_equal(plugins.n_devices, 0);
        assert_true(strlen(plugins.problem) > 0);
        device_plugins_destroy(&plugins);
    }
}

/* --- loading ------------------------------------------------------------------------------------------------------------
 */

static void every_byte_arrives_whatever_is_cached_and_however_little_staging_there_is(void **state)
{
    static const uint64_t staging[] = {64 * MIB, 4 * MIB, 64 * KIB};
    (void)state;
    for (int i = 0; i < 24; i++) {
        struct stage stage;
        set_up(&stage, staging[i % 3], i % 2 ? 1 : 3);
        add_tensors(&stage);
        struct load *fixed = make_load(&stage, i % 4 < 2 ? LOCAL : GENERIC, stage.gpu);
        struct load *random = load_create_random(&stage.scene, i % 4 < 2 ? GENERIC : LOCAL, stage.gpu);
        pretend_disk(fixed, (i % 3) * 0.5);
        pretend_disk(random, 1 - (i % 3) * 0.5);
        load_start(fixed);
        load_start(random);
        scene_wait(&stage.scene);
        assert_published(fixed);
        assert_published(random);
        assert_int_equal(fixed->report.direct_bytes, 0);
        load_destroy(fixed);
        load_destroy(random);
        tear_down(&stage, false);
    }
}

static void an_inner_slice_is_fetched_by_copies_of_rows(void **state)
{
    struct stage stage;
    (void)state;
    set_up(&stage, 64 * MIB, 2);
    add_tensors(&stage);
    struct load *load = make_load(&stage, LOCAL, stage.gpu);
    load_start(load);
    scene_wait(&stage.scene);
    assert_published(load);
    uint64_t n_rows = fake_cuda_calls("cudaMemcpy2DAsync");
    assert_in_range(n_rows, 1, 40); /* 459 rows and more, a handful of copies */
    load_destroy(load);
    tear_down(&stage, false);
}

static void one_read_serves_host_memory_and_two_devices(void **state)
{
    struct stage stage;
    struct load *loads[3];
    (void)state;
    set_up(&stage, 64 * MIB, 1);
    add_tensors(&stage);
    fake_cuda_delay(300);
    struct device *devices[] = {stage.scene.device, stage.gpu, stage.plugins.devices[1]};
    uint64_t read_bytes = 0, view_bytes = 0;
    for (size_t i = 0; i < 3; i++)
        loads[i] = make_load(&stage, GENERIC, devices[i]);
    for (size_t i = 0; i < 3; i++)
        load_start(loads[i]);
    scene_wait(&stage.scene);
    for (size_t i = 0; i < 3; i++) {
        assert_published(loads[i]);
        read_bytes += loads[i]->report.read_bytes;
        view_bytes += loads[i]->mapping->view_bytes;
    }
    assert_true(read_bytes < view_bytes / 2);
    for (size_t i = 0; i < 3; i++)
        load_destroy(loads[i]);
    tear_down(&stage, false);
}

static void a_replica_in_host_memory_is_copied_to_a_device_instead_of_being_read(void **state)
{
    struct stage stage;
    (void)state;
    set_up(&stage, 64 * MIB, 2);
    add_tensors(&stage);
    struct load *first = make_load(&stage, GENERIC, stage.scene.device);
    load_start(first);
    scene_wait(&stage.scene);
    struct load *second = make_load(&stage, GENERIC, stage.gpu);
    pretend_disk(second, 0);
    load_start(second);
    scene_wait(&stage.scene);
    assert_published(second);
    assert_int_equal(second->report.read_bytes, 0);
    load_destroy(first);
    load_destroy(second);
    tear_down(&stage, false);
}

static void memory_that_cannot_be_pinned_is_used_as_it_is(void **state)
{
    struct stage stage;
    (void)state;
    set_up(&stage, 64 * MIB, 1);
    add_tensors(&stage);
    fake_cuda_fail("cudaHostRegister", 1, OUT_OF_MEMORY, false);
    struct load *load = make_load(&stage, GENERIC, stage.gpu);
    load_start(load);
    scene_wait(&stage.scene);
    assert_published(load);
    load_destroy(load);
    tear_down(&stage, false);
}

struct sealing {
    struct segment *segment;
    struct error error;
    int result;
    bool is_done; /* atomic */
};

static void *seal_main(void *argument)
{
    struct sealing *sealing = argument;
    sealing->result = device_seal(sealing->segment, &sealing->error);
    __atomic_store_n(&sealing->is_done, true, __ATOMIC_RELEASE);
    return NULL;
}

static void sealing_waits_for_the_last_copy(void **state)
{
    struct stage stage;
    pthread_t thread;
    (void)state;
    set_up(&stage, 64 * MIB, 1);
    scene_add_tensor(&stage.scene, 1, (uint64_t[]){100 * KIB});
    scene_write(&stage.scene, 1, false);
    fake_cuda_pause(true);
    static const struct view_item item = {"t.0", 3, 0, NULL};
    const struct view_spec view = {.items = &item, .n_items = 1, .align_bytes = 64};
    struct load *load = load_create(&stage.scene, &view, GENERIC, stage.gpu);
    load_start(load);
    scene_wait(&stage.scene); /* everything is queued, nothing has been copied */
    assert_false(is_right(load));
    struct sealing sealing = {.segment = load->segment};
    pthread_create(&thread, NULL, seal_main, &sealing);
    usleep(20000); /* gives it the chance to be wrong */
    assert_false(__atomic_load_n(&sealing.is_done, __ATOMIC_ACQUIRE));
    fake_cuda_pause(false);
    pthread_join(thread, NULL);
    assert_int_equal(sealing.result, 0);
    assert_true(is_right(load));
    load_destroy(load);
    tear_down(&stage, false);
}

static void staging_is_not_overwritten_while_a_device_copies_from_it(void **state)
{
    (void)state;
    for (int i = 0; i < 6; i++) {
        struct stage stage;
        set_up(&stage, i % 2 ? 128 * KIB : 64 * KIB, 1); /* with and without a spare buffer */
        scene_add_tensor(&stage.scene, 1, (uint64_t[]){3 * MIB});
        scene_write(&stage.scene, 1, false);
        fake_cuda_delay(500);
        struct load *load = load_create_random(&stage.scene, GENERIC, stage.gpu);
        pretend_disk(load, i % 3 * 0.5);
        load_start(load);
        scene_wait(&stage.scene);
        assert_published(load);
        load_destroy(load);
        tear_down(&stage, false);
    }
}

static void a_load_that_is_broken_off_frees_its_memory_only_when_no_copy_is_under_way(void **state)
{
    (void)state;
    for (int i = 0; i < 10; i++) {
        struct stage stage;
        set_up(&stage, 64 * MIB, 2);
        add_tensors(&stage);
        fake_cuda_delay(2000); /* the fake aborts when memory goes away under a copy */
        struct load *load = make_load(&stage, GENERIC, stage.gpu);
        load_start(load);
        usleep((useconds_t)(i * 500));
        run_cancel(load->run);
        scene_wait(&stage.scene);
        load_destroy(load);
        tear_down(&stage, false);
    }
}

static void a_client_keeps_the_memory_that_the_daemon_has_released(void **state)
{
    struct stage stage;
    struct error error;
    (void)state;
    set_up(&stage, 64 * MIB, 1);
    add_tensors(&stage);
    struct load *load = make_load(&stage, GENERIC, stage.gpu);
    load_start(load);
    scene_wait(&stage.scene);
    assert_published(load);
    uint64_t bytes = load->segment->allocated_bytes;
    int fd = device_export_fd(load->segment, &error);
    unsigned char *before = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    unsigned char *copy = malloc(bytes);
    memcpy(copy, before, bytes);
    load_destroy(load);
    assert_int_equal(fake_cuda_live().bytes, stage.before.bytes);
    assert_memory_equal(before, copy, bytes);
    munmap(before, bytes);
    close(fd);
    free(copy);
    tear_down(&stage, false);
}

static void too_little_device_memory_is_told_with_numbers(void **state)
{
    struct stage stage;
    (void)state;
    set_up(&stage, 64 * MIB, 1);
    add_tensors(&stage);
    fake_cuda_fail("cuMemCreate", 1, OUT_OF_MEMORY, false);
    struct load *load = make_load(&stage, GENERIC, stage.gpu);
    load_start(load);
    scene_wait(&stage.scene);
    assert_true(load->has_failed);
    assert_int_equal(load->error.code, ERROR_RESOURCE_EXHAUSTED);
    assert_string_equal(load->error.reason, "DEVICE_OUT_OF_MEMORY");
    assert_non_null(strstr(load->error.message, "1073741824"));
    load_destroy(load);
    tear_down(&stage, false);
}

/* --- failing calls ------------------------------------------------------------------------------------------------------
 */

/* One load into the device and its seal. Returns whether all of it went well. */
static bool load_once(struct stage *stage, struct error *error)
{
    struct load *load = make_small_load(stage, stage->gpu);
    pretend_disk(load, 0);
    load_start(load);
    scene_wait(&stage->scene);
    *error = load->error;
    bool is_good = !load->has_failed && device_seal(load->segment, error) == 0;
    int fd = is_good ? device_export_fd(load->segment, error) : -1;
    is_good = fd >= 0;
    if (is_good)
        assert_true(is_right_behind(load, fd));
    load_destroy(load);
    return is_good;
}

static void assert_host_is_well(struct stage *stage)
{
    struct load *load = make_small_load(stage, stage->scene.device);
    load_start(load);
    scene_wait(&stage->scene);
    assert_published(load);
    load_destroy(load);
}

static uint64_t count_calls(void)
{
    struct stage stage;
    struct error error;
    set_up(&stage, 64 * MIB, 1);
    add_few_tensors(&stage);
    uint64_t before = fake_cuda_calls(NULL);
    assert_true(load_once(&stage, &error));
    uint64_t n_calls = fake_cuda_calls(NULL) - before;
    tear_down(&stage, false);
    return n_calls;
}

static void fail_each_call(int code, bool is_sticky)
{
    uint64_t n_calls = count_calls();
    unsigned n_failed = 0, n_retired = 0;
    assert_true(n_calls > 40);
    for (uint64_t nth = 1; nth <= n_calls; nth++) {
        struct stage stage;
        struct error error = {0};
        set_up(&stage, 64 * MIB, 1);
        add_few_tensors(&stage);
        fake_cuda_fail(NULL, nth, code, is_sticky);
        bool is_good = load_once(&stage, &error);
        n_failed += !is_good;
        if (!is_good && (!error.message[0] || error.code == ERROR_OK))
            print_error("call %llu of %llu has no message\n", (unsigned long long)nth, (unsigned long long)n_calls);
        assert_true(is_good || (error.message[0] && error.code != ERROR_OK));
        bool is_retired = device_check(stage.gpu, &error) != 0;
        n_retired += is_retired;
        if (is_sticky && !is_good)
            assert_true(is_retired);
        assert_host_is_well(&stage);
        bool is_broken = is_retired || is_sticky;
        if (!is_broken) {
            fake_cuda_reset();
            assert_true(load_once(&stage, &error));
        }
        tear_down(&stage, is_broken);
    }
    assert_true(n_failed > 0);
    if (is_sticky)
        assert_true(n_retired > 40); /* how often events are polled is a matter of luck, the rest is not */
}

static void any_call_may_run_out_of_memory(void **state)
{
    (void)state;
    fail_each_call(OUT_OF_MEMORY, false);
}

static void any_call_may_find_the_device_broken(void **state)
{
    (void)state;
    fail_each_call(LAUNCH_FAILURE, true);
}

static void a_fault_in_a_queued_copy_takes_the_device_out_of_service_and_nothing_else(void **state)
{
    struct stage stage;
    struct error error;
    (void)state;
    set_up(&stage, 64 * MIB, 2);
    add_few_tensors(&stage);
    fake_cuda_fail("stream", 2, LAUNCH_FAILURE, true);
    assert_false(load_once(&stage, &error));
    assert_int_equal(error.code, ERROR_FAILED_PRECONDITION);
    assert_string_equal(error.reason, "DEVICE_OUT_OF_SERVICE");
    assert_non_null(strstr(stage.gpu->problem, "719"));
    assert_host_is_well(&stage);
    struct segment *segment;
    assert_int_equal(device_allocate(stage.gpu, 100, &segment, &error), -1);
    assert_string_equal(error.reason, "DEVICE_OUT_OF_SERVICE");
    struct load *other = make_small_load(&stage, stage.plugins.devices[1]);
    load_start(other);
    scene_wait(&stage.scene);
    assert_published(other);
    load_destroy(other);
    tear_down(&stage, true);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_are_found_by_uuid_and_by_number),
        cmocka_unit_test(without_a_driver_the_reason_is_told_to_whoever_asks),
        cmocka_unit_test(without_a_plugin_the_folder_is_named),
        cmocka_unit_test(a_plugin_that_others_may_write_is_not_loaded),
        cmocka_unit_test(a_plugin_of_another_interface_is_refused),
        cmocka_unit_test(a_host_with_an_unusable_device_serves_none),
        cmocka_unit_test(every_byte_arrives_whatever_is_cached_and_however_little_staging_there_is),
        cmocka_unit_test(an_inner_slice_is_fetched_by_copies_of_rows),
        cmocka_unit_test(one_read_serves_host_memory_and_two_devices),
        cmocka_unit_test(a_replica_in_host_memory_is_copied_to_a_device_instead_of_being_read),
        cmocka_unit_test(memory_that_cannot_be_pinned_is_used_as_it_is),
        cmocka_unit_test(sealing_waits_for_the_last_copy),
        cmocka_unit_test(staging_is_not_overwritten_while_a_device_copies_from_it),
        cmocka_unit_test(a_load_that_is_broken_off_frees_its_memory_only_when_no_copy_is_under_way),
        cmocka_unit_test(a_client_keeps_the_memory_that_the_daemon_has_released),
        cmocka_unit_test(too_little_device_memory_is_told_with_numbers),
        cmocka_unit_test(any_call_may_run_out_of_memory),
        cmocka_unit_test(any_call_may_find_the_device_broken),
        cmocka_unit_test(a_fault_in_a_queued_copy_takes_the_device_out_of_service_and_nothing_else),
    };
    char *slash = realpath(argv[0], plugin_folder) ? strstr(plugin_folder, "/tests/unit/") : NULL;
    (void)argc;
    if (!slash)
        return 1;
    strcpy(slash, "/plugins");
    setenv("TENSORCAST_TEST_FAKE_CUDA", "1", 1);
    struct error error;
    if (log_open("/dev/null", LOG_ERROR, LOG_LOGFMT, &error))
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
