/* The stage itself; see cuda_stage.h. */
#include "tests/support/cuda_stage.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "observe/log.h"

#include <cmocka.h> /* last: it makes a macro of fail */

char cuda_stage_plugins[4096];
static uint64_t seed = 1;

int cuda_stage_prepare(const char *program)
{
    struct error error;
    char *slash = realpath(program, cuda_stage_plugins) ? strstr(cuda_stage_plugins, "/tests/unit/") : NULL;
    if (!slash)
        return -1;
    strcpy(slash, "/plugins");
    setenv("TENSORCAST_TEST_FAKE_CUDA", "1", 1);
    setenv("TENSORCAST_TEST_FAKE_CUDA_MEMORY", "17179869184", 1); /* devices that are given up keep what they hold */
    return log_open("/dev/null", LOG_ERROR, LOG_LOGFMT, &error);
}

void cuda_stage_init(struct cuda_stage *stage, uint64_t staging_bytes, uint64_t n_threads)
{
    fake_cuda_reset();
    stage->before = fake_cuda_live();
    device_plugins_load(&stage->plugins, cuda_stage_plugins);
    assert_int_equal(stage->plugins.n_devices, 2);
    stage->gpu = stage->plugins.devices[0];
    scene_init(&stage->scene, seed++, staging_bytes, n_threads, 0);
}

void cuda_stage_add_tensors(struct cuda_stage *stage)
{
    scene_add_tensor(&stage->scene, 1, (uint64_t[]){2 * MIB + 3});
    scene_add_tensor(&stage->scene, 2, (uint64_t[]){64, 3000});
    scene_add_tensor(&stage->scene, 3, (uint64_t[]){9, 7, 11});
    scene_add_tensor(&stage->scene, 2, (uint64_t[]){200, 9000});
    scene_write(&stage->scene, 2, false);
}

void cuda_stage_fini(struct cuda_stage *stage, bool is_broken)
{
    scene_fini(&stage->scene);
    device_plugins_destroy(&stage->plugins);
    struct fake_cuda_live live = fake_cuda_live();
    if (!is_broken)
        assert_memory_equal(&live, &stage->before, sizeof live);
}

struct load *cuda_stage_load(struct cuda_stage *stage, int executor, struct device *device)
{
    static const struct slice columns[2] = {{1, 60}, {100, 900}}, box[3] = {{1, 8}, {2, 5}, {3, 9}},
                              right[2] = {{0, 200}, {2000, 9000}};
    static const struct view_item items[] = {
        {"t.1", 3, 2, columns}, {"t.0", 3, 0, NULL}, {"t.2", 3, 3, box}, {"t.3", 3, 2, right}};
    const struct view_spec view = {.items = items, .n_items = 4, .align_bytes = 256};
    return scene_load_create(&stage->scene, &view, executor, device);
}

void cuda_stage_add_few_tensors(struct cuda_stage *stage)
{
    scene_add_tensor(&stage->scene, 1, (uint64_t[]){300 * KIB + 3});
    scene_add_tensor(&stage->scene, 2, (uint64_t[]){64, 3000});
    scene_write(&stage->scene, 2, false);
}

struct load *cuda_stage_small_load(struct cuda_stage *stage, struct device *device)
{
    static const struct slice columns[2] = {{1, 60}, {100, 900}};
    static const struct view_item items[] = {{"t.1", 3, 2, columns}, {"t.0", 3, 0, NULL}};
    const struct view_spec view = {.items = items, .n_items = 2, .align_bytes = 256};
    return scene_load_create(&stage->scene, &view, GENERIC, device);
}

bool is_right_behind(const struct load *load, int fd)
{
    void *memory = mmap(NULL, load->segment->allocated_bytes, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    assert_ptr_not_equal(memory, MAP_FAILED);
    bool right = load_is_right_in(load, memory);
    munmap(memory, load->segment->allocated_bytes);
    return right;
}

bool is_load_right(struct load *load)
{
    struct error error;
    if (load->segment->host_address)
        return load_is_right(load);
    int fd = device_export_fd(load->segment, &error);
    assert_true(fd >= 0);
    return is_right_behind(load, fd);
}

void assert_published(struct load *load)
{
    struct error error;
    if (load->has_failed)
        print_error("%s\n", load->error.message);
    assert_false(load->has_failed);
    assert_int_equal(device_seal(load->segment, &error), 0);
    assert_true(is_load_right(load));
}

/* --- failing calls ----------------------------------------------------------------------------------------------------- */

void assert_host_is_well(struct cuda_stage *stage)
{
    struct load *load = cuda_stage_small_load(stage, stage->scene.device);
    scene_load_start(load);
    scene_wait(&stage->scene);
    assert_published(load);
    load_destroy(load);
}

static uint64_t count_calls(bool (*load_once)(struct cuda_stage *stage, struct error *error))
{
    struct cuda_stage stage;
    struct error error;
    cuda_stage_init(&stage, 64 * MIB, 1);
    cuda_stage_add_few_tensors(&stage);
    uint64_t before = fake_cuda_calls(NULL);
    assert_true(load_once(&stage, &error));
    uint64_t n_calls = fake_cuda_calls(NULL) - before;
    cuda_stage_fini(&stage, false);
    return n_calls;
}

#ifdef __SANITIZE_THREAD__ /* how threads meet is much the same for neighbours; every call has its turn in the other builds */
enum { CALLS_STEP = 4 };
#else
enum { CALLS_STEP = 1 };
#endif

void fail_each_call(bool (*load_once)(struct cuda_stage *stage, struct error *error), int code, bool is_sticky)
{
    uint64_t n_calls = count_calls(load_once);
    unsigned n_failed = 0, n_retired = 0;
    assert_true(n_calls > 40);
    for (uint64_t nth = 1; nth <= n_calls; nth += CALLS_STEP) {
        struct cuda_stage stage;
        struct error error = {0};
        cuda_stage_init(&stage, 64 * MIB, 1);
        cuda_stage_add_few_tensors(&stage);
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
        cuda_stage_fini(&stage, is_broken);
    }
    assert_true(n_failed > 0);
    if (is_sticky)
        assert_true(n_retired > 40 / CALLS_STEP); /* how often events are polled is a matter of luck, the rest is not */
}
