/* The table of folders on tmpfs: whose turn it is, what is charged, who may not. */
#include "replica/folders.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MIB ((uint64_t)1 << 20)
enum { A = 70001, B = 70002, LONG_MS = 600000, METADATA_BYTES = 8 << 20 };

struct scene {
    struct loop *loop;
    struct replica_table *host;
    struct quota *quota;
    struct folders *folders;
    struct folder *folder;
    const struct folder *other;
    enum folder_turn turn;
    struct error error;
};

static int set_up(void **state)
{
    struct scene *scene = test_calloc(1, sizeof *scene);
    scene->loop = loop_create();
    scene->host = replica_table_create(scene->loop, REPLICA_MEMORY_HOST, &(struct replica_limits){100 * MIB, LONG_MS, 0});
    scene->quota = quota_create();
    quota_set_limits(scene->quota, QUOTA_FOLDERS, FOLDERS_MAX, FOLDERS_MAX_PER_UID);
    quota_set_limits(scene->quota, QUOTA_METADATA, METADATA_BYTES, 0);
    scene->folders = folders_create(scene->host, scene->quota, "/nowhere");
    *state = scene;
    return 0;
}

static int tear_down(void **state)
{
    struct scene *scene = *state;
    folders_destroy(scene->folders);
    assert_int_equal(quota_taken(scene->quota, QUOTA_FOLDERS), 0);
    assert_int_equal(quota_taken(scene->quota, QUOTA_METADATA), 0);
    quota_destroy(scene->quota);
    replica_table_destroy(scene->host);
    loop_destroy(scene->loop);
    test_free(scene);
    return 0;
}

static int ask(struct scene *scene, uid_t uid, const char *path, const char *identity, bool alone)
{
    const struct folder_wish wish = {
        .path = path, .artifact = "disk:/m", .identity = identity, .uid = uid, .bytes = 10 * MIB, .alone = alone};
    return folders_begin(scene->folders, &wish, &scene->turn, &scene->folder, &scene->other, &scene->error);
}

static struct folder *begin(struct scene *scene, uid_t uid, const char *path, const char *identity, enum folder_turn turn)
{
    assert_int_equal(ask(scene, uid, path, identity, false), 0);
    assert_int_equal(scene->turn, turn);
    return scene->folder;
}

static void keep(struct scene *scene, struct folder *folder)
{
    folders_keep(scene->folders, folder);
    folders_confirm(scene->folders, folder);
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

static void a_folder_is_charged_while_it_is_made_and_kept(void **state)
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

static void folders_of_the_same_content_share_one_charge_until_the_last_goes(void **state)
{
    struct scene *scene = *state;
    struct folder *one = begin(scene, A, "/shm/a", "x", FOLDER_MAKE);
    keep(scene, one);
    struct folder *two = begin(scene, A, "/shm/b", "x", FOLDER_SHARE);
    assert_ptr_equal(scene->other, one);
    keep(scene, two);
    assert_used(scene, 10);
    folders_drop(scene->folders, one);
    assert_used(scene, 10);
    folders_drop(scene->folders, two);
    assert_used(scene, 0);
}

static void one_that_cannot_share_is_charged_by_itself(void **state)
{
    struct scene *scene = *state;
    keep(scene, begin(scene, A, "/shm/a", "x", FOLDER_MAKE));
    assert_int_equal(ask(scene, A, "/other/b", "x", true), 0);
    assert_int_equal(scene->turn, FOLDER_MAKE);
    assert_used(scene, 20);
}

static void users_share_nothing(void **state)
{
    struct scene *scene = *state;
    keep(scene, begin(scene, A, "/shm/a", "x", FOLDER_MAKE));
    keep(scene, begin(scene, B, "/shm/b", "x", FOLDER_MAKE));
    assert_used(scene, 20);
}

static void a_path_that_another_user_claims_is_free_for_all_others(void **state)
{
    struct scene *scene = *state;
    struct folder *claimed = begin(scene, A, "/dev/shm/m", "id", FOLDER_MAKE);
    begin(scene, A, "/dev/shm/m", "id", FOLDER_WAIT);
    struct folder *of_b = begin(scene, B, "/dev/shm/m", "id", FOLDER_MAKE);
    keep(scene, claimed);
    begin(scene, B, "/dev/shm/m", "id", FOLDER_WAIT); /* for his own */
    begin(scene, A + 8, "/dev/shm/m", "other", FOLDER_MAKE);
    keep(scene, begin(scene, 0, "/dev/shm/m", "id", FOLDER_MAKE));
    assert_ptr_equal(folders_find(scene->folders, B, "/dev/shm/m"), of_b);
    folders_drop(scene->folders, of_b);
    begin(scene, B, "/dev/shm/m", "id", FOLDER_THERE); /* root's */
    assert_int_equal(scene->folder->uid, 0);
}

static void whose_folder_is_meant_by_a_path(void **state)
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

static void a_folder_of_root_is_there_for_everybody(void **state)
{
    struct scene *scene = *state;
    keep(scene, begin(scene, 0, "/shm/a", "x", FOLDER_MAKE));
    begin(scene, B, "/shm/a", "x", FOLDER_THERE);
}

static void another_state_of_the_artifact_is_not_the_old_one(void **state)
{
    struct scene *scene = *state;
    keep(scene, begin(scene, A, "/shm/a", "x", FOLDER_MAKE));
    assert_refused(scene, A, "/shm/a", "y", ERROR_FAILED_PRECONDITION);
    assert_non_null(strstr(scene->error.message, "release"));
}

static void what_does_not_fit_the_budget_is_refused(void **state)
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

struct told {
    struct folder_waiter waiter; /* first */
    struct scene *scene;
    struct folder *made;
    int times;
};

static void note(struct folder_waiter *waiter)
{
    ((struct told *)waiter)->times++;
}

static struct told waiter_for(const char *path, const char *identity)
{
    return (struct told){
        .waiter = {.wish = {.path = path, .artifact = "disk:/m", .identity = identity, .uid = A}, .retry = note}};
}

static void who_wants_what_is_being_made_waits_for_it(void **state)
{
    struct scene *scene = *state;
    struct told told = waiter_for("/shm/a", "x"), left = waiter_for("/shm/a", "x");
    struct folder *folder = begin(scene, A, "/shm/a", "x", FOLDER_MAKE);
    begin(scene, A, "/shm/a", "x", FOLDER_WAIT);
    begin(scene, A, "/shm/a", "y", FOLDER_WAIT);
    begin(scene, A, "/shm/b", "x", FOLDER_WAIT);
    folders_wait(folder, &told.waiter);
    folders_wait(folder, &left.waiter);
    folders_wait_no_more(&left.waiter);
    folders_wait_no_more(&left.waiter);
    folders_keep(scene->folders, folder);
    begin(scene, A, "/shm/a", "x", FOLDER_WAIT); /* it has no name yet */
    assert_int_equal(told.times, 0);
    folders_confirm(scene->folders, folder);
    assert_int_equal(told.times, 1);
    assert_int_equal(left.times, 0);
    folders_drop(scene->folders, folder);
    assert_int_equal(told.times, 1);
}

/* As a call does. */
static void begin_instead(struct folder_waiter *waiter)
{
    struct told *told = (struct told *)waiter;
    const struct folder *other;
    enum folder_turn turn;
    told->times++;
    assert_int_equal(folders_begin(told->scene->folders, &waiter->wish, &turn, &told->made, &other, &told->scene->error), 0);
    if (turn == FOLDER_WAIT)
        folders_wait(told->made, waiter);
}

/* Else each of a thousand folders that a client takes along has thousands of calls look through all of them. */
static void only_who_waits_for_it_hears_of_a_folder_and_one_goes_on_with_it(void **state)
{
    struct scene *scene = *state;
    struct told others = waiter_for("/shm/b", "y"), told[] = {waiter_for("/shm/a", "x"), waiter_for("/shm/a", "x"),
                                                              waiter_for("/shm/c", "x"), waiter_for("/shm/a", "z")};
    struct folder *folder = begin(scene, A, "/shm/a", "x", FOLDER_MAKE),
                  *other = begin(scene, A, "/shm/b", "y", FOLDER_MAKE);
    folders_wait(other, &others.waiter);
    for (int i = 0; i < 4; i++) {
        told[i].scene = scene;
        told[i].waiter.retry = begin_instead;
        folders_wait(folder, &told[i].waiter);
    }
    folders_drop(scene->folders, folder);
    assert_int_equal(others.times, 0);
    assert_int_equal(told[0].times, 1);
    struct folder *made = told[0].made;
    for (int i = 1; i < 4; i++) {
        assert_int_equal(told[i].times, 0);
        assert_ptr_equal(told[i].waiter.awaited, made);
    }
    folders_wait_no_more(&told[3].waiter); /* it would be refused */
    folders_confirm(scene->folders, made);
    assert_int_equal(told[1].times, 1);
    assert_ptr_equal(told[1].made, made);
    assert_int_equal(told[2].times, 1); /* shares it */
    assert_string_equal(told[2].made->path, "/shm/c");
    folders_drop(scene->folders, other);
    assert_int_equal(others.times, 1);
}

/* Two copies may be on their way, one of which was to be alone. */
static void who_waits_for_one_copy_is_told_of_another_that_is_there(void **state)
{
    struct scene *scene = *state;
    struct folder *awaited = begin(scene, A, "/shm/a", "x", FOLDER_MAKE), *sooner;
    const struct folder_wish alone = {
        .path = "/shm/b", .artifact = "disk:/m", .identity = "x", .uid = A, .bytes = MIB, .alone = true};
    const struct folder *none;
    struct told told = waiter_for("/shm/c", "x");
    enum folder_turn turn;
    folders_wait(awaited, &told.waiter);
    assert_int_equal(folders_begin(scene->folders, &alone, &turn, &sooner, &none, &scene->error), 0);
    assert_int_equal(turn, FOLDER_MAKE);
    folders_confirm(scene->folders, sooner);
    assert_int_equal(told.times, 1);
}

static void what_a_record_tells_is_charged_whatever_the_budget_is(void **state)
{
    struct scene *scene = *state;
    const struct folder record = {.path = strdup("/shm/a"),
                                  .artifact = strdup("disk:/m"),
                                  .identity = strdup("x"),
                                  .uid = A,
                                  .bytes = 1000 * MIB,
                                  .copy = 7};
    folders_restore(scene->folders, &record);
    assert_used(scene, 1000);
    begin(scene, A, "/shm/b", "x", FOLDER_WAIT); /* until it was found */
    folders_confirm(scene->folders, folders_find(scene->folders, A, "/shm/a"));
    begin(scene, A, "/shm/b", "x", FOLDER_SHARE);
    assert_int_equal(scene->folder->copy, 7);
    folders_drop(scene->folders, folders_find(scene->folders, A, "/shm/a"));
    assert_used(scene, 1000);
}

static void paths_are_absolute_and_plain(void **state)
{
    static const char *const paths[] = {"", "a", "/", "/a/", "/a//b", "/a/./b", "/a/../b", "/a/..", "/\xff"};
    struct scene *scene = *state;
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
        assert_refused(scene, A, paths[i], "x", ERROR_INVALID_ARGUMENT);
}

static void texts_of_folders_are_metadata_of_their_user(void **state)
{
    struct scene *scene = *state;
    char path[64], *artifact = malloc(4000);
    int n = 0;
    quota_set_limits(scene->quota, QUOTA_METADATA, 100 * 4096, 0);
    memset(artifact, 'x', 3999);
    artifact[3999] = '\0';
    do {
        const struct folder_wish wish = {.path = path, .artifact = artifact, .identity = path, .uid = A};
        snprintf(path, sizeof path, "/shm/%d", n);
        if (folders_begin(scene->folders, &wish, &scene->turn, &scene->folder, &scene->other, &scene->error) < 0)
            break;
        assert_in_range(quota_taken(scene->quota, QUOTA_METADATA), 4000 * (n + 1), 4400 * (n + 1));
    } while (++n < 100);
    assert_string_equal(scene->error.reason, "METADATA_EXCEEDED");
    assert_int_equal(quota_taken(scene->quota, QUOTA_FOLDERS), n);
    assert_in_range(n, 60, 99);
    begin(scene, B, "/shm/more", "x", FOLDER_MAKE);
    free(artifact);
}

static void fill(struct scene *scene, uid_t uid, int n)
{
    char path[32];
    for (int i = 0; i < n; i++) {
        const struct folder_wish wish = {.path = path, .artifact = "", .identity = "x", .uid = uid, .bytes = 0};
        snprintf(path, sizeof path, "/shm/%u-%d", (unsigned)uid, i);
        assert_int_equal(folders_begin(scene->folders, &wish, &scene->turn, &scene->folder, &scene->other, &scene->error),
                         0);
        keep(scene, scene->folder);
    }
}

static void a_user_has_1024_folders_and_not_one_more(void **state)
{
    struct scene *scene = *state;
    fill(scene, A, FOLDERS_MAX_PER_UID);
    assert_refused(scene, A, "/shm/more", "x", ERROR_RESOURCE_EXHAUSTED);
    begin(scene, B, "/shm/more", "x", FOLDER_MAKE);
}

static void users_with_all_they_may_have_leave_folders_for_others_and_root(void **state)
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

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_folder_is_charged_while_it_is_made_and_kept),
        TEST(folders_of_the_same_content_share_one_charge_until_the_last_goes),
        TEST(one_that_cannot_share_is_charged_by_itself),
        TEST(users_share_nothing),
        TEST(a_path_that_another_user_claims_is_free_for_all_others),
        TEST(whose_folder_is_meant_by_a_path),
        TEST(a_folder_of_root_is_there_for_everybody),
        TEST(another_state_of_the_artifact_is_not_the_old_one),
        TEST(what_does_not_fit_the_budget_is_refused),
        TEST(who_wants_what_is_being_made_waits_for_it),
        TEST(only_who_waits_for_it_hears_of_a_folder_and_one_goes_on_with_it),
        TEST(who_waits_for_one_copy_is_told_of_another_that_is_there),
        TEST(what_a_record_tells_is_charged_whatever_the_budget_is),
        TEST(paths_are_absolute_and_plain),
        TEST(texts_of_folders_are_metadata_of_their_user),
        TEST(a_user_has_1024_folders_and_not_one_more),
        TEST(users_with_all_they_may_have_leave_folders_for_others_and_root),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
