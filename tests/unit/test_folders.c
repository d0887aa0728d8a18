/* Folders on tmpfs: turns, charges, refusals, the record that the next daemon reads, and giving up. */
#include "tests/support/unit.h"

#include "replica/folders.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tests/support/model_dir.h"

#define MIB ((uint64_t)1 << 20)
enum { A = 70001, B = 70002, LONG_MS = 600000, POLL_MS = 20, PATIENCE_MS = 60000 };

struct scene {
    struct loop *loop;
    struct replica_table *host;
    struct quota *quota;
    struct folders *folders;
    struct folder *folder;
    char state_dir[MODEL_PATH_CHARS];
    bool is_recorded;
    const char *awaited; /* a path that is to be given up */
    enum folder_turn turn;
    struct error error;
};

static void start(struct scene *scene)
{
    scene->loop = loop_create();
    scene->host = replica_table_create(scene->loop, REPLICA_MEMORY_HOST, &(struct replica_limits){100 * MIB, LONG_MS, 0});
    scene->folders = folders_create(scene->loop, scene->host, scene->quota, scene->state_dir);
    folders_restore(scene->folders);
}

static void stop(struct scene *scene)
{
    folders_stop(scene->folders);
    replica_table_destroy(scene->host);
    loop_destroy(scene->loop);
    folders_destroy(scene->folders);
}

static int set_up(void **state)
{
    struct scene *scene = test_calloc(1, sizeof *scene);
    scene->quota = quota_create();
    quota_set_limits(scene->quota, QUOTA_FOLDERS, FOLDERS_MAX, FOLDERS_MAX_PER_UID);
    model_dir_create(scene->state_dir);
    start(scene);
    *state = scene;
    return 0;
}

static int tear_down(void **state)
{
    struct scene *scene = *state;
    stop(scene);
    assert_int_equal(quota_taken(scene->quota, QUOTA_FOLDERS), 0);
    quota_destroy(scene->quota);
    model_dir_destroy(scene->state_dir);
    test_free(scene);
    return 0;
}

static int ask(struct scene *scene, uid_t uid, const char *path, const char *identity, bool alone)
{
    const struct folder_wish wish = {
        .path = path, .artifact = "disk:/m", .identity = identity, .uid = uid, .bytes = 10 * MIB, .alone = alone};
    return folders_begin(scene->folders, &wish, &scene->turn, &scene->folder, &scene->error);
}

static struct folder *begin(struct scene *scene, uid_t uid, const char *path, const char *identity, enum folder_turn turn)
{
    assert_int_equal(ask(scene, uid, path, identity, false), 0);
    assert_int_equal(scene->turn, turn);
    return scene->folder;
}

static void keep(struct scene *scene, struct folder *folder)
{
    (void)scene;
    folder->is_there = true; /* as its client says */
}

static void assert_used(const struct scene *scene, uint64_t mib)
{
    assert_int_equal(replica_used_bytes(scene->host), mib * MIB);
}

static void assert_refused(struct scene *scene, uid_t uid, const char *path, const char *identity, enum error_code code)
{
    assert_int_equal(ask(scene, uid, path, identity, false), -1);
    assert_int_equal(scene->error.code, code);
}

TEST_IN(a_folder_is_charged_while_it_is_made_and_kept, set_up, tear_down)
{
    struct scene *scene = *state;
    struct folder *folder = begin(scene, A, "/shm/a", "x", FOLDER_MAKE);
    assert_used(scene, 10);
    folders_drop(scene->folders, folder);
    assert_used(scene, 0);
    folder = begin(scene, A, "/shm/a", "x", FOLDER_MAKE);
    keep(scene, folder);
    assert_used(scene, 10);
    assert_ptr_equal(begin(scene, A, "/shm/a", "x", FOLDER_THERE), folder);
    folders_drop(scene->folders, folder);
    assert_used(scene, 0);
    assert_null(folders_first(scene->folders));
}

TEST_IN(folders_of_the_same_content_share_one_charge_until_the_last_goes, set_up, tear_down)
{
    struct scene *scene = *state;
    struct folder *one = begin(scene, A, "/shm/a", "x", FOLDER_MAKE);
    keep(scene, one);
    struct folder *two = begin(scene, A, "/shm/b", "x", FOLDER_SHARE);
    assert_ptr_equal(folders_copy_of(scene->folders, two), one);
    assert_int_equal(two->stamp_ns, one->stamp_ns);
    keep(scene, two);
    assert_used(scene, 10);
    folders_drop(scene->folders, one);
    assert_used(scene, 10);
    folders_drop(scene->folders, two);
    assert_used(scene, 0);
}

TEST_IN(one_that_cannot_share_is_charged_by_itself, set_up, tear_down)
{
    struct scene *scene = *state;
    keep(scene, begin(scene, A, "/shm/a", "x", FOLDER_MAKE));
    assert_int_equal(ask(scene, A, "/other/b", "x", true), 0);
    assert_int_equal(scene->turn, FOLDER_MAKE);
    assert_used(scene, 20);
}

TEST_IN(users_share_nothing, set_up, tear_down)
{
    struct scene *scene = *state;
    keep(scene, begin(scene, A, "/shm/a", "x", FOLDER_MAKE));
    keep(scene, begin(scene, B, "/shm/b", "x", FOLDER_MAKE));
    assert_used(scene, 20);
}

TEST_IN(a_path_that_another_user_claims_is_free_for_all_others, set_up, tear_down)
{
    struct scene *scene = *state;
    struct folder *claimed = begin(scene, A, "/dev/shm/m", "id", FOLDER_MAKE);
    begin(scene, A, "/dev/shm/m", "id", FOLDER_WAIT);
    struct folder *of_b = begin(scene, B, "/dev/shm/m", "id", FOLDER_MAKE);
    keep(scene, claimed);
    begin(scene, B, "/dev/shm/m", "id", FOLDER_WAIT); /* for their own */
    begin(scene, A + 8, "/dev/shm/m", "other", FOLDER_MAKE);
    keep(scene, begin(scene, 0, "/dev/shm/m", "id", FOLDER_MAKE));
    assert_ptr_equal(folders_find(scene->folders, B, "/dev/shm/m"), of_b);
    folders_drop(scene->folders, of_b);
    begin(scene, B, "/dev/shm/m", "id", FOLDER_THERE); /* root's */
    assert_int_equal(scene->folder->uid, 0);
}

TEST_IN(whose_folder_is_meant_by_a_path, set_up, tear_down)
{
    struct scene *scene = *state;
    struct folder *seen = begin(scene, A, "/shm/m", "x", FOLDER_MAKE);
    struct folder *claimed = begin(scene, B, "/shm/m", "x", FOLDER_MAKE);
    seen->is_seen = true;
    assert_ptr_equal(folders_find_for(scene->folders, A, "/shm/m"), seen);
    assert_ptr_equal(folders_find_for(scene->folders, B, "/shm/m"), claimed);
    assert_ptr_equal(folders_find_for(scene->folders, 0, "/shm/m"), seen);
    assert_null(folders_find_for(scene->folders, A + 8, "/shm/m"));
    struct folder *of_root = begin(scene, 0, "/shm/m", "x", FOLDER_MAKE);
    assert_ptr_equal(folders_find_for(scene->folders, 0, "/shm/m"), of_root);
    assert_ptr_equal(folders_find_for(scene->folders, A + 8, "/shm/m"), of_root);
}

TEST_IN(a_folder_of_root_is_there_for_everybody, set_up, tear_down)
{
    struct scene *scene = *state;
    keep(scene, begin(scene, 0, "/shm/a", "x", FOLDER_MAKE));
    begin(scene, B, "/shm/a", "x", FOLDER_THERE);
}

TEST_IN(another_state_of_the_artifact_is_not_the_old_one, set_up, tear_down)
{
    struct scene *scene = *state;
    keep(scene, begin(scene, A, "/shm/a", "x", FOLDER_MAKE));
    assert_refused(scene, A, "/shm/a", "y", ERROR_FAILED_PRECONDITION);
    assert_non_null(strstr(scene->error.message, "release"));
}

TEST_IN(what_does_not_fit_the_budget_is_refused, set_up, tear_down)
{
    struct scene *scene = *state;
    char path[32];
    for (int i = 0; i < 10; i++) {
        snprintf(path, sizeof path, "/shm/%d", i);
        begin(scene, A, path, path, FOLDER_MAKE);
    }
    assert_refused(scene, A, "/shm/more", "more", ERROR_RESOURCE_EXHAUSTED);
    assert_null(folders_find(scene->folders, A, "/shm/more"));
    assert_used(scene, 100);
}

TEST_IN(paths_are_absolute_and_plain, set_up, tear_down)
{
    static const char *const paths[] = {"", "a", "/", "/a/", "/a//b", "/a/./b", "/a/../b", "/a/..", "/\xff"};
    struct scene *scene = *state;
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
        assert_refused(scene, A, paths[i], "x", ERROR_INVALID_ARGUMENT);
}

static void fill(struct scene *scene, uid_t uid, int n)
{
    char path[32];
    for (int i = 0; i < n; i++) {
        const struct folder_wish wish = {.path = path, .artifact = "", .identity = "x", .uid = uid, .bytes = 0};
        snprintf(path, sizeof path, "/shm/%u-%d", (unsigned)uid, i);
        assert_int_equal(folders_begin(scene->folders, &wish, &scene->turn, &scene->folder, &scene->error), 0);
        keep(scene, scene->folder);
    }
}

TEST_IN(a_user_has_1024_folders_and_not_one_more, set_up, tear_down)
{
    struct scene *scene = *state;
    fill(scene, A, FOLDERS_MAX_PER_UID);
    assert_refused(scene, A, "/shm/more", "x", ERROR_RESOURCE_EXHAUSTED);
    begin(scene, B, "/shm/more", "x", FOLDER_MAKE);
}

TEST_IN(users_with_all_they_may_have_leave_folders_for_others_and_root, set_up, tear_down)
{
    struct scene *scene = *state;
    char path[32] = "";
    int n = 0;
    for (uid_t uid = A; uid < A + FOLDERS_MAX / FOLDERS_MAX_PER_UID - 1; uid++)
        fill(scene, uid, FOLDERS_MAX_PER_UID);
    begin(scene, A + 8, "/shm/first", "x", FOLDER_MAKE);
    keep(scene, scene->folder);
    do
        snprintf(path, sizeof path, "/shm/last/%d", n);
    while (ask(scene, A + 8, path, "x", false) == 0 && ++n < FOLDERS_MAX);
    assert_string_equal(scene->error.reason, "TOO_MANY_FOLDERS");
    assert_in_range(n, FOLDERS_MAX_PER_UID * 8 / 10, FOLDERS_MAX_PER_UID * 9 / 10);
    begin(scene, A + 9, "/shm/more", "x", FOLDER_MAKE);
    begin(scene, 0, "/shm/root", "x", FOLDER_MAKE);
}

TEST_IN(who_wants_what_is_being_made_is_to_wait, set_up, tear_down)
{
    struct scene *scene = *state;
    struct folder *folder = begin(scene, A, "/shm/a", "x", FOLDER_MAKE);
    begin(scene, A, "/shm/a", "x", FOLDER_WAIT);
    begin(scene, A, "/shm/a", "y", FOLDER_WAIT);
    begin(scene, A, "/shm/b", "x", FOLDER_WAIT);
    keep(scene, folder);
    begin(scene, A, "/shm/a", "x", FOLDER_THERE);
    begin(scene, A, "/shm/b", "x", FOLDER_SHARE);
    begin(scene, A, "/shm/c", "x", FOLDER_SHARE); /* with the first, not with that in the making */
}

/* --- what the next daemon reads, and what is given up --- */

struct recorded {
    struct folder_wait wait; /* first */
    struct scene *scene;
    struct error error;
};

static void on_recorded(struct folder_wait *wait, const struct error *error)
{
    struct recorded *recorded = (struct recorded *)wait;
    recorded->error = error ? *error : (struct error){0};
    recorded->scene->is_recorded = true;
    loop_stop(recorded->scene->loop);
}

static struct recorded record(struct scene *scene, struct folder *confirmed)
{
    struct recorded recorded = {.wait = {.done = on_recorded}, .scene = scene};
    if (confirmed)
        folders_confirm(scene->folders, confirmed, &recorded.wait);
    else
        folders_record(scene->folders, &recorded.wait);
    loop_run(scene->loop);
    assert_true(scene->is_recorded);
    return recorded;
}

/* The folder at PARENT/NAME as a client makes it. */
static void make_folder(const char *path, uint64_t stamp_ns)
{
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT},
                                      {(time_t)(stamp_ns / 1000000000U), (long)(stamp_ns % 1000000000U)}};
    assert_int_equal(mkdir(path, 0755), 0);
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static struct folder *begin_here(struct scene *scene, const char *name, char path[MODEL_PATH_CHARS])
{
    struct stat status;
    assert_int_equal(stat(scene->state_dir, &status), 0);
    model_dir_path(scene->state_dir, name, path);
    const struct folder_wish wish = {.path = path,
                                     .artifact = "disk:/\"m\"",
                                     .identity = name,
                                     .uid = geteuid(),
                                     .bytes = MIB,
                                     .device = (uint64_t)status.st_dev};
    assert_int_equal(folders_begin(scene->folders, &wish, &scene->turn, &scene->folder, &scene->error), 0);
    return scene->folder;
}

static void on_poll(void *data)
{
    struct scene *scene = data;
    if (!folders_find(scene->folders, geteuid(), scene->awaited))
        loop_stop(scene->loop);
}

static void on_patience(void *data)
{
    loop_stop(((struct scene *)data)->loop);
}

static void wait_until_given_up(struct scene *scene, const char *path)
{
    struct loop_timer *poll = loop_timer_create(scene->loop, on_poll, scene);
    struct loop_timer *patience = loop_timer_create(scene->loop, on_patience, scene);
    scene->awaited = path;
    loop_timer_start(poll, POLL_MS, POLL_MS);
    loop_timer_start(patience, PATIENCE_MS, 0);
    loop_run(scene->loop);
    loop_timer_destroy(poll);
    loop_timer_destroy(patience);
    assert_null(folders_find(scene->folders, geteuid(), path));
}

static void start_anew(struct scene *scene)
{
    stop(scene);
    start(scene);
}

TEST_IN(the_next_daemon_charges_what_was_recorded_and_gives_up_what_is_gone, set_up, tear_down)
{
    struct scene *scene = *state;
    char here[MODEL_PATH_CHARS], made[MODEL_PATH_CHARS], gone[MODEL_PATH_CHARS], other[MODEL_PATH_CHARS];
    struct folder *folder = begin_here(scene, "here", here);
    uint64_t stamp_ns = folder->stamp_ns;
    make_folder(here, stamp_ns);
    assert_int_equal(record(scene, folder).error.code, 0);
    assert_true(folder->is_seen);
    make_folder(made, begin_here(scene, "made", made)->stamp_ns); /* its client was killed before it said so */
    begin_here(scene, "gone", gone);
    make_folder(other, begin_here(scene, "other", other)->stamp_ns + 1); /* the user's own, of the same path */
    record(scene, NULL);
    start_anew(scene);
    assert_used(scene, 4);
    folder = folders_find(scene->folders, geteuid(), here);
    assert_string_equal(folder->artifact, "disk:/\"m\"");
    assert_string_equal(folder->identity, "here");
    assert_true(folder->is_there && folder->is_seen && folder->stamp_ns == stamp_ns);
    assert_false(folders_find(scene->folders, geteuid(), gone)->is_there);
    wait_until_given_up(scene, gone);
    wait_until_given_up(scene, other);
    assert_used(scene, 2);
    assert_true(folders_find(scene->folders, geteuid(), made)->is_there);
    assert_int_equal(rmdir(here), 0);
    wait_until_given_up(scene, here);
    assert_used(scene, 1);
}

TEST_IN(a_folder_that_this_process_cannot_see_is_kept_until_it_is_released, set_up, tear_down)
{
    struct scene *scene = *state;
    char path[MODEL_PATH_CHARS], gone[MODEL_PATH_CHARS];
    struct folder *folder = begin_here(scene, "elsewhere", path);
    record(scene, folder);
    begin_here(scene, "gone", gone);
    wait_until_given_up(scene, gone);
    assert_ptr_equal(folders_find(scene->folders, geteuid(), path), folder);
}

TEST_IN(a_folder_of_another_user_is_told_as_one_that_is_missing, set_up, tear_down)
{
    struct scene *scene = *state;
    char path[MODEL_PATH_CHARS];
    struct folder *folder = begin_here(scene, "here", path);
    folder->uid++; /* the folder is not this one's */
    make_folder(path, folder->stamp_ns);
    record(scene, folder);
    assert_false(folder->is_seen);
    folder->uid--;
}

TEST_IN(a_record_that_cannot_be_written_is_an_error, set_up, tear_down)
{
    struct scene *scene = *state;
    char path[MODEL_PATH_CHARS];
    model_dir_mkdir(scene->state_dir, "folders.json");
    begin_here(scene, "x", path);
    struct recorded recorded = record(scene, NULL);
    assert_non_null(strstr(recorded.error.message, "folders.json"));
}

TEST_IN(of_a_damaged_record_no_more_is_believed_than_what_is_good, set_up, tear_down)
{
    static const char *const texts[] = {
        "",
        "{",
        "{}",
        "{\"version\":3}",
        "{\"version\":2,\"folders\":[{\"path\":\"/a\",\"artifact\":\"b\"}]}",
        "{\"version\":2,\"folders\":[{\"path\":\"/a\",\"path\":\"/b\",\"artifact\":\"b\",\"identity\":\"c\"}]}",
        "{\"version\":2,\"folders\":[{\"path\":\"/a\",\"artifact\":\"b\",\"identity\":\"c\",\"more\":1}]}",
        "{\"version\":2,\"folders\":[{\"path\":\"/a\\u0000\",\"artifact\":\"b\",\"identity\":\"c\"}]}",
        "{\"version\":2,\"folders\":7}",
        "{\"version\":2,\"folders\":[1]}",
    };
    struct scene *scene = *state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        model_dir_write(scene->state_dir, "folders.json", texts[i], strlen(texts[i]));
        start_anew(scene);
        assert_null(folders_first(scene->folders));
    }
    static const char cut[] =
        "{\"version\":2,\"folders\":[{\"path\":\"/a\",\"artifact\":\"b\",\"identity\":\"c\",\"uid\":7},{\"pa";
    model_dir_write(scene->state_dir, "folders.json", cut, strlen(cut));
    start_anew(scene);
    assert_string_equal(folders_find(scene->folders, 7, "/a")->identity, "c");
}

TEST_IN(a_record_longer_than_64_mib_is_not_read, set_up, tear_down)
{
    static const char good[] =
        "{\"version\":2,\"folders\":[{\"path\":\"/a\",\"artifact\":\"b\",\"identity\":\"c\",\"uid\":7}]}";
    enum { LIMIT = 64 << 20 };
    struct scene *scene = *state;
    char *text = malloc(LIMIT + 1);
    memset(text, ' ', LIMIT + 1);
    memcpy(text, good, sizeof good - 1);
    model_dir_write(scene->state_dir, "folders.json", text, LIMIT);
    start_anew(scene);
    assert_non_null(folders_find(scene->folders, 7, "/a"));
    model_dir_write(scene->state_dir, "folders.json", text, LIMIT + 1);
    start_anew(scene);
    assert_null(folders_first(scene->folders));
    free(text);
}
