/* Which file system a path leads to is known by its text, whatever the path looks like and whether it exists. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "source/disk/mounts.h"
#include "source/source.h"

#undef fail
#include <cmocka.h>

static uint64_t device_of(const char *path)
{
    struct stat status;
    assert_int_equal(stat(path, &status), 0);
    return (uint64_t)major(status.st_dev) << 32 | minor(status.st_dev);
}

static void a_path_passes_through_the_mounts_whose_names_begin_it(void **state)
{
    (void)state;
    assert_int_not_equal(mounts_find("/proc"), mounts_find("/"));
    assert_int_equal(mounts_find("/proc") & mounts_bits_of(device_of("/proc")), mounts_bits_of(device_of("/proc")));
    assert_int_equal(mounts_find("/proc/no/such/file"), mounts_find("/proc"));
    assert_int_equal(mounts_find("//proc/./x/../y"), mounts_find("/proc"));
    assert_int_equal(mounts_find("/processes"), mounts_find("/"));
    assert_int_equal(mounts_find("/proc/.."), mounts_find("/"));
}

static bool may_mount; /* in a mount name space of our own: for root only */

static void a_new_mount_is_seen_and_so_is_its_end(void **state)
{
    char folder[] = "/tmp/test mounts-XXXXXX"; /* a space is escaped in the kernel's table */
    (void)state;
    if (!may_mount)
        skip();
    assert_non_null(mkdtemp(folder));
    uint64_t below = mounts_find(folder);
    assert_int_equal(mount("none", folder, "tmpfs", 0, NULL), 0);
    assert_int_equal(mounts_find(folder), below | mounts_bits_of(device_of(folder)));
    assert_int_not_equal(mounts_find(folder), below);
    assert_int_equal(umount(folder), 0);
    assert_int_equal(mounts_find(folder), below);
    rmdir(folder);
}

static void fuse_is_told_by_the_name_of_the_type(void **state)
{
    static const char *const yes[] = {"fuse", "fuseblk", "fuse.sshfs", "fuse.s3fs rw", "fuse host:/x rw", "fuseblk.ntfs"};
    static const char *const no[] = {"ext4", "fusectl", "nfs4", "fus", "fuse2", "", "9p", "virtiofs"};
    (void)state;
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++)
        assert_true(mounts_is_fuse(yes[i]));
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        assert_false(mounts_is_fuse(no[i]));
}

/* Without a server: nobody may ask it. */
static void a_process_that_leaves_fuse_mounts_to_others_goes_to_none(void **state)
{
    char folder[] = "/tmp/test_mounts-XXXXXX", options[64], below[64], link[64];
    struct error error;
    int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    (void)state;
    if (!may_mount || fd < 0)
        skip();
    assert_non_null(mkdtemp(folder));
    snprintf(below, sizeof below, "%s/m/x", folder);
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0", fd);
    snprintf(link, sizeof link, "%s.link", folder);
    assert_int_equal(symlink(folder, link), 0);
    assert_int_equal(mount("none", folder, "fuse", 0, options), 0);
    assert_int_equal(mounts_check(below, mounts_pass(below), &error), 0); /* it has not said so yet */
    mounts_leave_fuse(0);
    assert_int_equal(mounts_check("/tmp", mounts_pass("/tmp"), &error), 0);
    assert_int_equal(mounts_check(below, mounts_pass(below), &error), -1);
    assert_int_equal(error.kind, ERROR_KIND_FUSE_MOUNT);
    uint64_t mounts = mounts_elsewhere(&error), listed[2];
    assert_int_not_equal(mounts, 0);
    assert_int_equal(mounts_list_fuse(below, listed, 2), 1);
    assert_int_equal(listed[0], mounts);
    assert_true(mounts_list_fuse("/tmp/", listed, 2) >= 1 && mounts_list_fuse("/", listed, 2) >= 1);
    assert_int_equal(mounts_list_fuse("/tmp/test", listed, 2), 0);
    assert_int_equal(mounts_list_fuse(below, listed, 0), 0);
    char *name = mounts_describe(mounts);
    assert_string_equal(name, folder);
    free(name);
    assert_null(mounts_realpath(link, &error)); /* it would ask */
    assert_int_equal(mounts_elsewhere(&error), mounts);
    mounts_leave_fuse(mounts);
    assert_int_equal(mounts_check(below, mounts_pass(below), &error), 0);
    assert_int_equal(umount2(folder, MNT_DETACH), 0);
    close(fd);
    unlink(link);
    rmdir(folder);
}

static void what_was_unmounted_since_it_was_opened_is_left_to_others(void **state)
{
    char folder[] = "/tmp/test_mounts-XXXXXX", options[64];
    struct error error;
    int fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    (void)state;
    if (!may_mount || fuse < 0)
        skip();
    assert_non_null(mkdtemp(folder));
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0", fuse);
    int below = open(folder, O_PATH | O_CLOEXEC);
    assert_int_equal(mount("none", folder, "fuse", 0, options), 0);
    int fd = open(folder, O_PATH | O_CLOEXEC), other = open("/proc", O_PATH | O_CLOEXEC);
    assert_true(below >= 0 && fd >= 0 && other >= 0);
    mounts_leave_fuse(0);
    for (int is_detached = 0; is_detached < 2; is_detached++) {
        assert_int_equal(mounts_check_fd(fd, folder, &error), -1);
        assert_int_equal(error.kind, ERROR_KIND_FUSE_MOUNT);
        assert_int_equal(mounts_check_fd(below, folder, &error), 0);
        assert_int_equal(mounts_check_fd(other, "/proc", &error), 0);
        if (!is_detached)
            assert_int_equal(umount2(folder, MNT_DETACH), 0);
    }
    close(fd);
    close(other);
    close(below);
    close(fuse);
    rmdir(folder);
}

static void below_a_chroot_the_mount_of_the_root_is_known(void **state)
{
    char folder[] = "/tmp/test_mounts-XXXXXX";
    struct error error = {0};
    (void)state;
    if (!may_mount)
        skip();
    assert_non_null(mkdtemp(folder));
    assert_int_equal(mount("none", folder, "tmpfs", 0, NULL), 0);
    pid_t child = fork();
    if (child == 0) { /* a folder of a tmpfs as the root: no table says where that tmpfs is */
        mounts_leave_fuse(0);
        bool is_done = chdir(folder) == 0 && mkdir("root", 0700) == 0 && mkdir("root/proc", 0700) == 0 &&
                       mkdir("root/x", 0700) == 0 && mount("none", "root/proc", "proc", 0, NULL) == 0 && chroot("root") == 0;
        int fd = open("/x", O_PATH | O_CLOEXEC);
        _exit(is_done && fd >= 0 && mounts_find("/proc") && mounts_check_fd(fd, "/x", &error) == 0 ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(umount2(folder, MNT_DETACH), 0);
    rmdir(folder);
}

static void a_real_path_is_that_of_the_c_library(void **state)
{
    char folder[] = "/tmp/test_mounts-XXXXXX", given[128], expected[PATH_MAX];
    static const char *const links[][2] = {
        {"a", "b"}, {"b", "../dir/./"}, {"c", "/proc/self/../x"}, {"up", ".."}, {"loop", "loop"}};
    static const char *const paths[] = {"",   "/.",    "/a",       "//a//f",   "/a/../b/f", "/up/dir",
                                        "/c", "/loop", "/nothing", "/dir/f/x", "/dir/f",    "/dir/up/dir/up/b/f"};
    struct error error;
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(given, sizeof given, "%s/dir", folder);
    assert_int_equal(mkdir(given, 0700), 0);
    int at = open(given, O_DIRECTORY | O_RDONLY), top = open(folder, O_DIRECTORY | O_RDONLY);
    assert_int_equal(mknodat(at, "f", S_IFREG | 0600, 0), 0);
    for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
        assert_int_equal(symlinkat(links[i][1], top, links[i][0]), 0);
        assert_int_equal(symlinkat(links[i][1], at, links[i][0]), 0);
    }
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        snprintf(given, sizeof given, "%s/dir%s", folder, paths[i]);
        char *found = mounts_realpath(given, &error);
        if (realpath(given, expected))
            assert_string_equal(found ? found : error.message, expected);
        else
            assert_null(found);
        free(found);
    }
    for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
        unlinkat(top, links[i][0], 0);
        unlinkat(at, links[i][0], 0);
    }
    unlinkat(at, "f", 0);
    unlinkat(top, "dir", AT_REMOVEDIR);
    close(at);
    close(top);
    rmdir(folder);
}

static void a_real_path_is_behind_forty_links_at_most(void **state)
{
    char folder[] = "/tmp/test_mounts-XXXXXX", name[64], target[64];
    struct error error;
    (void)state;
    assert_non_null(mkdtemp(folder));
    int at = open(folder, O_DIRECTORY | O_RDONLY);
    for (int i = 1; i <= 41; i++) {
        snprintf(name, sizeof name, "%d", i);
        snprintf(target, sizeof target, "%d", i - 1);
        assert_int_equal(symlinkat(i == 1 ? "." : target, at, name), 0);
    }
    snprintf(name, sizeof name, "%s/40", folder);
    char *found = mounts_realpath(name, &error);
    assert_string_equal(found ? found : error.message, folder);
    free(found);
    snprintf(name, sizeof name, "%s/41", folder);
    assert_null(mounts_realpath(name, &error));
    for (int i = 1; i <= 41; i++) {
        snprintf(name, sizeof name, "%d", i);
        unlinkat(at, name, 0);
    }
    close(at);
    rmdir(folder);
}

static struct loop_work placed(const char *reference)
{
    struct loop_work work = {0};
    source_place_work(reference, &work);
    return work;
}

static void work_is_placed_by_the_server_or_file_system_that_it_asks(void **state)
{
    (void)state;
    assert_int_equal(placed("disk:/proc/a").pool, LOOP_DISK);
    assert_int_equal(placed("disk:/proc/a").lane, placed("disk:/proc/b").lane);
    assert_int_not_equal(placed("disk:/proc/a").lane, placed("disk:/a").lane);
    assert_int_equal(placed("https://a.example/x").pool, LOOP_REMOTE);
    assert_int_equal(placed("https://a.example/x").lane, placed("https://a.example/y?z").lane);
    assert_int_not_equal(placed("https://a.example/x").lane, placed("https://a.example:444/x").lane);
    assert_int_not_equal(placed("https://a.example/x").lane, placed("http://a.example/x").lane);
    assert_int_equal(placed("s3://bucket/x").pool, LOOP_REMOTE);
    assert_int_equal(placed("nonsense").pool, LOOP_DISK);
    assert_int_equal(placed("").pool, LOOP_DISK);
    assert_int_not_equal(placed("").lane, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_path_passes_through_the_mounts_whose_names_begin_it),
        cmocka_unit_test(a_new_mount_is_seen_and_so_is_its_end),
        cmocka_unit_test(fuse_is_told_by_the_name_of_the_type),
        cmocka_unit_test(a_process_that_leaves_fuse_mounts_to_others_goes_to_none),
        cmocka_unit_test(below_a_chroot_the_mount_of_the_root_is_known),
        cmocka_unit_test(what_was_unmounted_since_it_was_opened_is_left_to_others),
        cmocka_unit_test(a_real_path_is_that_of_the_c_library),
        cmocka_unit_test(a_real_path_is_behind_forty_links_at_most),
        cmocka_unit_test(work_is_placed_by_the_server_or_file_system_that_it_asks),
    };
    may_mount = unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
