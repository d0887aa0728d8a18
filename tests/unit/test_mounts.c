/* Which file system a path leads to is known by its text, whatever the path looks like and whether it exists. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
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
        cmocka_unit_test(work_is_placed_by_the_server_or_file_system_that_it_asks),
    };
    may_mount = unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
