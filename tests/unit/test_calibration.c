/* What reports teach, what is ignored, and what survives a restart. No clock decides: reports are made up. */
#include "tests/support/unit.h"

#include <sys/stat.h>
#include <unistd.h>

#include "execute/calibration.h"

#define GIB ((uint64_t)1 << 30)

struct scene {
    char folder[64], path[128];
    struct calibration *calibration;
};

static int set_up(void **state)
{
    struct scene *scene = test_calloc(1, sizeof *scene);
    strcpy(scene->folder, "/tmp/tc-calibration-XXXXXX");
    assert_non_null(mkdtemp(scene->folder));
    snprintf(scene->path, sizeof scene->path, "%s/calibration.json", scene->folder);
    scene->calibration = calibration_create(scene->folder);
    *state = scene;
    return 0;
}

static int tear_down(void **state)
{
    struct scene *scene = *state;
    calibration_destroy(scene->calibration);
    unlink(scene->path);
    rmdir(scene->folder); /* fails, and shows in /tmp, when something else was left there */
    test_free(scene);
    return 0;
}

static void restart(struct scene *scene)
{
    calibration_destroy(scene->calibration);
    scene->calibration = calibration_create(scene->folder);
}

static void write_file(const struct scene *scene, const char *text)
{
    FILE *file = fopen(scene->path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static struct run_report whole_read(bool cached, double bytes_per_ns)
{
    uint64_t ns = (uint64_t)((double)GIB / bytes_per_ns);
    return (struct run_report){.read_bytes = GIB,
                               .requests = 10,
                               .cached_bytes = cached ? GIB : 0,
                               .direct_bytes = GIB,
                               .execute_ns = ns,
                               .read_ns = 2 * ns}; /* two workers */
}

static struct run_report many_rows(double request_ns)
{
    uint64_t ns = (uint64_t)(1000000 * request_ns);
    return (struct run_report){
        .read_bytes = 16000000, .requests = 1000000, .direct_bytes = 16000000, .execute_ns = ns, .read_ns = ns};
}

static double uncached_rate(const struct scene *scene)
{
    return calibration_get(scene->calibration, 7).uncached.bytes_per_ns;
}

static void assert_near(double value, double wanted)
{
    assert_true(value > wanted * 0.95 && value < wanted * 1.05);
}

TEST_IN(an_unknown_device_has_the_defaults_and_the_measured_copy, set_up, tear_down)
{
    struct scene *scene = *state;
    struct cost_constants constants = calibration_get(scene->calibration, 7);
    assert_true(constants.uncached.bytes_per_ns == cost_defaults.uncached.bytes_per_ns);
    assert_true(constants.cached.request_ns == cost_defaults.cached.request_ns);
    assert_true(constants.skip_bytes_per_ns == cost_defaults.skip_bytes_per_ns);
    assert_int_equal(constants.uncached.samples, 0);
    assert_true(constants.copy_bytes_per_ns > 0);
}

TEST_IN(loads_move_the_constant_that_their_time_consists_of, set_up, tear_down)
{
    struct scene *scene = *state;
    struct run_report disk = whole_read(false, 7.0), cache = whole_read(true, 6.0), rows = many_rows(4000);
    for (int i = 0; i < 40; i++) {
        calibration_learn(scene->calibration, 7, &disk);
        calibration_learn(scene->calibration, 7, &cache);
        calibration_learn(scene->calibration, 7, &rows);
    }
    struct cost_constants constants = calibration_get(scene->calibration, 7);
    assert_near(constants.uncached.bytes_per_ns, 7.0);
    assert_near(constants.cached.bytes_per_ns, 6.0);
    assert_near(constants.uncached.request_ns, 4000);
    assert_true(constants.cached.request_ns == cost_defaults.cached.request_ns);
    assert_near(constants.skip_bytes_per_ns, cost_defaults.skip_bytes_per_ns / 2);
    assert_int_equal(constants.uncached.samples, 80);
    assert_int_equal(constants.cached.samples, 40);
}

TEST_IN(one_load_moves_a_default_half_way, set_up, tear_down)
{
    struct scene *scene = *state;
    struct run_report report = whole_read(false, 7.7);
    calibration_learn(scene->calibration, 7, &report);
    assert_near(uncached_rate(scene), (3.7 + 7.7) / 2);
}

TEST_IN(devices_are_learned_apart, set_up, tear_down)
{
    struct scene *scene = *state;
    struct run_report report = whole_read(false, 7.0);
    calibration_learn(scene->calibration, 8, &report);
    assert_true(uncached_rate(scene) == cost_defaults.uncached.bytes_per_ns);
}

TEST_IN(backing_of_pages_is_learned_by_its_share_of_the_time, set_up, tear_down)
{
    struct scene *scene = *state;
    struct run_report report = whole_read(true, 6.0);
    report.prepare_ns = report.read_ns; /* half of the work: GIB in half of execute_ns */
    for (int i = 0; i < 40; i++)
        calibration_learn(scene->calibration, 7, &report);
    struct cost_constants constants = calibration_get(scene->calibration, 7);
    assert_near(constants.fresh_bytes_per_ns, 12.0);
    assert_near(constants.cached.bytes_per_ns, 12.0);
}

TEST_IN(what_measures_nothing_is_ignored, set_up, tear_down)
{
    struct scene *scene = *state;
    struct run_report reports[] = {whole_read(false, 7.0), whole_read(false, 7.0), whole_read(false, 7.0),
                                   whole_read(false, 7.0), whole_read(false, 7.0), {0}};
    reports[0].read_bytes = (4 << 20) - 1; /* tiny */
    reports[1].shared_bytes = 1;           /* another load's time */
    reports[2].cached_bytes = GIB / 2;     /* neither the disk's nor the cache's */
    reports[3].execute_ns = 0;             /* no time */
    reports[4].read_ns = 0;                /* no work */
    for (size_t i = 0; i < sizeof reports / sizeof reports[0]; i++)
        calibration_learn(scene->calibration, 7, &reports[i]);
    assert_true(uncached_rate(scene) == cost_defaults.uncached.bytes_per_ns);
    assert_int_equal(calibration_get(scene->calibration, 7).uncached.samples, 0);
}

TEST_IN(a_load_that_is_not_tiny_by_bytes_or_requests_is_not_tiny, set_up, tear_down)
{
    struct scene *scene = *state;
    struct run_report bytes = {.read_bytes = 4 << 20, .requests = 1, .execute_ns = 1 << 20, .read_ns = 1};
    calibration_learn(scene->calibration, 7, &bytes);
    assert_int_equal(calibration_get(scene->calibration, 7).uncached.samples, 1);
    struct run_report requests = {.read_bytes = 2000, .requests = 2000, .execute_ns = 20000000, .read_ns = 1};
    calibration_learn(scene->calibration, 7, &requests);
    assert_int_equal(calibration_get(scene->calibration, 7).uncached.samples, 2);
    requests.requests = 1999;
    calibration_learn(scene->calibration, 7, &requests);
    assert_int_equal(calibration_get(scene->calibration, 7).uncached.samples, 2);
}

TEST_IN(an_outlier_counts_only_when_it_keeps_coming, set_up, tear_down)
{
    struct scene *scene = *state;
    struct run_report stalled = whole_read(false, 0.1), usual = whole_read(false, 3.7);
    for (int i = 0; i < 10; i++) {
        calibration_learn(scene->calibration, 7, &stalled);
        calibration_learn(scene->calibration, 7, &stalled);
        calibration_learn(scene->calibration, 7, &usual);
    }
    assert_near(uncached_rate(scene), 3.7);
    for (int i = 0; i < 3; i++)
        calibration_learn(scene->calibration, 7, &stalled);
    assert_near(uncached_rate(scene), 0.1);
}

TEST_IN(values_beyond_any_hardware_are_never_learned, set_up, tear_down)
{
    struct scene *scene = *state;
    struct run_report report = whole_read(false, 1e7);
    report.execute_ns = 1;
    for (int i = 0; i < 10; i++)
        calibration_learn(scene->calibration, 7, &report);
    assert_true(uncached_rate(scene) == cost_defaults.uncached.bytes_per_ns);
}

TEST_IN(what_was_learned_survives_a_restart, set_up, tear_down)
{
    struct scene *scene = *state;
    struct run_report report = whole_read(false, 7.7);
    calibration_learn(scene->calibration, 7, &report);
    restart(scene);
    struct cost_constants constants = calibration_get(scene->calibration, 7);
    assert_near(constants.uncached.bytes_per_ns, (3.7 + 7.7) / 2);
    assert_int_equal(constants.uncached.samples, 1);
    struct stat status;
    assert_int_equal(stat(scene->path, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0600);
}

TEST_IN(without_anything_learned_no_file_is_written, set_up, tear_down)
{
    struct scene *scene = *state;
    restart(scene);
    assert_int_equal(access(scene->path, F_OK), -1);
}

TEST_IN(a_damaged_file_is_ignored_and_replaced, set_up, tear_down)
{
    struct scene *scene = *state;
    const char *damaged[] = {"",
                             "{",
                             "[]",
                             "{\"version\":1,\"devices\":[{\"device\":7",
                             "{\"version\":2,\"devices\":[]}",
                             "{\"devices\":[]}",
                             "{\"version\":1,\"devices\":[{\"device\":7,\"uncached\":{\"bytes_per_s\":1}}]}",
                             "{\"version\":1,\"devices\":[{\"device\":7,\"uncached\":{\"bytes_per_s\":-5}}]}",
                             "{\"version\":1,\"devices\":[{\"device\":7,\"uncached\":{\"request_ps\":99999999999999999}}]}",
                             "{\"version\":1,\"devices\":[{\"device\":7,\"surprise\":1}]}",
                             "{\"version\":1,\"devices\":[]} x",
                             "{\"version\":1,\"devices\":[{\"device\":7,\"uncached\":{\"bytes_per_s\":9000000000}},{]}"};
    for (size_t i = 0; i < sizeof damaged / sizeof damaged[0]; i++) {
        write_file(scene, damaged[i]);
        restart(scene);
        assert_true(uncached_rate(scene) == cost_defaults.uncached.bytes_per_ns);
    }
    struct run_report report = whole_read(false, 7.7);
    calibration_learn(scene->calibration, 7, &report);
    restart(scene);
    assert_near(uncached_rate(scene), (3.7 + 7.7) / 2);
}

TEST_IN(a_file_has_a_longest_length_and_a_most_of_devices, set_up, tear_down)
{
    struct scene *scene = *state;
    struct calibrated devices[CALIBRATION_MAX_DEVICES + 1];
    for (size_t i = 0; i <= CALIBRATION_MAX_DEVICES; i++)
        devices[i] =
            (struct calibrated){.device_id = i, .cached = {100, 1, 0}, .uncached = {100, 1, 0}, .fresh_bytes_per_ns = 1};
    struct error error;
    size_t n_devices;
    assert_int_equal(calibration_file_write(scene->path, devices, CALIBRATION_MAX_DEVICES, &error), 0);
    assert_int_equal(calibration_file_read(scene->path, devices, &n_devices, &error), 0);
    assert_int_equal(n_devices, CALIBRATION_MAX_DEVICES);
    assert_int_equal(calibration_file_write(scene->path, devices, CALIBRATION_MAX_DEVICES + 1, &error), 0);
    assert_int_equal(calibration_file_read(scene->path, devices, &n_devices, &error), -1);
    assert_int_equal(n_devices, 0);
    FILE *file = fopen(scene->path, "w");
    for (int i = 0; i <= 64 << 10; i++)
        fputc(' ', file);
    fclose(file);
    assert_int_equal(calibration_file_read(scene->path, devices, &n_devices, &error), -1);
    assert_non_null(strstr(error.message, "longer"));
}

TEST_IN(of_more_devices_than_the_table_holds_the_one_idle_longest_is_forgotten, set_up, tear_down)
{
    struct scene *scene = *state;
    struct run_report report = whole_read(false, 7.7);
    const uint64_t first = 100, last = first + CALIBRATION_MAX_DEVICES;
    for (uint64_t device = first; device < last; device++)
        calibration_learn(scene->calibration, device, &report);
    calibration_learn(scene->calibration, first, &report);
    restart(scene);
    assert_int_equal(calibration_get(scene->calibration, first + 1).uncached.samples, 1);
    calibration_learn(scene->calibration, last, &report);
    assert_int_equal(calibration_get(scene->calibration, first).uncached.samples, 2);
    assert_int_equal(calibration_get(scene->calibration, first + 1).uncached.samples, 0);
    for (uint64_t device = first + 2; device <= last; device++)
        assert_int_equal(calibration_get(scene->calibration, device).uncached.samples, 1);
}

static void count_device(void *data, uint64_t device_id, const struct cost_constants *constants)
{
    *(uint64_t *)data += device_id * 10 + constants->uncached.samples;
}

TEST_IN(each_known_device_is_shown, set_up, tear_down)
{
    struct scene *scene = *state;
    struct run_report report = whole_read(false, 7.7);
    calibration_learn(scene->calibration, 7, &report);
    calibration_learn(scene->calibration, 9, &report);
    uint64_t sum = 0;
    calibration_each(scene->calibration, count_device, &sum);
    assert_int_equal(sum, 71 + 91);
}

TEST(without_a_state_folder_nothing_is_kept)
{
    struct calibration *calibration = calibration_create(NULL);
    struct run_report report = whole_read(false, 7.7);
    calibration_learn(calibration, 7, &report);
    assert_int_equal(calibration_get(calibration, 7).uncached.samples, 1);
    calibration_destroy(calibration);
}
