/* Calls of CUDA that fail: every one of a load in turn, for once and for good, is reported and leaves nothing behind, and a
 * broken device stays alone with it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/cuda_stage.h"

#include <cmocka.h> /* last: it makes a macro of fail */

/* One load into the device and its seal. Returns whether all of it went well. */
static bool load_once(struct cuda_stage *stage, struct error *error)
{
    struct load *load = cuda_stage_small_load(stage, stage->gpu);
    scene_pretend_disk(load, 0);
    scene_load_start(load);
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

static void any_call_may_run_out_of_memory(void **state)
{
    (void)state;
    fail_each_call(load_once, OUT_OF_MEMORY, false);
}

static void any_call_may_find_the_device_broken(void **state)
{
    (void)state;
    fail_each_call(load_once, LAUNCH_FAILURE, true);
}

static void a_fault_in_a_queued_copy_takes_the_device_out_of_service_and_nothing_else(void **state)
{
    struct cuda_stage stage;
    struct error error;
    (void)state;
    cuda_stage_init(&stage, 64 * MIB, 2);
    cuda_stage_add_few_tensors(&stage);
    fake_cuda_fail("stream", 2, LAUNCH_FAILURE, true);
    assert_false(load_once(&stage, &error));
    assert_int_equal(error.code, ERROR_FAILED_PRECONDITION);
    assert_string_equal(error.reason, "DEVICE_OUT_OF_SERVICE");
    assert_non_null(strstr(stage.gpu->problem, "719"));
    assert_host_is_well(&stage);
    struct segment *segment;
    assert_int_equal(device_allocate(stage.gpu, 100, &segment, &error), -1);
    assert_string_equal(error.reason, "DEVICE_OUT_OF_SERVICE");
    struct load *other = cuda_stage_small_load(&stage, stage.plugins.devices[1]);
    scene_load_start(other);
    scene_wait(&stage.scene);
    assert_published(other);
    load_destroy(other);
    cuda_stage_fini(&stage, true);
}

static void copies_that_do_not_end_take_the_device_out_of_service_and_keep_their_source(void **state)
{
    struct cuda_stage stage;
    struct error error;
    (void)state;
    cuda_stage_init(&stage, 64 * MIB, 2);
    cuda_stage_add_few_tensors(&stage);
    stage.gpu->patience_ns = 50000000;
    fake_cuda_pause(true);
    assert_false(load_once(&stage, &error));
    assert_string_equal(error.reason, "DEVICE_OUT_OF_SERVICE");
    assert_non_null(strstr(stage.gpu->problem, "did not end"));
    assert_host_is_well(&stage);
    cuda_stage_fini(&stage, true);
    fake_cuda_reset(); /* lets the copies go on, out of staging of an engine that is gone */
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_call_may_run_out_of_memory),
        cmocka_unit_test(any_call_may_find_the_device_broken),
        cmocka_unit_test(copies_that_do_not_end_take_the_device_out_of_service_and_keep_their_source),
        cmocka_unit_test(a_fault_in_a_queued_copy_takes_the_device_out_of_service_and_nothing_else),
    };
    (void)argc;
    return cuda_stage_prepare(argv[0]) ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
