/* What tc_load_view() makes of what a daemon answers and hands off. */
#include "tests/support/unit.h"

#include <fcntl.h>
#undef fail /* ours is in base/error.h */

#include <unistd.h>

#include "tests/support/client_scene.h"

static void assert_load_fails(int code, const char *reason)
{
    struct tc_error error;
    assert_null(client_scene_load(&(struct tc_options){.timeout_ms = 20000}, &error));
    assert_int_equal(error.code, code);
    assert_string_equal(error.reason, reason);
    assert_true(error.message[0]);
}

static bool no_lease(void *data)
{
    (void)data;
    return client_scene.handoff.leases == 0;
}

TEST_IN(a_load_maps_its_tensors_under_the_names_of_the_view, client_scene_start, client_scene_stop)
{
    struct tc_error error;
    struct tc_tensor tensor;
    uint64_t bytes;
    struct tc_load *load = client_scene_load(NULL, &error);
    assert_non_null(load);
    assert_true(client_scene.has_view && client_scene.n_names == 3 && client_scene.n_starts == 2 &&
                client_scene.first_start == 1);
    assert_int_equal(client_scene.handoff.token[0], 0xa5);
    const char *memory = tc_load_memory(load, &bytes);
    assert_int_equal((uintptr_t)memory % (2 << 20), 0);
    assert_string_equal(tc_load_device(load), "");
    char piece[8];
    assert_int_equal(tc_load_read(load, bytes - sizeof piece, sizeof piece, piece, &error), 0);
    assert_memory_equal(piece, memory + bytes - sizeof piece, sizeof piece);
    assert_int_equal(tc_load_read(load, bytes - sizeof piece + 1, sizeof piece, piece, &error), -1);
    assert_string_equal(error.reason, "OUTSIDE_MEMORY");
    assert_int_equal(bytes, CONTENT_BYTES);
    assert_int_equal(tc_load_n_tensors(load), 3);
    tc_load_tensor(load, 0, &tensor);
    assert_string_equal(tensor.name, "w");
    assert_string_equal(tensor.dtype, "U8");
    assert_memory_equal(tensor.data, "abcdef", 6);
    assert_true(tensor.rank == 2 && tensor.shape[1] == 3 && tensor.strides[0] == 3 && tensor.strides[1] == 1);
    assert_true(tc_load_find(load, "empty", &tensor) && tensor.bytes == 0 && tensor.offset == 64);
    assert_non_null(tensor.data);
    assert_true(tc_load_find(load, "s", &tensor) && tensor.rank == 0 && tensor.bytes == 2);
    assert_false(tc_load_find(load, "nobody", &tensor));
    tc_load_release(load);
}

TEST_IN(without_a_view_the_names_are_the_daemons, client_scene_start, client_scene_stop)
{
    struct tc_error error;
    struct tc_tensor tensor;
    client_scene.layout.n_names = 3;
    struct tc_load *load = tc_load_view(client_scene.client, "disk:/m", NULL, NULL, &error);
    assert_non_null(load);
    client_scene_meet();
    assert_true(client_scene.has_view && client_scene.is_whole && client_scene.is_by_source && client_scene.n_names == 0);
    assert_true(tc_load_find(load, "s", &tensor));
    tc_load_release(load);
    load =
        tc_load_view(client_scene.client, "disk:/m", NULL, &(struct tc_options){.placement = TC_PLACEMENT_PACKED}, &error);
    assert_non_null(load);
    client_scene_meet();
    assert_false(client_scene.has_view);
    tc_load_release(load);
}

TEST_IN(the_report_names_every_tensor_and_its_digest_when_asked, client_scene_start, client_scene_stop)
{
    struct tc_error error;
    struct tc_load *load = client_scene_load(NULL, &error);
    char *plain = tc_load_report_json(load, false), *hashed = tc_load_report_json(load, true);
    assert_non_null(strstr(plain, "\"load_id\":\"l1\""));
    assert_non_null(strstr(plain, "\"name\":\"empty\""));
    assert_null(strstr(plain, "sha256"));
    assert_non_null(strstr(hashed, "bef57ec7f53a6d40beb640a780a639c83bc29ac8a9816f1fc6c5c6dcd93c4721")); /* of abcdef */
    free(plain);
    free(hashed);
    tc_load_release(load);
}

TEST_IN(the_lease_is_held_until_the_load_is_released_and_survives_the_client, client_scene_start, client_scene_stop)
{
    struct tc_error error;
    struct tc_tensor tensor;
    struct tc_load *load = client_scene_load(NULL, &error);
    tc_disconnect(client_scene.client);
    client_scene.client = NULL;
    assert_int_equal(client_scene.handoff.leases, 1);
    tc_load_tensor(load, 0, &tensor);
    assert_memory_equal(tensor.data, "abcdef", 6);
    tc_load_release(load);
    tc_load_release(NULL);
    rpc_fixture_await(no_lease, NULL, "the lease ends");
}

TEST_IN(a_layout_beyond_the_memory_or_against_itself_is_refused, client_scene_start, client_scene_stop)
{
    client_scene.layout.offsets[2] = CONTENT_BYTES - 1;
    assert_load_fails(ERROR_INTERNAL, "BAD_ANSWER");
    client_scene.layout.offsets[2] = UINT64_MAX;
    assert_load_fails(ERROR_INTERNAL, "BAD_ANSWER");
    client_scene.layout.offsets[2] = 128;
    client_scene.layout.dims[0] = 3; /* 9 bytes in 6 */
    assert_load_fails(ERROR_INTERNAL, "BAD_ANSWER");
    client_scene.layout.dims[0] = 2;
    client_scene.layout.dims[3] = UINT64_MAX; /* of an empty tensor: no harm */
    struct tc_error error;
    struct tc_load *load = client_scene_load(NULL, &error);
    assert_non_null(load);
    tc_load_release(load);
    client_scene.layout.dims[3] = 4;
    client_scene.layout.ranks[0] = 5;
    assert_load_fails(ERROR_INTERNAL, "BAD_ANSWER");
    client_scene.layout.ranks[0] = 2;
    client_scene.layout.dtypes[2] = 23;
    assert_load_fails(ERROR_INTERNAL, "BAD_ANSWER");
    client_scene.layout.dtypes[2] = 15;
    client_scene.layout.n_sizes = 2;
    assert_load_fails(ERROR_INTERNAL, "BAD_ANSWER");
    client_scene.layout.n_sizes = 3;
    client_scene.without_result = true;
    assert_load_fails(ERROR_INTERNAL, "BAD_ANSWER");
    rpc_fixture_await(no_lease, NULL, "failed loads hold no lease");
}

static size_t count_descriptors(void)
{
    size_t count = 0;
    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

TEST_IN(a_hand_off_that_is_not_sound_is_refused, client_scene_start, client_scene_stop)
{
    const struct handoff_answer sound = client_scene.handoff.answer;
    client_scene.handoff.answer.magic[0] = 'X';
    assert_load_fails(ERROR_INTERNAL, "BAD_HANDOFF");
    client_scene.handoff.answer = sound;
    client_scene.handoff.answer.version = 2;
    assert_load_fails(ERROR_UNIMPLEMENTED, "HANDOFF_VERSION");
    client_scene.handoff.answer = sound;
    client_scene.handoff.answer.memory_bytes = CONTENT_BYTES + 1; /* the descriptor has one byte less */
    assert_load_fails(ERROR_INTERNAL, "BAD_HANDOFF");
    client_scene.handoff.answer.memory_bytes = UINT64_MAX;
    assert_load_fails(ERROR_INTERNAL, "BAD_HANDOFF");
    client_scene.handoff.answer = sound;
    client_scene.handoff.n_descriptors = 0;
    assert_load_fails(ERROR_INTERNAL, "BAD_HANDOFF");
    client_scene.handoff.n_descriptors = 2;
    assert_load_fails(ERROR_INTERNAL, "BAD_HANDOFF");
    rpc_fixture_await(no_lease, NULL, "the other side is closed");
    size_t n_open = count_descriptors();
    for (size_t n = 8; n <= 16; n++) { /* as many as the control buffer holds, and more */
        client_scene.handoff.n_descriptors = n;
        assert_load_fails(ERROR_INTERNAL, "BAD_HANDOFF");
    }
    rpc_fixture_await(no_lease, NULL, "the other side is closed");
    assert_int_equal(count_descriptors(), n_open);
    client_scene.handoff.n_descriptors = 1;
    client_scene.handoff.mood = FAKE_CUTS_SHORT;
    assert_load_fails(ERROR_INTERNAL, "BAD_HANDOFF");
    client_scene.handoff.mood = FAKE_CLOSES;
    assert_load_fails(ERROR_UNAVAILABLE, "HANDOFF_REFUSED");
    snprintf(client_scene.handoff.path, sizeof client_scene.handoff.path, "%s/nobody", client_scene.folder);
    assert_load_fails(ERROR_FAILED_PRECONDITION, "HANDOFF_NOT_MOUNTED"); /* the daemon answers: it has both sockets */
    assert_int_equal(close(creat(client_scene.handoff.path, 0600)), 0);
    assert_load_fails(ERROR_UNAVAILABLE, "HANDOFF_UNREACHABLE"); /* it is there, and nothing listens any more */
    assert_int_equal(unlink(client_scene.handoff.path), 0);
    snprintf(client_scene.handoff.path, sizeof client_scene.handoff.path, "%s/daemon.handoff", client_scene.folder);
    rpc_fixture_await(no_lease, NULL, "failed loads hold no lease");
}

TEST_IN(a_hand_off_socket_in_a_folder_of_another_name_is_found_beside_the_other, client_scene_start, client_scene_stop)
{
    struct tc_error error;
    char elsewhere[sizeof client_scene.handoff.path];
    const char *name = strrchr(client_scene.handoff.path, '/');
    assert_memory_equal(client_scene.fixture.socket, client_scene.handoff.path, (size_t)(name - client_scene.handoff.path));
    snprintf(elsewhere, sizeof elsewhere, "/run/nowhere%s", name);
    client_scene.handoff_socket = elsewhere;
    struct tc_load *load = client_scene_load(NULL, &error);
    assert_non_null(load);
    tc_load_release(load);
}

TEST_IN(a_hand_off_that_never_comes_ends_with_the_deadline, client_scene_start, client_scene_stop)
{
    struct tc_error error;
    client_scene.handoff.mood = FAKE_STAYS_SILENT;
    assert_null(client_scene_load(&(struct tc_options){.timeout_ms = 100}, &error));
    assert_int_equal(error.code, ERROR_DEADLINE_EXCEEDED);
}

TEST_IN(options_travel_with_the_request, client_scene_start, client_scene_stop)
{
    struct tc_error error;
    struct tc_options options = {.group_id = "g", .rank = 3, .world_size = 4};
    tc_load_release(client_scene_load(&options, &error));
    assert_int_equal(client_scene.rank, 3);
    char attempt[sizeof client_scene.attempt];
    strcpy(attempt, client_scene.attempt);
    assert_int_equal(strlen(attempt), 32);
    tc_load_release(client_scene_load(&options, &error));
    assert_string_not_equal(client_scene.attempt, attempt); /* another load is another attempt */
    options.group_id = NULL;
    tc_load_release(client_scene_load(&options, &error));
    assert_int_equal(client_scene.rank, -1);
}

/* "w" is two rows, 16 bytes apart, in the last file; "s" lies where it did; "empty" nowhere. */
static void hand_out_files(size_t n_messages, size_t n_descriptors)
{
    static uint32_t file_indexes[] = {0, 77, 0};
    static uint64_t strides[] = {16, 1, 0, 0};
    client_scene.n_files = n_messages * n_descriptors;
    file_indexes[0] = (uint32_t)client_scene.n_files - 1;
    strides[0] = 16;
    client_scene.layout.n_file_indexes = 3, client_scene.layout.file_indexes = file_indexes;
    client_scene.layout.n_strides = 4, client_scene.layout.strides = strides;
    client_scene.handoff.n_messages = n_messages;
    client_scene.handoff.n_descriptors = n_descriptors;
    client_scene.handoff.answer.page_kind = HANDOFF_FILES;
    client_scene.handoff.answer.n_fds = (uint32_t)n_descriptors;
    client_scene.handoff.answer.memory_bytes = n_descriptors * CONTENT_BYTES;
}

static const struct tc_options mapped = {.memory = TC_MEMORY_MAPPED, .timeout_ms = 20000};

static void assert_files_fail(const char *reason)
{
    struct tc_error error;
    assert_null(client_scene_load(&mapped, &error));
    assert_int_equal(error.code, ERROR_INTERNAL);
    assert_string_equal(error.reason, reason);
}

TEST_IN(tensors_of_files_have_the_strides_of_their_file, client_scene_start, client_scene_stop)
{
    struct tc_error error;
    struct tc_tensor tensor;
    const char *name;
    uint64_t bytes;
    tc_load_release(client_scene_load(NULL, &error)); /* gRPC opens its own */
    rpc_fixture_await(no_lease, NULL, "the lease ends");
    hand_out_files(2, HANDOFF_MESSAGE_FDS);
    size_t n_open = count_descriptors();
    struct tc_load *load = client_scene_load(&mapped, &error);
    assert_non_null(load);
    assert_int_equal(client_scene.memory, TENSORCAST__DAEMON__V1__MEMORY_PREFERENCE__MEMORY_PREFERENCE_MAPPED);
    assert_int_equal(count_descriptors(), n_open + 2); /* the lease, at both ends */
    assert_int_equal(tc_load_n_files(load), 2 * HANDOFF_MESSAGE_FDS);
    tc_load_tensor(load, 0, &tensor);
    assert_true(tensor.strides[0] == 16 && tensor.strides[1] == 1 && tensor.bytes == 6);
    assert_int_equal(tc_load_tensor_file(load, 0), 2 * HANDOFF_MESSAGE_FDS - 1);
    assert_ptr_equal(tensor.data, tc_load_file(load, 2 * HANDOFF_MESSAGE_FDS - 1, &name, &bytes));
    assert_string_equal(name, "part.safetensors");
    assert_int_equal(bytes, CONTENT_BYTES);
    assert_memory_equal(tensor.data, "abcdef", 6);
    assert_true(tc_load_find(load, "empty", &tensor) && tensor.bytes == 0 && tensor.data);
    assert_true(tc_load_find(load, "s", &tensor) && tensor.offset == 128);
    tc_load_memory(load, &bytes);
    assert_int_equal(bytes, 0);
    char *json = tc_load_report_json(load, true);
    assert_non_null(strstr(json, "\"file\":\"part.safetensors\",\"strides\":[16,1],\"sha256\":"
                                 "\"dd0b251b2bf91037a1e4fc8416a24ae00bcb9a8c252dc7e2361f2fc015f51c16\""));
    free(json);
    tc_load_release(load);
    rpc_fixture_await(no_lease, NULL, "the lease ends");
}

TEST_IN(a_load_of_nothing_needs_no_file, client_scene_start, client_scene_stop)
{
    struct tc_error error;
    struct tc_tensor tensor;
    hand_out_files(0, 1);
    client_scene.layout.sizes[0] = client_scene.layout.sizes[2] = 0;
    client_scene.layout.dims[0] = 0;
    client_scene.layout.ranks[2] = 1, client_scene.layout.ranks[0] = 1; /* shapes [0], [3, 0], [4]: not empty */
    assert_files_fail("BAD_ANSWER");
    client_scene.layout.dims[3] = 0; /* [0], [3, 0], [0] */
    struct tc_load *load = client_scene_load(&mapped, &error);
    assert_non_null(load);
    tc_load_tensor(load, 2, &tensor);
    assert_true(tensor.data && !tensor.bytes && tc_load_n_files(load) == 0);
    assert_int_equal(client_scene.handoff.leases, 0);
    tc_load_release(load);
    client_scene.layout.sizes[0] = 6, client_scene.layout.sizes[2] = 2;
    client_scene.layout.dims[0] = 2, client_scene.layout.dims[3] = 4;
    client_scene.layout.ranks[0] = 2, client_scene.layout.ranks[2] = 0;
}

TEST_IN(tensors_beyond_their_file_and_impossible_strides_are_refused, client_scene_start, client_scene_stop)
{
    hand_out_files(1, 2);
    client_scene.layout.strides[0] = CONTENT_BYTES - 3; /* the last byte is the file's */
    struct tc_error error;
    struct tc_load *load = client_scene_load(&mapped, &error);
    assert_non_null(load);
    tc_load_release(load);
    client_scene.layout.strides[0] = CONTENT_BYTES - 2;
    assert_files_fail("BAD_ANSWER");
    client_scene.layout.strides[0] = UINT64_MAX;
    assert_files_fail("BAD_ANSWER");
    client_scene.layout.strides[0] = 16;
    client_scene.layout.file_indexes[0] = 2;
    assert_files_fail("BAD_ANSWER");
    client_scene.layout.file_indexes[0] = 1;
    client_scene.layout.n_strides = 3;
    assert_files_fail("BAD_ANSWER");
    client_scene.layout.n_strides = 4;
    client_scene.layout.n_file_indexes = 2;
    assert_files_fail("BAD_ANSWER");
    rpc_fixture_await(no_lease, NULL, "failed loads hold no lease");
}

TEST_IN(files_that_are_not_those_of_the_answer_are_refused, client_scene_start, client_scene_stop)
{
    struct tc_error error;
    tc_load_release(client_scene_load(NULL, &error)); /* gRPC opens its own */
    rpc_fixture_await(no_lease, NULL, "the lease ends");
    size_t n_open = count_descriptors();
    hand_out_files(2, 2);
    client_scene.handoff.answer.memory_bytes--;
    assert_files_fail("BAD_HANDOFF");
    hand_out_files(2, 2);
    client_scene.handoff.answer.page_kind = 2;
    assert_files_fail("BAD_HANDOFF");
    hand_out_files(2, 2);
    client_scene.n_files = 3; /* the second message has one too many */
    assert_files_fail("BAD_HANDOFF");
    hand_out_files(2, HANDOFF_MESSAGE_FDS + 1); /* more than a message may have */
    assert_files_fail("BAD_HANDOFF");
    rpc_fixture_await(no_lease, NULL, "failed loads hold no lease");
    assert_int_equal(count_descriptors(), n_open);
}

TEST_IN(files_come_only_to_who_asks_for_them, client_scene_start, client_scene_stop)
{
    struct tc_error error;
    hand_out_files(1, 1);
    assert_null(client_scene_load(NULL, &error));
    assert_string_equal(error.reason, "BAD_ANSWER");
    assert_null(client_scene_load(&(struct tc_options){0}, &error));
    assert_int_equal(client_scene.memory, TENSORCAST__DAEMON__V1__MEMORY_PREFERENCE__MEMORY_PREFERENCE_COPIED);
    tc_load_release(client_scene_load(&(struct tc_options){.memory = TC_MEMORY_AUTO}, &error));
    assert_int_equal(client_scene.memory, TENSORCAST__DAEMON__V1__MEMORY_PREFERENCE__MEMORY_PREFERENCE_AUTO);
}

TEST_IN(an_empty_view_is_not_mistaken_for_no_view, client_scene_start, client_scene_stop)
{
    static const struct tc_view nothing;
    struct tc_error error;
    client_scene.error = (struct error){.code = ERROR_INVALID_ARGUMENT, .reason = "EMPTY_VIEW", .message = "an empty view"};
    client_scene_meet();
    assert_null(tc_load_view(client_scene.client, "disk:/m", &nothing, NULL, &error));
    client_scene_meet();
    client_scene.error.code = 0;
    client_scene_meet();
    assert_null(tc_load_view(client_scene.client, "disk:/m", &nothing, NULL, &error));
    client_scene_meet();
    assert_true(client_scene.has_view);
}
