/* Finding, checking and opening the CUDA plugin and its devices: by UUID and by number, and every reason why there are none.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/cuda_stage.h"

#include <cmocka.h> /* last: it makes a macro of fail */

static void devices_are_found_by_uuid_and_by_number(void **state)
{
    struct cuda_stage stage;
    struct error error;
    (void)state;
    cuda_stage_init(&stage, 64 * MIB, 1);
    const struct device_plugins *plugins = &stage.plugins;
    assert_string_equal(plugins->devices[0]->caps.name, "GPU-fa4e0000-0000-0000-0000-000000000000");
    assert_string_equal(plugins->devices[1]->model, "Fake GPU 1");
    assert_int_equal(plugins->devices[1]->memory_bytes, (uint64_t)16 << 30);
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
    cuda_stage_fini(&stage, false);
}

static void without_a_driver_the_reason_is_told_to_whoever_asks(void **state)
{
    struct device_plugins plugins;
    struct error error;
    (void)state;
    setenv("TENSORCAST_TEST_FAKE_CUDA", "0", 1);
    fake_cuda_reset();
    device_plugins_load(&plugins, cuda_stage_plugins);
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
    assert_non_null(strstr(plugins.problem, "no other user may write"));
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
    plugin.abi++;
    assert_int_equal(device_plugin_check(&plugin, &error), -1);
    assert_string_equal(error.reason, "PLUGIN_ABI");
    plugin.abi--;
    plugin.layout++;
    assert_int_equal(device_plugin_check(&plugin, &error), -1);
    assert_string_equal(error.reason, "PLUGIN_ABI");
    plugin.layout--;
    assert_int_equal(device_plugin_check(&plugin, &error), 0);
}

static void the_loader_calls_nothing_of_a_plugin_of_another_interface(void **state)
{
    char folder[sizeof cuda_stage_plugins + 16], told[64];
    struct device_plugins plugins;
    struct error error;
    (void)state;
    snprintf(folder, sizeof folder, "%s/../fake/plugin", cuda_stage_plugins);
    device_plugins_load(&plugins, folder);
    snprintf(told, sizeof told, "plugin interface %d, this daemon has %d", DEVICE_PLUGIN_ABI + 1, DEVICE_PLUGIN_ABI);
    assert_null(device_plugins_find(&plugins, "cuda:0", &error));
    assert_int_equal(error.code, ERROR_FAILED_PRECONDITION);
    assert_non_null(strstr(error.message, told));
}

static void a_host_with_an_unusable_device_serves_none(void **state)
{
    struct device_plugins plugins;
    (void)state;
    static const char *const functions[] = {"cuInit", "cuDeviceGet", "cuDeviceGetUuid", "cudaGetDriverEntryPointByVersion"};
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        fake_cuda_reset();
        fake_cuda_fail(functions[i], i == 2 ? 2 : 1, LAUNCH_FAILURE, false);
        device_plugins_load(&plugins, cuda_stage_plugins);
        assert_int_equal(plugins.n_devices, 0);
        assert_true(strlen(plugins.problem) > 0);
        device_plugins_destroy(&plugins);
    }
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_are_found_by_uuid_and_by_number),
        cmocka_unit_test(without_a_driver_the_reason_is_told_to_whoever_asks),
        cmocka_unit_test(without_a_plugin_the_folder_is_named),
        cmocka_unit_test(a_plugin_that_others_may_write_is_not_loaded),
        cmocka_unit_test(a_plugin_of_another_interface_is_refused),
        cmocka_unit_test(the_loader_calls_nothing_of_a_plugin_of_another_interface),
        cmocka_unit_test(a_host_with_an_unusable_device_serves_none),
    };
    (void)argc;
    return cuda_stage_prepare(argv[0]) ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
