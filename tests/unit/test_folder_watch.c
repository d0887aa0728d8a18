/* Folders that are looked for: one that is there stays, one that is gone is given up with its charge and record. */
#include "replica/folder_watch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "replica/folder_record.h"
#include "tests/support/model_dir.h"

#include <cmocka.h>

enum { LONG_MS = 600000, POLL_MS = 20, PATIENCE_MS = 20000 };

static char state_dir[MODEL_PATH_CHARS];
static struct loop *loop;
static struct replica_table *host;
static struct folders *folders;
static struct folder_watch *watch;
static struct loop_timer *poll, *patience;
static const char *waited_for; /* a path that is to be given up */

static int set_up(void **state)
{
    (void)state;
    model_dir_create(state_dir);
    loop = loop_create();
    host = replica_table_create(loop, REPLICA_MEMORY_HOST, &(struct replica_limits){1000, LONG_MS, 0});
    folders = folders_create(host, NULL, state_dir);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    folder_watch_stop(watch);
    loop_timer_destroy(poll);
    loop_timer_destroy(patience);
    poll = patience = NULL;
    replica_table_destroy(host);
    loop_destroy(loop);
    folder_watch_destroy(watch);
    watch = NULL;
    folders_destroy(folders);
    model_dir_destroy(state_dir);
    return 0;
}

static void on_poll(void *data)
{
    (void)data;
    if (!folders_find(folders, geteuid(), waited_for))
        loop_stop(loop);
}

static void on_patience(void *data)
{
    (void)data;
    loop_stop(loop);
}

static void wait_until_given_up(const char *path)
{
    waited_for = path;
    poll = loop_timer_create(loop, on_poll, NULL);
    patience = loop_timer_create(loop, on_patience, NULL);
    loop_timer_start(poll, POLL_MS, POLL_MS);
    loop_timer_start(patience, PATIENCE_MS, 0);
    loop_run(loop);
    assert_null(folders_find(folders, geteuid(), path));
}

/* As an earlier daemon has left it. */
static const char *record(const char *name, bool is_there, char path[MODEL_PATH_CHARS])
{
    struct stat status = {.st_dev = 1, .st_ino = 1};
    struct error error;
    model_dir_mkdir(state_dir, name);
    model_dir_path(state_dir, name, path);
    assert_int_equal(stat(path, &status), 0);
    const struct folder folder = {.path = path,
                                  .artifact = (char *)"disk:/m",
                                  .identity = (char *)name,
                                  .bytes = 100,
                                  .uid = geteuid(),
                                  .is_seen = true,
                                  .copy = (uint64_t)name[0],
                                  .device = (uint64_t)status.st_dev,
                                  .inode = (uint64_t)status.st_ino};
    assert_int_equal(folder_record_write(state_dir, &folder, &error), 0);
    if (!is_there)
        assert_int_equal(rmdir(path), 0);
    return path;
}

static void folders_of_an_earlier_daemon_are_charged_while_they_are_there(void **state)
{
    char here[MODEL_PATH_CHARS], gone[MODEL_PATH_CHARS];
    (void)state;
    record("here", true, here);
    record("gone", false, gone);
    watch = folder_watch_create(loop, folders);
    assert_int_equal(replica_used_bytes(host), 200);
    folder_watch_now(watch);
    wait_until_given_up(gone);
    assert_int_equal(replica_used_bytes(host), 100);
    assert_non_null(folders_find(folders, geteuid(), here));
}

static void another_folder_of_the_same_path_is_not_it(void **state)
{
    char path[MODEL_PATH_CHARS], other[MODEL_PATH_CHARS];
    (void)state;
    record("old", true, path);
    model_dir_mkdir(state_dir, "new");
    assert_int_equal(rename(model_dir_path(state_dir, "new", other), path), 0);
    watch = folder_watch_create(loop, folders);
    folder_watch_now(watch);
    wait_until_given_up(path);
    assert_int_equal(replica_used_bytes(host), 0);
}

static void a_folder_of_another_user_is_told_as_one_that_is_missing(void **state)
{
    char here[MODEL_PATH_CHARS], gone[MODEL_PATH_CHARS];
    struct stat status;
    (void)state;
    model_dir_mkdir(state_dir, "here");
    assert_int_equal(stat(model_dir_path(state_dir, "here", here), &status), 0);
    model_dir_path(state_dir, "gone", gone);
    assert_int_equal(folder_watch_look(here, geteuid(), status.st_dev, status.st_ino), SIGHT_THERE);
    assert_int_equal(folder_watch_look(here, geteuid() + 1, status.st_dev, status.st_ino), SIGHT_GONE);
    assert_int_equal(folder_watch_look(here, geteuid() + 1, status.st_dev, status.st_ino + 1), SIGHT_GONE);
    assert_int_equal(folder_watch_look(gone, geteuid() + 1, status.st_dev, status.st_ino), SIGHT_GONE);
}

static void take_none(void *data, const struct folder *folder)
{
    ++*(int *)data;
    free(folder->path);
    free(folder->artifact);
    free(folder->identity);
}

static void a_dropped_folder_loses_its_record(void **state)
{
    char path[MODEL_PATH_CHARS], last[MODEL_PATH_CHARS];
    int n = 0;
    (void)state;
    record("a", true, path);
    record("z", false, last);
    watch = folder_watch_create(loop, folders);
    folder_watch_drop(watch, folders_find(folders, geteuid(), path));
    assert_null(folders_find(folders, geteuid(), path));
    wait_until_given_up(last); /* two looks later */
    folder_record_read_all(state_dir, take_none, &n);
    assert_in_range(n, 0, 1); /* of the last one */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(folders_of_an_earlier_daemon_are_charged_while_they_are_there, set_up, tear_down),
        cmocka_unit_test_setup_teardown(another_folder_of_the_same_path_is_not_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_folder_of_another_user_is_told_as_one_that_is_missing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_dropped_folder_loses_its_record, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
