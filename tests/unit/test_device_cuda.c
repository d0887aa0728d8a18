/* The CUDA device backend, the real plugin on the fake CUDA: every byte arrives, nothing is published or overwritten too
 * early, and nothing goes away under a copy. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/support/cuda_stage.h"
#include "tests/support/row_moves.h"

#include <cmocka.h> /* last: it makes a macro of fail */

static void every_byte_arrives_whatever_is_cached_and_however_little_staging_there_is(void **state)
{
    static const uint64_t staging[] = {64 * MIB, 4 * MIB, 64 * KIB};
    (void)state;
    for (int i = 0; i < 24; i++) {
        struct cuda_stage stage;
        cuda_stage_init(&stage, staging[i % 3], i % 2 ? 1 : 3);
        cuda_stage_add_tensors(&stage);
        struct load *fixed = cuda_stage_load(&stage, i % 4 < 2 ? LOCAL : GENERIC, stage.gpu);
        struct load *random = scene_load_create_random(&stage.scene, i % 4 < 2 ? GENERIC : LOCAL, stage.gpu);
        scene_pretend_disk(fixed, (i % 3) * 0.5);
        scene_pretend_disk(random, 1 - (i % 3) * 0.5);
        scene_load_start(fixed);
        scene_load_start(random);
        scene_wait(&stage.scene);
        assert_published(fixed);
        assert_published(random);
        assert_int_equal(fixed->report.direct_bytes, 0);
        load_destroy(fixed);
        load_destroy(random);
        cuda_stage_fini(&stage, false);
    }
}

static void an_inner_slice_is_fetched_by_copies_of_rows(void **state)
{
    struct cuda_stage stage;
    (void)state;
    cuda_stage_init(&stage, 64 * MIB, 2);
    cuda_stage_add_tensors(&stage);
    struct load *load = cuda_stage_load(&stage, LOCAL, stage.gpu);
    scene_load_start(load);
    scene_wait(&stage.scene);
    assert_published(load);
    uint64_t n_rows = fake_cuda_calls("cudaMemcpy2DAsync");
    assert_in_range(n_rows, 1, 40); /* 259 rows and more, a handful of copies */
    load_destroy(load);
    cuda_stage_fini(&stage, false);
}

static void rows_go_where_both_strides_say_and_nowhere_else(void **state)
{
    unsigned char *model = calloc(1, ROW_MOVES_BYTES);
    struct cuda_stage stage;
    struct segment *segment;
    struct row_moves moves;
    struct row_move move;
    struct error error;
    (void)state;
    row_moves_init(&moves);
    cuda_stage_init(&stage, 64 * MIB, 1);
    assert_int_equal(device_allocate(stage.gpu, ROW_MOVES_BYTES, &segment, &error), 0);
    assert_int_equal(device_zero(segment, 0, ROW_MOVES_BYTES, &error), 0);
    while (row_moves_next(&moves, &move)) {
        assert_int_equal(device_copy(segment, move.offset, moves.source + move.src_offset, &move.rows, &error), 0);
        row_move_by_bytes(&moves, &move, model);
    }
    assert_int_equal(device_seal(segment, &error), 0);
    int fd = device_export_fd(segment, &error);
    void *memory = mmap(NULL, ROW_MOVES_BYTES, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    assert_memory_equal(memory, model, ROW_MOVES_BYTES);
    munmap(memory, ROW_MOVES_BYTES);
    free(model);
    segment_unref(segment);
    cuda_stage_fini(&stage, false);
    row_moves_fini(&moves);
}

static void one_read_serves_host_memory_and_two_devices(void **state)
{
    struct cuda_stage stage;
    struct load *loads[3];
    (void)state;
    cuda_stage_init(&stage, 64 * MIB, 1);
    cuda_stage_add_tensors(&stage);
    fake_cuda_delay(300);
    struct device *devices[] = {stage.scene.device, stage.gpu, stage.plugins.devices[1]};
    uint64_t read_bytes = 0, view_bytes = 0;
    for (size_t i = 0; i < 3; i++)
        loads[i] = cuda_stage_load(&stage, GENERIC, devices[i]);
    for (size_t i = 0; i < 3; i++)
        scene_load_start(loads[i]);
    scene_wait(&stage.scene);
    for (size_t i = 0; i < 3; i++) {
        assert_published(loads[i]);
        read_bytes += loads[i]->report.read_bytes;
        view_bytes += loads[i]->mapping->view_bytes;
    }
    assert_true(read_bytes < view_bytes / 2);
    for (size_t i = 0; i < 3; i++)
        load_destroy(loads[i]);
    cuda_stage_fini(&stage, false);
}

static void a_replica_in_host_memory_is_copied_to_a_device_instead_of_being_read(void **state)
{
    struct cuda_stage stage;
    (void)state;
    cuda_stage_init(&stage, 64 * MIB, 2);
    cuda_stage_add_tensors(&stage);
    struct load *first = cuda_stage_load(&stage, GENERIC, stage.scene.device);
    scene_load_start(first);
    scene_wait(&stage.scene);
    struct load *second = cuda_stage_load(&stage, GENERIC, stage.gpu);
    scene_pretend_disk(second, 0);
    scene_load_start(second);
    scene_wait(&stage.scene);
    assert_published(second);
    assert_int_equal(second->report.read_bytes, 0);
    load_destroy(first);
    load_destroy(second);
    cuda_stage_fini(&stage, false);
}

static void memory_that_cannot_be_pinned_is_used_as_it_is(void **state)
{
    struct cuda_stage stage;
    (void)state;
    cuda_stage_init(&stage, 64 * MIB, 1);
    cuda_stage_add_tensors(&stage);
    fake_cuda_fail("cudaHostRegister", 1, OUT_OF_MEMORY, false);
    struct load *load = cuda_stage_load(&stage, GENERIC, stage.gpu);
    scene_load_start(load);
    scene_wait(&stage.scene);
    assert_published(load);
    load_destroy(load);
    cuda_stage_fini(&stage, false);
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
    struct cuda_stage stage;
    pthread_t thread;
    (void)state;
    cuda_stage_init(&stage, 64 * MIB, 1);
    scene_add_tensor(&stage.scene, 1, (uint64_t[]){100 * KIB});
    scene_write(&stage.scene, 1, false);
    fake_cuda_pause(true);
    static const struct view_item item = {"t.0", 3, 0, NULL};
    const struct view_spec view = {.items = &item, .n_items = 1, .align_bytes = 64};
    struct load *load = scene_load_create(&stage.scene, &view, GENERIC, stage.gpu);
    scene_load_start(load);
    scene_wait(&stage.scene); /* everything is queued, nothing has been copied */
    assert_false(is_load_right(load));
    struct sealing sealing = {.segment = load->segment};
    pthread_create(&thread, NULL, seal_main, &sealing);
    usleep(20000); /* gives it the chance to be wrong */
    assert_false(__atomic_load_n(&sealing.is_done, __ATOMIC_ACQUIRE));
    fake_cuda_pause(false);
    pthread_join(thread, NULL);
    assert_int_equal(sealing.result, 0);
    assert_true(is_load_right(load));
    load_destroy(load);
    cuda_stage_fini(&stage, false);
}

static void staging_is_not_overwritten_while_a_device_copies_from_it(void **state)
{
    (void)state;
    for (int i = 0; i < 6; i++) {
        struct cuda_stage stage;
        cuda_stage_init(&stage, i % 2 ? 128 * KIB : 64 * KIB, 1); /* with and without a spare buffer */
        scene_add_tensor(&stage.scene, 1, (uint64_t[]){3 * MIB});
        scene_write(&stage.scene, 1, false);
        fake_cuda_delay(500);
        struct load *load = scene_load_create_random(&stage.scene, GENERIC, stage.gpu);
        scene_pretend_disk(load, i % 3 * 0.5);
        scene_load_start(load);
        scene_wait(&stage.scene);
        assert_published(load);
        load_destroy(load);
        cuda_stage_fini(&stage, false);
    }
}

static void a_load_that_is_broken_off_frees_its_memory_only_when_no_copy_is_under_way(void **state)
{
    (void)state;
    for (int i = 0; i < 10; i++) {
        struct cuda_stage stage;
        cuda_stage_init(&stage, 64 * MIB, 2);
        cuda_stage_add_tensors(&stage);
        fake_cuda_delay(2000); /* the fake aborts when memory goes away under a copy */
        struct load *load = cuda_stage_load(&stage, GENERIC, stage.gpu);
        scene_load_start(load);
        usleep((useconds_t)(i * 500));
        run_cancel(load->run);
        scene_wait(&stage.scene);
        load_destroy(load);
        cuda_stage_fini(&stage, false);
    }
}

static void a_client_keeps_the_memory_that_the_daemon_has_released(void **state)
{
    struct cuda_stage stage;
    struct error error;
    (void)state;
    cuda_stage_init(&stage, 64 * MIB, 1);
    cuda_stage_add_tensors(&stage);
    struct load *load = cuda_stage_load(&stage, GENERIC, stage.gpu);
    scene_load_start(load);
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
    cuda_stage_fini(&stage, false);
}

static void too_little_device_memory_is_told_with_numbers(void **state)
{
    struct cuda_stage stage;
    (void)state;
    cuda_stage_init(&stage, 64 * MIB, 1);
    cuda_stage_add_tensors(&stage);
    fake_cuda_fail("cuMemCreate", 1, OUT_OF_MEMORY, false);
    struct load *load = cuda_stage_load(&stage, GENERIC, stage.gpu);
    scene_load_start(load);
    scene_wait(&stage.scene);
    assert_true(load->has_failed);
    assert_int_equal(load->error.code, ERROR_RESOURCE_EXHAUSTED);
    assert_string_equal(load->error.reason, "DEVICE_OUT_OF_MEMORY");
    assert_non_null(strstr(load->error.message, "17179869184"));
    load_destroy(load);
    cuda_stage_fini(&stage, false);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_byte_arrives_whatever_is_cached_and_however_little_staging_there_is),
        cmocka_unit_test(an_inner_slice_is_fetched_by_copies_of_rows),
        cmocka_unit_test(rows_go_where_both_strides_say_and_nowhere_else),
        cmocka_unit_test(one_read_serves_host_memory_and_two_devices),
        cmocka_unit_test(a_replica_in_host_memory_is_copied_to_a_device_instead_of_being_read),
        cmocka_unit_test(memory_that_cannot_be_pinned_is_used_as_it_is),
        cmocka_unit_test(sealing_waits_for_the_last_copy),
        cmocka_unit_test(staging_is_not_overwritten_while_a_device_copies_from_it),
        cmocka_unit_test(a_load_that_is_broken_off_frees_its_memory_only_when_no_copy_is_under_way),
        cmocka_unit_test(a_client_keeps_the_memory_that_the_daemon_has_released),
        cmocka_unit_test(too_little_device_memory_is_told_with_numbers),
    };
    (void)argc;
    return cuda_stage_prepare(argv[0]) ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
