/* Regions of the caller, and what tc_load_targets() sends of its targets. */
#include "tests/support/unit.h"

#include <fcntl.h>
#undef fail /* ours is in base/error.h */

#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "tests/support/client_scene.h"

static const uint64_t square[] = {2, 3}, row[] = {4};
static const int64_t columns[] = {-16, 4}, broken[] = {0};

static struct tc_region *new_region(uint64_t bytes)
{
    struct tc_error error;
    struct tc_region *region = tc_region_create(bytes, &error);
    assert_non_null(region);
    return region;
}

/* --- regions ------------------------------------------------------------------------------------------------------------- */

TEST(a_region_is_zeros_that_cannot_shrink_and_huge_pages_can_back)
{
    uint64_t bytes;
    struct tc_region *region = new_region(5000);
    unsigned char *memory = tc_region_memory(region, &bytes);
    assert_int_equal(bytes, 5000);
    assert_int_equal((uintptr_t)memory % (2 << 20), 0);
    for (size_t i = 0; i < bytes; i++)
        assert_int_equal(memory[i], 0);
    memory[4999] = 7;
    tc_region_destroy(region);
    tc_region_destroy(NULL);
}

static int make_memfd(uint64_t bytes, int seals)
{
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0 && fcntl(fd, F_ADD_SEALS, seals) == 0);
    return fd;
}

TEST(a_region_of_a_memfd_is_its_memory_and_outlives_the_descriptor)
{
    struct tc_error error;
    int fd = make_memfd(100, F_SEAL_SHRINK);
    struct tc_region *region = tc_region_open(fd, &error);
    assert_non_null(region);
    assert_int_equal(pwrite(fd, "abc", 3, 97), 3);
    close(fd);
    assert_memory_equal((char *)tc_region_memory(region, NULL) + 97, "abc", 3);
    tc_region_destroy(region);
}

TEST(memory_that_cannot_be_a_region_is_refused)
{
    struct tc_error error;
    const struct {
        int fd;
        const char *why;
    } cases[] = {{open("/dev/null", O_RDWR | O_CLOEXEC), "no memfd"},
                 {make_memfd(100, 0), "could shrink"},
                 {make_memfd(0, F_SEAL_SHRINK), "empty"},
                 {make_memfd(100, F_SEAL_SHRINK | F_SEAL_WRITE), "against writing"},
                 {-1, "no memfd"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_null(tc_region_open(cases[i].fd, &error));
        assert_int_equal(error.code, ERROR_INVALID_ARGUMENT);
        assert_non_null(strstr(error.message, cases[i].why));
        close(cases[i].fd);
    }
    const uint64_t sizes[] = {0, (uint64_t)1 << 62, UINT64_MAX};
    for (size_t i = 0; i < 3; i++) {
        assert_null(tc_region_create(sizes[i], &error));
        assert_string_equal(error.reason, "BAD_REGION");
    }
    assert_null(tc_region_wrap("cpu", "x", 1, &error));
    assert_null(tc_region_wrap("cuda:0", NULL, 1, &error));
}

/* --- loads --------------------------------------------------------------------------------------------------------------- */

static int load(const struct tc_view *view, const struct tc_target *targets, size_t n, char **json, struct tc_error *error)
{
    const struct tc_targets all = {targets, n, targets, targets[0].value ? 0 : 1};
    memset(error, 0, sizeof *error);
    client_scene_meet();
    int failed = tc_load_targets(client_scene.client, "disk:/m", view, &all, NULL, json, error);
    client_scene_meet();
    return failed;
}

TEST_IN(targets_are_sent_in_the_order_of_the_view_with_their_regions, client_scene_start, client_scene_stop)
{
    struct tc_error error;
    char *json;
    const float half = 0.5F;
    struct tc_region *first = new_region(4096), *second = new_region(4096);
    const struct tc_target targets[] = {
        {.name = "s", .dtype = "BF16", .region = second, .offset = 3},
        {.name = "pad", .dtype = "F32", .shape = row, .rank = 1, .region = first, .offset = 64, .value = &half},
        {.name = "w", .dtype = "U8", .shape = square, .strides = columns, .rank = 2, .region = first, .offset = 16},
        {.name = "empty", .dtype = "F32", .shape = (const uint64_t[]){0, 4}, .rank = 2, .region = second, .offset = 0}};
    assert_int_equal(load(&client_scene_view, targets, 4, &json, &error), 0);
    const Tensorcast__Daemon__V1__Targets *sent = client_scene.targets;
    assert_true(client_scene.has_view && client_scene.n_names == 3);
    assert_int_equal(sent->n_regions, 2);
    assert_true(sent->regions[0].data[0] == 0 && sent->regions[1].data[0] == 1 &&
                sent->regions[0].len == HANDOFF_TOKEN_BYTES);
    assert_int_equal(sent->n_dtypes, 5); /* w, empty, s, the fill, the cover */
    assert_true(sent->dtypes[0] == 5 && sent->dtypes[1] == 18 && sent->dtypes[2] == 15 && sent->dtypes[3] == 18);
    assert_true(sent->region_indexes[0] == 0 && sent->region_indexes[2] == 1 && sent->region_indexes[3] == 0);
    assert_true(sent->offsets[0] == 16 && sent->offsets[2] == 3 && sent->offsets[3] == 64);
    assert_true(sent->n_dims == 5 && sent->n_strides == 5 && sent->strides[0] == -16 && sent->strides[1] == 4);
    assert_int_equal(sent->strides[4], 4);
    assert_true(sent->n_fill_names == 1 && strcmp(sent->fill_names[0], "pad") == 0);
    assert_true(sent->fill_values[0].len == 4 && memcmp(sent->fill_values[0].data, &half, 4) == 0);
    assert_true(sent->n_cover_names == 1 && strcmp(sent->cover_names[0], "s") == 0);
    assert_non_null(strstr(json, "\"target\":42"));
    assert_non_null(strstr(json, "\"committed_bytes\""));
    assert_non_null(strstr(json, "{\"name\":\"w\",\"dtype\":\"U8\",\"shape\":[2,3],\"offset\":16,\"bytes\":6}"));
    free(json);
    tc_region_destroy(first);
    tc_region_destroy(second);
}

TEST_IN(without_a_view_the_targets_name_what_is_loaded, client_scene_start, client_scene_stop)
{
    struct tc_error error;
    struct tc_region *region = new_region(64);
    const struct tc_target targets[] = {{.name = "b", .dtype = "U8", .shape = row, .rank = 1, .region = region},
                                        {.name = "f", .dtype = "U8", .region = region, .offset = 9, .value = "x"},
                                        {.name = "a", .dtype = "U8", .region = region, .offset = 8}};
    assert_int_equal(load(NULL, targets, 3, NULL, &error), 0);
    assert_true(client_scene.n_names == 2 && strcmp(client_scene.first_name, "b") == 0);
    tc_region_destroy(region);
}

TEST_IN(targets_that_cannot_be_right_are_refused_by_name_before_anything_is_sent, client_scene_start, client_scene_stop)
{
    struct tc_error error;
    struct tc_region *region = new_region(4096);
    const struct tc_target good = {.name = "w", .dtype = "U8", .shape = square, .rank = 2, .region = region};
    static const uint64_t endless[] = {1, UINT64_MAX, 8};
    struct {
        struct tc_target target;
        const char *name;
    } cases[] = {
        {{.name = "x", .dtype = "U8", .region = region}, "target x is no tensor of the view"},
        {{.name = "w", .dtype = "U8", .region = region}, "target w comes twice"},
        {{.dtype = "U8", .region = region}, "without a name"},
        {{.name = "f", .dtype = "U8", .value = "x"}, "target f has no region"},
        {{.name = "f", .dtype = "float32", .region = region, .value = "x"}, "target f has a dtype"},
        {{.name = "f", .region = region, .value = "x"}, "target f has a dtype"},
        {{.name = "f", .dtype = "F4", .region = region, .value = "x"}, "target f has a dtype below one byte"},
        {{.name = "f", .dtype = "U8", .rank = 65, .region = region, .value = "x"}, "target f has too many dimensions"},
        {{.name = "f", .dtype = "U8", .rank = 2, .region = region, .value = "x"}, "target f has dimensions but no shape"},
        {{.name = "f", .dtype = "U8", .shape = endless, .rank = 3, .region = region, .value = "x"},
         "target f has more bytes"},
    };
    const struct tc_view view = {&(const struct tc_view_item){.name = "w"}, 1, 0};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(load(&view, (const struct tc_target[]){good, cases[i].target}, 2, NULL, &error), -1);
        assert_string_equal(error.reason, "BAD_TARGET");
        assert_non_null(strstr(error.message, cases[i].name));
    }
    const struct tc_target other = {.name = "f", .dtype = "U8", .strides = broken, .region = region, .value = "x"};
    assert_int_equal(load(&view, &other, 1, NULL, &error), -1);
    assert_non_null(strstr(error.message, "tensor w of the view has no target"));
    assert_int_equal(client_scene.calls, 0);
    assert_int_equal(client_scene.handoff.n_offers, 0);
    tc_region_destroy(region);
}

static bool no_lease(void *data)
{
    (void)data;
    return client_scene.handoff.leases == 0;
}

TEST_IN(after_a_time_limit_the_content_is_said_to_be_undefined, client_scene_start, client_scene_stop)
{
    struct tc_error error = {0};
    struct tc_region *region = new_region(4096);
    const struct tc_target target = {.name = "w", .dtype = "U8", .shape = square, .rank = 2, .region = region};
    const struct tc_targets all = {&target, 1, NULL, 0};
    client_scene.hangs = true;
    client_scene_meet();
    assert_int_equal(
        tc_load_targets(client_scene.client, "disk:/m", NULL, &all, &(struct tc_options){.timeout_ms = 200}, NULL, &error),
        -1);
    client_scene_meet();
    assert_int_equal(error.code, ERROR_DEADLINE_EXCEEDED);
    assert_non_null(strstr(error.message, "undefined"));
    rpc_fixture_await(no_lease, NULL, "the region is given back");
    tc_region_destroy(region);
}

TEST_IN(an_answer_without_a_result_gives_the_region_back, client_scene_start, client_scene_stop)
{
    struct tc_error error;
    struct tc_region *region = new_region(4096);
    const struct tc_target target = {.name = "w", .dtype = "U8", .shape = square, .rank = 2, .region = region};
    client_scene.without_result = true;
    assert_int_equal(load(NULL, &target, 1, NULL, &error), -1);
    assert_string_equal(error.reason, "BAD_ANSWER");
    assert_non_null(strstr(error.message, "undefined"));
    rpc_fixture_await(no_lease, NULL, "the region is given back");
    tc_region_destroy(region);
}

TEST_IN(who_insists_on_mapped_files_says_so_to_the_daemon, client_scene_start, client_scene_stop)
{
    struct tc_error error;
    struct tc_region *region = new_region(4096);
    const struct tc_target target = {.name = "w", .dtype = "U8", .shape = square, .rank = 2, .region = region};
    const struct tc_targets all = {&target, 1, NULL, 0};
    const enum tc_memory asked[] = {TC_MEMORY_AUTO, TC_MEMORY_MAPPED};
    const Tensorcast__Daemon__V1__MemoryPreference sent[] = {
        TENSORCAST__DAEMON__V1__MEMORY_PREFERENCE__MEMORY_PREFERENCE_UNSPECIFIED,
        TENSORCAST__DAEMON__V1__MEMORY_PREFERENCE__MEMORY_PREFERENCE_MAPPED};
    for (size_t i = 0; i < 2; i++) {
        client_scene_meet();
        tc_load_targets(client_scene.client, "disk:/m", NULL, &all, &(struct tc_options){.memory = asked[i]}, NULL, &error);
        client_scene_meet();
        assert_int_equal(client_scene.memory, sent[i]);
    }
    rpc_fixture_await(no_lease, NULL, "the region is given back");
    tc_region_destroy(region);
}

TEST_IN(an_answer_of_files_is_refused_where_memory_of_the_caller_is_filled, client_scene_start, client_scene_stop)
{
    struct tc_error error;
    static uint32_t file_indexes[3];
    struct tc_region *region = new_region(4096);
    const struct tc_target target = {.name = "w", .dtype = "U8", .shape = square, .rank = 2, .region = region};
    client_scene.layout.n_file_indexes = 3, client_scene.layout.file_indexes = file_indexes;
    client_scene.n_files = 1;
    assert_int_equal(load(NULL, &target, 1, NULL, &error), -1);
    assert_string_equal(error.reason, "BAD_ANSWER");
    assert_non_null(strstr(error.message, "files"));
    assert_non_null(strstr(error.message, "undefined"));
    rpc_fixture_await(no_lease, NULL, "the region is given back");
    tc_region_destroy(region);
}
