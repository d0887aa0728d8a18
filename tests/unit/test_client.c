/* libtensorcast: finding the daemon, the calls without memory, threads and processes. */
#include "tests/support/unit.h"

#undef fail /* ours is in base/error.h */

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memory.h"
#include "client/client.h"
#include "tests/support/client_scene.h"

TEST(the_socket_is_the_argument_then_the_environment_then_the_default)
{
    static const struct {
        const char *given, *environment, *chosen;
    } cases[] = {{"/a", "/b", "/a"},
                 {"unix:/a", NULL, "/a"},
                 {NULL, "/b", "/b"},
                 {"", "unix:/b", "/b"},
                 {NULL, NULL, "/run/tensorcast/daemon.sock"},
                 {NULL, "", "/run/tensorcast/daemon.sock"}};
    setenv("XDG_RUNTIME_DIR", "/usr", 1); /* no daemon of this user's is there */
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        unsetenv("TENSORCAST_SOCKET");
        if (cases[i].environment)
            setenv("TENSORCAST_SOCKET", cases[i].environment, 1);
        struct tc_client *one = tc_connect(cases[i].given, NULL);
        assert_string_equal(tc_socket_path(one), cases[i].chosen);
        tc_disconnect(one);
    }
    unsetenv("TENSORCAST_SOCKET");
    unsetenv("XDG_RUNTIME_DIR");
    tc_disconnect(NULL);
}

TEST(a_socket_path_may_have_107_bytes_and_no_more)
{
    char path[109] = "/";
    struct tc_error error;
    memset(path + 1, 'x', 107);
    assert_null(tc_connect(path, &error));
    assert_int_equal(error.code, ERROR_INVALID_ARGUMENT);
    path[107] = '\0';
    struct tc_client *one = tc_connect(path, &error);
    assert_non_null(one);
    tc_disconnect(one);
}

TEST(without_a_daemon_the_error_is_unavailable_and_names_the_socket)
{
    struct tc_error error;
    char *json;
    struct tc_client *alone = tc_connect("/tmp/no-such-daemon.sock", NULL);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(tc_status(alone, 0, &json, NULL, &error), -1);
        assert_int_equal(error.code, ERROR_UNAVAILABLE);
        assert_string_equal(error.reason, "DAEMON_UNREACHABLE");
        assert_non_null(strstr(error.message, "/tmp/no-such-daemon.sock"));
    }
    assert_int_equal(tc_status(alone, 0, &json, NULL, NULL), -1); /* a caller that does not care need not say where */
    tc_disconnect(alone);
}

TEST_IN(a_daemon_that_was_restarted_answers_the_next_call, client_scene_start, client_scene_stop)
{
    struct tc_error error;
    assert_int_equal(tc_release(client_scene.client, NULL, 0, NULL, NULL, &error), 0);
    char socket[sizeof client_scene.fixture.socket];
    memcpy(socket, client_scene.fixture.socket, sizeof socket);
    for (int i = 0; i < 3; i++) {
        rpc_fixture_stop(&client_scene.fixture);
        assert_int_equal(tc_release(client_scene.client, NULL, 0, NULL, NULL, &error), -1);
        assert_int_equal(error.code, ERROR_UNAVAILABLE);
        client_scene_start_at(socket);
        rpc_fixture_ready(&client_scene.fixture);
        assert_int_equal(tc_release(client_scene.client, NULL, 0, NULL, NULL, &error), 0);
    }
    rpc_fixture_stop(&client_scene.fixture); /* and one whose end was not noticed */
    client_scene_start_at(socket);
    assert_int_equal(tc_release(client_scene.client, NULL, 0, NULL, NULL, &error), 0);
}

TEST_IN(an_artifact_tells_what_it_holds, client_scene_start, client_scene_stop)
{
    struct tc_error error;
    struct tc_tensor_info info;
    uint64_t bytes;
    struct tc_artifact *artifact = tc_resolve(client_scene.client, "disk:/m", TC_RESOLVE_INDEXES, 0, &error);
    assert_non_null(artifact);
    assert_string_equal(tc_artifact_reference(artifact), "disk:/m");
    assert_string_equal(tc_artifact_identity(artifact), "1d");
    assert_int_equal(tc_artifact_total_bytes(artifact), 8);
    assert_int_equal(tc_artifact_n_files(artifact), 1);
    assert_string_equal(tc_artifact_file(artifact, 0, &bytes), "model.safetensors");
    assert_int_equal(bytes, 4711);
    assert_string_equal(tc_artifact_index_json(artifact, false), "{}");
    assert_string_equal(tc_artifact_index_json(artifact, true), "");
    assert_int_equal(tc_artifact_n_tensors(artifact), 3);
    tc_artifact_tensor(artifact, 1, &info);
    assert_string_equal(info.name, "empty");
    assert_string_equal(info.dtype, "F32");
    assert_int_equal(info.rank, 2);
    assert_int_equal(info.shape[0], 0);
    assert_int_equal(info.shape[1], 4);
    tc_artifact_tensor(artifact, 2, &info);
    assert_int_equal(info.rank, 0);
    tc_artifact_release(artifact);
    tc_artifact_release(NULL);
}

TEST_IN(a_view_is_what_one_device_of_a_mesh_holds, client_scene_start, client_scene_stop)
{
    static const char *const specs[] = {"*=data"}, *const long_specs[] = {"*=-,-,-,-,-,-,-,-"};
    struct tc_sharding_options options = {.mesh = "data=1,model=2", .mesh_rank = 1, .specs = specs, .n_specs = 1};
    struct tc_error error;
    struct tc_tensor_info info;
    struct tc_artifact *artifact = tc_resolve(client_scene.client, "disk:/m", 0, 0, &error);
    struct tc_sharding *best = tc_sharding_create(&(struct tc_sharding_options){.best_effort = 2, .mesh_rank = 1}, &error);
    struct tc_view *view = tc_sharding_view(best, artifact, &error);
    assert_non_null(view);
    assert_int_equal(view->n_items, tc_artifact_n_tensors(artifact));
    for (size_t i = 0; i < view->n_items; i++) {
        struct tc_slice slices[TC_MAX_RANK];
        tc_artifact_tensor(artifact, i, &info);
        assert_string_equal(view->items[i].name, info.name);
        assert_int_equal(tc_sharding_slices(best, info.name, info.shape, info.rank, slices, &error), 0);
        if (view->items[i].n_slices)
            assert_memory_equal(view->items[i].slices, slices, info.rank * sizeof *slices);
    }
    tc_view_release(view);
    tc_view_release(NULL);
    tc_sharding_destroy(best);
    tc_sharding_destroy(NULL);
    options.specs = long_specs;
    struct tc_sharding *too_long = tc_sharding_create(&options, &error);
    assert_null(tc_sharding_view(too_long, artifact, &error));
    assert_string_equal(error.reason, "SPEC_TOO_LONG");
    tc_sharding_destroy(too_long);
    options.mesh = NULL;
    assert_null(tc_sharding_create(&options, &error));
    assert_int_equal(error.code, ERROR_INVALID_ARGUMENT);
    tc_artifact_release(artifact);
}

TEST_IN(a_description_that_contradicts_itself_is_refused, client_scene_start, client_scene_stop)
{
    struct tc_error error;
    client_scene.layout.n_dtypes = 2;
    client_scene_meet();
    assert_null(tc_resolve(client_scene.client, "disk:/m", 0, 0, &error));
    assert_string_equal(error.reason, "BAD_ANSWER");
    client_scene_meet();
    client_scene.layout.n_dtypes = 3;
    client_scene.layout.ranks[1] = 1;
    client_scene_meet();
    assert_null(tc_resolve(client_scene.client, "disk:/m", 0, 0, &error));
    client_scene_meet();
    client_scene.layout.ranks[1] = 2;
}

static void *load_often(void *unused)
{
    struct tc_error error;
    struct tc_tensor tensor;
    (void)unused;
    for (int i = 0; i < 10; i++) {
        struct tc_load *load = tc_load_view(client_scene.client, "disk:/m", &client_scene_view, NULL, &error);
        if (!load || !tc_load_find(load, "w", &tensor) || memcmp(tensor.data, "abcdef", 6) != 0)
            return "wrong";
        tc_load_release(load);
    }
    return NULL;
}

TEST_IN(threads_share_a_client, client_scene_start, client_scene_stop)
{
    pthread_t threads[8];
    void *wrong;
    for (size_t i = 0; i < 8; i++)
        pthread_create(&threads[i], NULL, load_often, NULL);
    for (size_t i = 0; i < 8; i++) {
        pthread_join(threads[i], &wrong);
        assert_null(wrong);
    }
}

static const struct tc_load *shared_load;

static void *find_once(void *unused)
{
    struct tc_tensor tensor;
    (void)unused;
    return tc_load_find(shared_load, "s", &tensor) ? NULL : "not found";
}

TEST_IN(threads_may_look_up_names_in_one_load, client_scene_start, client_scene_stop)
{
    pthread_t threads[4];
    struct tc_error error;
    void *wrong;
    struct tc_load *load = client_scene_load(NULL, &error);
    shared_load = load;
    for (size_t i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, find_once, NULL);
    for (size_t i = 0; i < 4; i++) {
        pthread_join(threads[i], &wrong);
        assert_null(wrong);
    }
    tc_load_release(load);
}

static int exit_code_of(pid_t child)
{
    int status;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST_IN(a_forked_child_reads_what_it_inherited_and_is_told_to_connect_itself, client_scene_start, client_scene_stop)
{
    struct tc_error error;
    struct tc_tensor tensor;
    struct tc_load *load = client_scene_load(NULL, &error);
    tc_load_tensor(load, 0, &tensor);
    pid_t child = fork();
    if (child == 0) {
        bool read = memcmp(tensor.data, "abcdef", 6) == 0;
        bool refused =
            tc_release(client_scene.client, NULL, 1000, NULL, NULL, &error) == -1 && error.code == ERROR_FAILED_PRECONDITION;
        tc_disconnect(client_scene.client);
        _exit(read && refused ? 0 : 1);
    }
    assert_int_equal(exit_code_of(child), 0);
    assert_int_equal(client_scene.handoff.leases, 1); /* the child's exit ended nothing */
    tc_load_release(load);
    assert_int_equal(tc_release(client_scene.client, NULL, 0, NULL, NULL, &error), 0);
}

TEST_IN(explain_and_prewarm_bring_a_report_and_no_memory, client_scene_start, client_scene_stop)
{
    struct tc_error error;
    char *json, *text;
    assert_int_equal(tc_explain(client_scene.client, "disk:/m", &client_scene_view, NULL, &json, &text, &error), 0);
    assert_non_null(strstr(json, "\"executor\":\"generic_byte_range\""));
    assert_null(strstr(json, "tensors"));
    assert_string_equal(text, "a table");
    client_scene_meet();
    assert_string_equal(client_scene.first_name, "w");
    free(json);
    free(text);
    assert_int_equal(tc_explain(client_scene.client, "disk:/m", NULL, NULL, NULL, NULL, &error), 0);
    assert_int_equal(tc_prewarm(client_scene.client, "disk:/m", &client_scene_view, NULL, &json, &error), 0);
    assert_non_null(strstr(json, "tensor_batched_local"));
    free(json);
    client_scene_meet();
    client_scene.without_result = true;
    client_scene_meet();
    assert_int_equal(tc_explain(client_scene.client, "disk:/m", NULL, NULL, &json, NULL, &error), -1);
    assert_string_equal(error.reason, "BAD_ANSWER");
    assert_int_equal(client_scene.handoff.leases, 0);
}

TEST_IN(release_tells_what_it_released, client_scene_start, client_scene_stop)
{
    struct tc_error error;
    uint64_t replicas = 0, bytes = 0;
    assert_int_equal(tc_release(client_scene.client, NULL, 0, &replicas, &bytes, &error), 0);
    client_scene_meet();
    assert_true(client_scene.all && replicas == 2 && bytes == 300);
    client_scene_meet();
    assert_int_equal(tc_release(client_scene.client, "disk:/m", 0, NULL, NULL, &error), 0);
    client_scene_meet();
    assert_false(client_scene.all);
}

static int note_progress(void *data, const char *stage, uint64_t done_bytes, uint64_t total_bytes)
{
    int *n_told = data;
    assert_string_equal(stage, "read");
    assert_true(done_bytes == 3 && total_bytes == 7);
    return ++*n_told == 2;
}

TEST_IN(a_verification_tells_how_far_it_is_and_may_be_ended, client_scene_start, client_scene_stop)
{
    struct tc_error error;
    int n_told = 0;
    const struct tc_options options = {.progress = note_progress, .data = &n_told};
    struct tc_verification *verification = tc_verify(client_scene.client, "disk:/m", false, &options, &error);
    assert_int_equal(tc_verification_n_files(verification), 2);
    assert_int_equal(n_told, 1);
    tc_verification_release(verification);
    assert_null(tc_verify(client_scene.client, "disk:/m", false, &options, &error));
    assert_string_equal(error.reason, "CANCELLED");
}

TEST_IN(a_verification_tells_of_every_file, client_scene_start, client_scene_stop)
{
    struct tc_error error;
    struct tc_verified_file file;
    struct tc_verification *verification = tc_verify(client_scene.client, "disk:/m", true, NULL, &error);
    assert_int_equal(tc_verification_n_files(verification), 2);
    tc_verification_file(verification, 0, &file);
    assert_string_equal(file.status, "verified");
    assert_true(file.bytes == 7 && file.healed && !file.damage[0]);
    tc_verification_file(verification, 1, &file);
    assert_string_equal(file.damage, "b: bytes 0 to 3");
    assert_string_equal(tc_verification_manifest(verification), "{}");
    assert_string_equal(tc_verification_manifest_name(verification), "model.manifest.json");
    tc_verification_release(verification);
    verification = tc_verify(client_scene.client, "disk:/m", false, NULL, &error);
    assert_string_equal(tc_verification_manifest(verification), "");
    tc_verification_release(verification);
}

TEST_IN(status_comes_as_json_and_as_a_page_without_control_characters, client_scene_start, client_scene_stop)
{
    struct tc_error error;
    char *json, *text;
    assert_int_equal(tc_status(client_scene.client, 0, &json, &text, &error), 0);
    assert_non_null(strstr(json, "\"memory\":{\"host_budget_bytes\":1073741824,"));
    assert_non_null(strstr(json, "\"calibration\":{\"254:0\":{"));
    assert_non_null(strstr(text, "7.8.9"));
    assert_non_null(strstr(text, "254:0"));
    assert_null(strchr(text, '\x1b'));
    free(json);
    free(text);
}

TEST_IN(an_answer_about_one_load_has_its_trace, client_scene_start, client_scene_stop)
{
    struct error error;
    struct arena arena;
    arena_init(&arena, 0);
    assert_int_equal(client_blame(client_scene.client, "", 0, &arena, &error)->n_loads, 0);
    assert_null(client_blame(client_scene.client, "0123456789abcdef", 0, &arena, &error));
    assert_string_equal(error.reason, "BAD_ANSWER");
    arena_fini(&arena);
}

TEST_IN(what_was_unpinned_is_counted, client_scene_start, client_scene_stop)
{
    struct tc_error error;
    struct tc_unpinned unpinned;
    assert_int_equal(tc_unpin(client_scene.client, "disk:/m", 0, &unpinned, &error), 0);
    assert_false(client_scene.all);
    assert_int_equal(unpinned.replicas, 3);
    assert_int_equal(unpinned.bytes, 300);
    assert_int_equal(tc_unpin(client_scene.client, NULL, 0, NULL, &error), 0);
    assert_true(client_scene.all);
}
