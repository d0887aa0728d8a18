/* What the host can spare, from files as the kernel writes them. */
#include "tests/support/unit.h"

#include <sys/stat.h>

#include "base/host_headroom.h"
#include "tests/support/shell.h"

#define MIB(n) ((uint64_t)(n) << 20)

static char root[] = "/tmp/test_host_headroom.XXXXXX";

static void make_folder(const char *path)
{
    char full[256];
    snprintf(full, sizeof full, "%s%s", root, path);
    assert_int_equal(mkdir(full, 0700), 0);
}

static void write_file(const char *path, const char *text)
{
    char full[256];
    snprintf(full, sizeof full, "%s%s", root, path);
    FILE *file = fopen(full, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static int create(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(root));
    static const char *const folders[] = {
        "/proc", "/proc/self", "/sys",         "/sys/fs", "/sys/fs/cgroup", "/sys/fs/cgroup/a", "/sys/fs/cgroup/a/b",
        "/old",  "/old/kube",  "/old/kube/pod"};
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++)
        make_folder(folders[i]);
    return 0;
}

static int delete (void **state)
{
    (void)state;
    shell("rm -r %s", root);
    return 0;
}

static void write_host(unsigned total_mib, unsigned available_mib)
{
    char text[128];
    snprintf(text, sizeof text, "MemTotal: %u kB\nMemFree: 1 kB\nMemAvailable: %u kB\n", total_mib << 10,
             available_mib << 10);
    write_file("/proc/meminfo", text);
}

TEST(what_cannot_be_read_limits_nothing)
{
    assert_int_equal(host_headroom_at(root).free_bytes, UINT64_MAX);
    assert_false(host_headroom_at(root).is_short);
}

TEST(an_eighth_of_the_host_is_left_for_others)
{
    write_host(8000, 5000);
    assert_int_equal(host_headroom_at(root).free_bytes, MIB(4000));
    write_host(8000, 999);
    assert_int_equal(host_headroom_at(root).free_bytes, 0);
    assert_false(host_headroom_at(root).is_short);
    write_host(8000, 499);
    assert_true(host_headroom_at(root).is_short);
}

TEST(each_group_above_may_be_the_limit)
{
    char text[128];
    write_host(8000, 8000);
    write_file("/proc/self/cgroup", "1:cpu:/elsewhere\n0::/a/b\n");
    write_file("/proc/self/mountinfo", "29 1 0:8 / / rw - ext4 /dev/x rw\n30 1 0:9 / /sys/fs/cgroup rw - cgroup2 none rw\n");
    write_file("/sys/fs/cgroup/a/b/memory.max", "max\n");
    write_file("/sys/fs/cgroup/a/b/memory.high", "max\n");
    assert_int_equal(host_headroom_at(root).free_bytes, MIB(7000));
    snprintf(text, sizeof text, "%llu\n", (unsigned long long)MIB(1600));
    write_file("/sys/fs/cgroup/a/memory.high", text);
    snprintf(text, sizeof text, "%llu\n", (unsigned long long)MIB(1000));
    write_file("/sys/fs/cgroup/a/memory.current", text);
    assert_int_equal(host_headroom_at(root).free_bytes, MIB(400));
    snprintf(text, sizeof text, "anon 5\nfile 9\ninactive_file %llu\nactive_file %llu\n", (unsigned long long)MIB(300),
             (unsigned long long)MIB(100));
    write_file("/sys/fs/cgroup/a/memory.stat", text); /* the kernel drops these first */
    assert_int_equal(host_headroom_at(root).free_bytes, MIB(800));
    snprintf(text, sizeof text, "%llu\n", (unsigned long long)MIB(1950));
    write_file("/sys/fs/cgroup/a/memory.current", text);
    assert_int_equal(host_headroom_at(root).free_bytes, 0);
    assert_true(host_headroom_at(root).is_short);
}

static void write_number(const char *path, uint64_t number)
{
    char text[32];
    snprintf(text, sizeof text, "%llu\n", (unsigned long long)number);
    write_file(path, text);
}

static void write_old_group(const char *folder, uint64_t limit, uint64_t used)
{
    char path[256];
    snprintf(path, sizeof path, "%s/memory.limit_in_bytes", folder);
    write_number(path, limit);
    snprintf(path, sizeof path, "%s/memory.usage_in_bytes", folder);
    write_number(path, used);
}

static const uint64_t no_limit = 9223372036854771712U;

TEST(a_group_of_version_1_limits_as_well)
{
    write_host(8000, 8000);
    write_file("/proc/self/cgroup", "9:name=systemd:/x\n4:cpu,memory:/kube/pod\n3:memoryless:/none\n0::/a/b\n");
    write_file("/proc/self/mountinfo", "30 1 0:9 / /sys/fs/cgroup rw - cgroup2 none rw\n"
                                       "31 1 0:10 / /none rw - cgroup cgroup rw,cpuset\n"
                                       "32 1 0:11 / /old rw,relatime shared:7 - cgroup cgroup rw,cpu,memory\n");
    write_old_group("/old", no_limit, MIB(3000));
    write_old_group("/old/kube", no_limit, MIB(3000));
    write_old_group("/old/kube/pod", no_limit, MIB(3000));
    struct host_headroom headroom = host_headroom_at(root);
    assert_true(headroom.limit_bytes == MIB(8000) && headroom.free_bytes == MIB(7000));
    write_old_group("/old/kube", MIB(800), MIB(700));
    write_file("/old/kube/memory.stat", "inactive_file 1\ntotal_inactive_file 104857600\ntotal_active_file 104857600\n");
    headroom = host_headroom_at(root);
    assert_true(headroom.limit_bytes == MIB(800) && headroom.available_bytes == MIB(300));
    assert_true(headroom.free_bytes == MIB(200) && !headroom.is_short);
    write_old_group("/old/kube/pod", MIB(160), MIB(155));
    headroom = host_headroom_at(root);
    assert_true(headroom.limit_bytes == MIB(160) && headroom.available_bytes == MIB(5) && headroom.is_short);
}

/* A container sees its own group as the top of the hierarchy, and may have groups of its own below. */
TEST(the_mount_may_begin_at_any_group)
{
    write_host(8000, 8000);
    write_file("/proc/self/cgroup", "4:memory:/docker/a1/kube\n0::/\n");
    write_file("/proc/self/mountinfo", "32 1 0:11 /docker/a1 /old ro - cgroup cgroup rw,memory\n");
    write_old_group("/old", MIB(600), MIB(1));
    write_old_group("/old/kube", MIB(500), MIB(1));
    assert_int_equal(host_headroom_at(root).limit_bytes, MIB(500));
    write_file("/proc/self/cgroup", "4:memory:/docker/a12/kube\n0::/\n"); /* not below the mount */
    assert_int_equal(host_headroom_at(root).limit_bytes, MIB(600));
    write_file("/proc/self/mountinfo", "32 1 0:11 / /sys rw - sysfs sysfs rw,memory\n");
    assert_int_equal(host_headroom_at(root).limit_bytes, MIB(8000));
}

TEST(this_host_tells_something)
{
    assert_true(host_headroom_at("").free_bytes < (uint64_t)1 << 60);
}

TESTS_IN(create, delete)
