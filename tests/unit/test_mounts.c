/* Which file system a path leads to is known by its text, whatever the path looks like and whether it exists. */
#include "tests/support/unit.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "source/disk/mounts.h"
#include "source/source.h"

static uint64_t device_of(const char *path)
{
    struct stat status;
    assert_int_equal(stat(path, &status), 0);
    return status.st_dev;
}

TEST(a_path_passes_through_the_mounts_whose_names_begin_it)
{
    assert_int_not_equal(mounts_find("/proc"), mounts_find("/"));
    assert_int_equal(mounts_find("/proc") & loop_lane_of(device_of("/proc")), loop_lane_of(device_of("/proc")));
    assert_int_equal(mounts_find("/proc/no/such/file"), mounts_find("/proc"));
    assert_int_equal(mounts_find("//proc/./x/../y"), mounts_find("/proc"));
    assert_int_equal(mounts_find("/processes"), mounts_find("/"));
    assert_int_equal(mounts_find("/proc/.."), mounts_find("/"));
}

static bool may_mount; /* in a mount name space of our own: for root only */

TEST(a_new_mount_is_seen_and_so_is_its_end)
{
    char folder[] = "/tmp/test mounts-XXXXXX"; /* a space is escaped in the kernel's table */
    if (!may_mount)
        skip();
    assert_non_null(mkdtemp(folder));
    uint64_t below = mounts_find(folder);
    assert_int_equal(mount("none", folder, "tmpfs", 0, NULL), 0);
    assert_int_equal(mounts_find(folder), below | loop_lane_of(device_of(folder)));
    assert_int_not_equal(mounts_find(folder), below);
    assert_int_equal(umount(folder), 0);
    assert_int_equal(mounts_find(folder), below);
    rmdir(folder);
}

TEST(fuse_is_told_by_the_name_of_the_type)
{
    static const char *const yes[] = {"fuse", "fuseblk", "fuse.sshfs", "fuse.s3fs rw", "fuse host:/x rw", "fuseblk.ntfs"};
    static const char *const no[] = {"ext4", "fusectl", "nfs4", "fus", "fuse2", "", "9p", "virtiofs"};
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++)
        assert_true(mounts_is_fuse(yes[i]));
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        assert_false(mounts_is_fuse(no[i]));
}

/* Without a server: it must not be asked. */
TEST(fuse_mounts_are_listed_by_the_sets_that_they_are_in)
{
    char folder[] = "/tmp/test_mounts-XXXXXX", options[64], below[64];
    int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    size_t n;
    if (!may_mount || fd < 0)
        skip();
    assert_non_null(mkdtemp(folder));
    snprintf(below, sizeof below, "%s/m/x", folder);
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0", fd);
    uint64_t sets[] = {mounts_find("/proc"), 0};
    assert_int_equal(mount("none", folder, "fuse", 0, options), 0);
    assert_int_equal(mounts_find_fuse("/tmp"), 0);
    assert_int_not_equal(mounts_find_fuse(below), 0);
    assert_int_equal(mounts_find(below), mounts_find("/tmp") | mounts_find_fuse(below));
    struct mounts_fuse *list = mounts_list_fuse(sets, 2, &n);
    assert_int_equal(n, 0);
    mounts_list_free(list, n);
    sets[1] = mounts_find(below);
    list = mounts_list_fuse(sets, 2, &n);
    assert_int_equal(n, 1);
    assert_string_equal(list[0].path, folder);
    assert_int_equal(loop_lane_of(list[0].device), mounts_find_fuse(below));
    mounts_list_free(list, n);
    assert_int_equal(umount2(folder, MNT_DETACH), 0);
    close(fd);
    rmdir(folder);
}

TEST(a_set_of_three_seldom_seems_to_have_a_fourth)
{
    size_t n_wrong = 0, n = 0;
    for (uint64_t first = 20; first < 300; first++) {
        uint64_t set = loop_lane_of(first) | loop_lane_of(first + 7) | loop_lane_of(first + 31);
        for (uint64_t other = 20; other < 300; other++) {
            bool is_in = other == first || other == first + 7 || other == first + 31;
            assert_true(!is_in || (loop_lane_of(other) & ~set) == 0);
            n_wrong += !is_in && (loop_lane_of(other) & ~set) == 0;
            n++;
        }
    }
    assert_true(n_wrong * 200 < n);
}

static struct loop_work placed(const char *reference)
{
    struct loop_work work = {0};
    source_place_work(reference, &work);
    return work;
}

TEST(work_is_placed_by_the_server_or_file_system_that_it_asks)
{
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

static int set_up_all_tests(void **state)
{
    may_mount = unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
    (void)state;
    return 0;
}

TESTS_IN(set_up_all_tests, NULL)
