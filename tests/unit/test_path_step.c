/* No link is followed and no mount entered, whether the system knows openat2() or not. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/path_step.h"
#include "tests/support/model_dir.h"
#include "tests/support/refuse_openat2.h"

#include <cmocka.h>

static char base[MODEL_PATH_CHARS];

static int create(void **state)
{
    (void)state;
    model_dir_create(base);
    model_dir_mkdir(base, "d");
    model_dir_mkdir(base, "d/e");
    model_dir_write(base, "d/f", "f", 1);
    model_dir_link(base, "d/link", "e");
    model_dir_link(base, "to-d", "d");
    return 0;
}

static int destroy(void **state)
{
    (void)state;
    model_dir_destroy(base);
    return 0;
}

static void a_step_opens_what_is_there_and_a_link_itself(void **state)
{
    static const struct {
        const char *name;
        mode_t type;
    } rows[] = {{"e", S_IFDIR}, {"f", S_IFREG}, {"link", S_IFLNK}};
    char path[MODEL_PATH_CHARS];
    (void)state;
    int folder_fd = open(model_dir_path(base, "d", path), O_PATH | O_CLOEXEC);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct path_step step;
        struct stat status;
        int fd = path_step(folder_fd, rows[i].name, &step);
        assert_true(fd >= 0 && fstat(fd, &status) == 0 && (status.st_mode & S_IFMT) == rows[i].type);
        assert_true(step.is_link == (rows[i].type == S_IFLNK) && !step.is_mount);
        close(fd);
    }
    struct path_step step;
    assert_true(path_step(folder_fd, "missing", &step) == -1 && errno == ENOENT);
    close(folder_fd);
}

static void a_step_tells_another_mount(void **state)
{
    static const char *const mounts[] = {"proc", "dev"};
    struct path_step step;
    (void)state;
    int root_fd = open("/", O_PATH | O_CLOEXEC);
    for (size_t i = 0; i < sizeof mounts / sizeof *mounts; i++) {
        int fd = path_step(root_fd, mounts[i], &step);
        assert_true(fd >= 0 && step.is_mount && !step.is_link);
        close(fd);
    }
    close(root_fd);
}

/* The files of an overlay have other device numbers than its folders. */
static void the_files_of_an_overlay_are_on_the_mount_of_their_folder(void **state)
{
    char lower[MODEL_PATH_CHARS], options[2 * MODEL_PATH_CHARS], at[MODEL_PATH_CHARS];
    struct path_step step;
    (void)state;
    snprintf(options, sizeof options, "lowerdir=%s:/usr", model_dir_path(base, "lower", lower));
    model_dir_mkdir(base, "lower");
    model_dir_mkdir(base, "overlay");
    model_dir_path(base, "overlay", at);
    if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("lower", lower, "tmpfs", 0, NULL) < 0)
        skip();
    model_dir_write(base, "lower/f", "f", 1);
    if (mount("overlay", at, "overlay", 0, options) < 0)
        skip();
    int folder_fd = open(at, O_PATH | O_CLOEXEC), fd = path_step(folder_fd, "f", &step);
    assert_true(fd >= 0 && !step.is_mount);
    close(fd);
    assert_int_equal(mount("/usr/bin/env", model_dir_path(base, "overlay/f", lower), NULL, MS_BIND, NULL), 0);
    fd = path_step(folder_fd, "f", &step);
    assert_true(fd >= 0 && step.is_mount);
    close(fd);
    close(folder_fd);
    assert_int_equal(umount2(model_dir_path(base, "overlay/f", lower), MNT_DETACH), 0);
    assert_int_equal(umount2(at, MNT_DETACH), 0);
    assert_int_equal(umount2(model_dir_path(base, "lower", lower), MNT_DETACH), 0);
}

static void several_steps_at_once_follow_nothing(void **state)
{
    static const char *const refused[] = {"d/link", "to-d/f", "..", "d/../../x", "/etc"};
    char path[MODEL_PATH_CHARS];
    (void)state;
    int folder_fd = open(model_dir_path(base, "", path), O_PATH | O_CLOEXEC), fd = path_step_at_once(folder_fd, "d/f");
    assert_int_equal(fd >= 0, path_step_refused() == 0);
    if (fd >= 0)
        close(fd);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        assert_int_equal(path_step_at_once(folder_fd, refused[i]), -1);
    close(folder_fd);
}

static void a_folder_behind_a_link_is_not_opened(void **state)
{
    char path[MODEL_PATH_CHARS];
    (void)state;
    int fd = path_step_open_folder(model_dir_path(base, "d/e", path), O_PATH);
    assert_true(fd >= 0);
    close(fd);
    assert_true(path_step_open_folder(model_dir_path(base, "to-d/e", path), O_PATH) == -1 && errno == ELOOP);
    assert_true(path_step_open_folder(model_dir_path(base, "d/link", path), O_RDONLY) == -1 && errno == ELOOP);
    assert_true(path_step_open_folder(model_dir_path(base, "d/f", path), O_PATH) == -1 && errno == ENOTDIR);
    assert_true(path_step_open_folder(model_dir_path(base, "d/f/g", path), O_PATH) == -1 && errno == ENOTDIR);
    assert_true(path_step_open_folder(model_dir_path(base, "none/e", path), O_PATH) == -1 && errno == ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_opens_what_is_there_and_a_link_itself),
        cmocka_unit_test(a_step_tells_another_mount),
        cmocka_unit_test(the_files_of_an_overlay_are_on_the_mount_of_their_folder),
        cmocka_unit_test(several_steps_at_once_follow_nothing),
        cmocka_unit_test(a_folder_behind_a_link_is_not_opened),
    };
    int failed = cmocka_run_group_tests_name("with openat2()", tests, create, destroy);
    if (!refuse_openat2(ENOSYS) || path_step_refused() != ENOSYS)
        return 1;
    return failed + cmocka_run_group_tests_name("without openat2()", tests, create, destroy);
}
