/* Memfds of a client as one segment: what is refused, where they lie, what a client can do to them meanwhile. */
#include "tests/support/unit.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bus_guard.h"
#include "device/host_region.h"
#include "device/device.h"
#include "base/huge_pages.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

#define MIB ((uint64_t)1 << 20)
#define TIB ((uint64_t)1 << 40)

static int memfd(uint64_t bytes, int seals)
{
    int fd = memfd_create("client", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

/* As a client does before it lends memory. */
static int backed_memfd(uint64_t bytes)
{
    int fd = memfd(bytes, F_SEAL_SHRINK);
    char *zeros = calloc(1, bytes);
    assert_int_equal(pwrite(fd, zeros, bytes, 0), (ssize_t)bytes);
    free(zeros);
    return fd;
}

static struct device_region *region_of(int fd, uint64_t base, struct device_region *next)
{
    struct device_region *region = calloc(1, sizeof *region);
    struct error error;
    *region =
        (struct device_region){.kind = DEVICE_REGION_HOST, .base = base, .next = next, .memory_fd = dup(fd), .lease_fd = -1};
    assert_int_equal(host_region_check(region, &error), 0);
    return region;
}

static void assert_refused(int fd, const char *reason)
{
    struct device_region region = {.kind = DEVICE_REGION_HOST, .memory_fd = fd};
    struct error error;
    assert_int_equal(host_region_check(&region, &error), -1);
    assert_int_equal(error.code, ERROR_INVALID_ARGUMENT);
    assert_string_equal(error.reason, reason);
    close(fd);
}

TEST(only_a_memfd_that_cannot_shrink_and_can_be_written_is_taken)
{
    char path[] = "/tmp/test_host_region_XXXXXX", reopened[32];
    int good = memfd(4096, F_SEAL_SHRINK), file = mkstemp(path), ends[2];
    assert_int_equal(pipe(ends), 0);
    close(ends[0]);
    assert_int_equal(ftruncate(file, 4096), 0);
    assert_refused(file, "REGION_NOT_MEMFD");
    assert_refused(ends[1], "REGION_NOT_MEMFD");
    assert_refused(memfd(4096, 0), "REGION_CAN_SHRINK");
    assert_refused(memfd(4096, F_SEAL_GROW), "REGION_CAN_SHRINK");
    assert_refused(memfd_create("plain", MFD_CLOEXEC), "REGION_CAN_SHRINK");
    assert_refused(memfd(4096, F_SEAL_SHRINK | F_SEAL_WRITE), "REGION_IS_SEALED");
    assert_refused(memfd(4096, F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE), "REGION_IS_SEALED");
    assert_refused(memfd(0, F_SEAL_SHRINK), "REGION_EMPTY");
    snprintf(reopened, sizeof reopened, "/proc/self/fd/%d", good);
    assert_refused(open(reopened, O_RDONLY | O_CLOEXEC), "REGION_READ_ONLY");
    unlink(path);
    close(good);
}

TEST(size_and_identity_are_the_kernels)
{
    int fd = memfd(4097, F_SEAL_SHRINK | F_SEAL_GROW);
    struct device_region *one = region_of(fd, 0, NULL), *same = region_of(fd, 0, NULL);
    int another = memfd(1, F_SEAL_SHRINK);
    struct device_region *other = region_of(another, 0, NULL);
    assert_int_equal(one->bytes, 4097);
    assert_int_equal(one->memory_inode, same->memory_inode);
    assert_int_equal(one->memory_device, same->memory_device);
    assert_int_not_equal(one->memory_inode, other->memory_inode);
    device_region_close(one);
    device_region_close(same);
    device_region_close(other);
    close(fd);
    close(another);
}

static unsigned char byte_at(int fd, uint64_t offset)
{
    unsigned char byte = 0;
    assert_int_equal(pread(fd, &byte, 1, (off_t)offset), 1);
    return byte;
}

static void put(struct segment *segment, uint64_t offset, unsigned char byte)
{
    struct error error;
    assert_int_equal(device_copy(segment, offset, &byte, &(struct device_rows){1, 1, 1, 1}, &error), 0);
}

TEST(several_memfds_are_one_segment_with_gaps)
{
    static const uint64_t sizes[] = {24, 5 * MIB + 3, 4096}, bases[] = {0, 4 * MIB, 14 * MIB};
    struct device *device = device_host_create(0);
    struct device_region *list = NULL;
    struct segment *segment;
    struct error error;
    int fds[3];
    for (size_t i = 3; i-- > 0;) {
        fds[i] = backed_memfd(sizes[i]);
        list = region_of(fds[i], bases[i], list);
    }
    assert_int_equal(device_adopt(device, bases[2] + sizes[2], list, &segment, &error), 0);
    assert_true(segment_is_lent(segment));
    assert_int_equal((uintptr_t)segment->host_address % HUGE_PAGE_BYTES, 0);
    for (size_t i = 0; i < 3; i++) {
        put(segment, bases[i], (unsigned char)(10 + i));
        put(segment, bases[i] + sizes[i] - 1, (unsigned char)(20 + i));
        assert_int_equal(byte_at(fds[i], 0), 10 + i);
        assert_int_equal(byte_at(fds[i], sizes[i] - 1), 20 + i);
        assert_int_equal(byte_at(fds[i], 1), 0);
    }
    assert_int_equal(device_prepare(segment, 24, 1, &error), -1); /* behind the first, in the gap */
    assert_int_equal(device_prepare(segment, 4 * MIB - 1, 2, &error), -1);
    assert_int_equal(device_export_fd(segment, &error), -1);
    assert_false(device_is_kept(segment));
    assert_int_equal(device_seal(segment, &error), 0);
    segment_unref(segment);
    device_destroy(device);
    for (size_t i = 0; i < 3; i++)
        close(fds[i]);
}

TEST(a_client_may_grow_punch_write_and_seal_meanwhile)
{
    struct device *device = device_host_create(0);
    int fd = backed_memfd(8 * MIB);
    struct segment *segment;
    struct error error;
    assert_int_equal(device_adopt(device, 8 * MIB, region_of(fd, 0, NULL), &segment, &error), 0);
    assert_int_equal(device_prepare(segment, 0, 8 * MIB, &error), 0);
    put(segment, 3 * MIB, 1);
    assert_int_equal(ftruncate(fd, 4096), -1);
    assert_int_equal(ftruncate(fd, 9 * (off_t)MIB), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1); /* we have it mapped */
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE), 0);
    segment_unref(segment);
    device_destroy(device);
    close(fd);
}

static uint64_t allocated_bytes(int fd)
{
    struct stat info;
    assert_int_equal(fstat(fd, &info), 0);
    return (uint64_t)info.st_blocks * 512;
}

TEST(a_hole_is_refused_by_its_byte_and_no_page_is_made_for_it)
{
    struct device *device = device_host_create(0);
    int fd = memfd(16 * MIB, F_SEAL_SHRINK);
    struct segment *segment;
    struct error error;
    char *ones = memset(malloc(2 * MIB), 1, 2 * MIB);
    assert_int_equal(pwrite(fd, ones, 2 * MIB, 2 * (off_t)MIB), 2 * MIB);
    assert_int_equal(pwrite(fd, ones, 2 * MIB - 4096, 12 * (off_t)MIB), 2 * MIB - 4096);
    uint64_t before = allocated_bytes(fd);
    assert_int_equal(device_adopt(device, 16 * MIB, region_of(fd, 0, NULL), &segment, &error), 0);
    assert_int_equal(device_prepare(segment, 3 * MIB, 1000, &error), 0);
    put(segment, 3 * MIB, 7);
    for (uint64_t at = 5; at < 15; at += 4) { /* in the first hole, between holes, and a page behind the last byte */
        assert_int_equal(device_prepare(segment, at * MIB, 1, &error), -1);
        assert_int_equal(error.code, ERROR_FAILED_PRECONDITION);
        assert_string_equal(error.reason, "REGION_HAS_HOLES");
    }
    assert_non_null(strstr(error.message, "14675968")); /* 14 MiB - 4096 */
    assert_int_equal(allocated_bytes(fd), before);
    segment_unref(segment);
    device_destroy(device);
    free(ones);
    close(fd);
}

TEST(holes_are_filled_again)
{
    struct device *device = device_host_create(0);
    int fd = backed_memfd(8 * MIB);
    struct segment *segment;
    struct error error;
    assert_int_equal(device_adopt(device, 8 * MIB, region_of(fd, 0, NULL), &segment, &error), 0);
    assert_int_equal(device_prepare(segment, 0, 8 * MIB, &error), 0);
    assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 8 * (off_t)MIB), 0);
    memset(segment->host_address, 9, 8 * MIB);
    assert_int_equal(byte_at(fd, 8 * MIB - 1), 9);
    assert_int_equal(device_seal(segment, &error), 0);
    segment_unref(segment);
    device_destroy(device);
    close(fd);
}

TEST(what_was_sealed_since_it_was_looked_at_is_an_error)
{
    struct device *device = device_host_create(0);
    int fd = memfd(4096, F_SEAL_SHRINK);
    struct device_region *region = region_of(fd, 0, NULL);
    struct segment *segment;
    struct error error;
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), 0);
    assert_int_equal(device_adopt(device, 4096, region, &segment, &error), -1);
    device_destroy(device);
    close(fd);
}

static void assert_adopt_fails(struct device *device, uint64_t bytes, struct device_region *region, const char *reason)
{
    struct segment *segment;
    struct error error;
    assert_int_equal(device_adopt(device, bytes, region, &segment, &error), -1);
    assert_string_equal(error.reason, reason);
}

TEST(a_region_that_is_too_small_elsewhere_or_too_large_is_refused)
{
    struct device *device = device_host_create(0);
    int fd = memfd(4096, F_SEAL_SHRINK), larger = memfd(4 * TIB + 1, F_SEAL_SHRINK);
    struct device_region *gpu = region_of(fd, 0, NULL);
    gpu->kind = DEVICE_REGION_IPC;
    assert_adopt_fails(device, 4097, region_of(fd, 0, NULL), "REGION_TOO_SMALL");
    assert_adopt_fails(device, 4096, gpu, "REGION_ELSEWHERE");
    assert_adopt_fails(device, 4096, region_of(larger, 0, NULL), "REGION_TOO_LARGE");
    device_destroy(device);
    close(fd);
    close(larger);
}

static struct device_region *of_user(struct device_region *region, struct quota *quota, uid_t uid)
{
    region->descriptors.quota = quota;
    region->owner = uid;
    return region;
}

TEST(a_user_with_all_the_addresses_he_can_get_leaves_some_to_others_and_root)
{
    struct device *device = device_host_create(0);
    int large = memfd(4 * TIB, F_SEAL_SHRINK), small = memfd(4096, F_SEAL_SHRINK);
    struct quota *quota = quota_create();
    struct segment *segment, *all[15];
    struct error error;
#ifdef __SANITIZE_THREAD__
    skip(); /* leaves mappings less than 2 TiB of addresses */
#endif
    quota_set_limits(quota, QUOTA_LENT, HOST_REGIONS_MAX_BYTES, 0);
    for (size_t i = 0; i < 14; i++)
        assert_int_equal(device_adopt(device, 4096, of_user(region_of(large, 0, NULL), quota, 70001), &all[i], &error), 0);
    assert_adopt_fails(device, 4096, of_user(region_of(large, 0, NULL), quota, 70001), "TOO_MANY_REGIONS");
    assert_int_equal(device_adopt(device, 4096, of_user(region_of(small, 0, NULL), quota, 70002), &segment, &error), 0);
    segment_unref(segment);
    assert_int_equal(device_adopt(device, 4096, of_user(region_of(large, 0, NULL), quota, 0), &all[14], &error), 0);
    assert_adopt_fails(device, 4096, of_user(region_of(large, 0, NULL), quota, 0), "TOO_MANY_REGIONS");
    for (size_t i = 0; i < 15; i++)
        segment_unref(all[i]);
    assert_int_equal(device_adopt(device, 4096, of_user(region_of(large, 0, NULL), quota, 70001), &segment, &error), 0);
    segment_unref(segment);
    device_destroy(device);
    assert_int_equal(quota_taken(quota, QUOTA_LENT), 0);
    quota_destroy(quota);
    close(large);
    close(small);
}

TEST(a_user_with_all_the_loads_he_can_have_leaves_some_to_others)
{
    static struct segment *all[BUS_GUARD_MAX];
    struct device *device = device_host_create(0);
    int small = memfd(4096, F_SEAL_SHRINK);
    struct quota *quota = quota_create();
    struct segment *segment;
    struct rlimit files;
    struct error error;
    size_t n = 0;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    if (files.rlim_max < 2 * BUS_GUARD_MAX)
        skip();
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &(struct rlimit){files.rlim_max, files.rlim_max}), 0);
    quota_set_limits(quota, QUOTA_LENT, HOST_REGIONS_MAX_BYTES, 0);
    while (n < BUS_GUARD_MAX &&
           device_adopt(device, 4096, of_user(region_of(small, 0, NULL), quota, 70001), &all[n], &error) == 0)
        n++;
    assert_in_range(n, BUS_GUARD_MAX * 8 / 10, BUS_GUARD_MAX * 9 / 10);
    assert_int_equal(device_adopt(device, 4096, of_user(region_of(small, 0, NULL), quota, 70002), &segment, &error), 0);
    segment_unref(segment);
    while (n > 0)
        segment_unref(all[--n]);
    device_destroy(device);
    assert_int_equal(quota_taken(quota, QUOTA_LENT), 0);
    quota_destroy(quota);
    close(small);
}

TEST(reserved_huge_pages_are_taken_where_there_are_some)
{
    int fd = memfd_create("huge", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB | 21U << 26);
    struct device *device = device_host_create(0);
    struct segment *segment;
    struct error error;
    if (fd < 0 || ftruncate(fd, 2 * (off_t)MIB) || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK))
        skip();
    int result = device_adopt(device, 2 * MIB, region_of(fd, 0, NULL), &segment, &error);
    if (result == 0) {
        put(segment, 5, 77);
        assert_int_equal(device_page_kind(segment), PAGE_KIND_HUGETLB);
        segment_unref(segment);
    } else { /* none are reserved: an error before anything is touched, no signal later */
        assert_int_equal(error.code, ERROR_RESOURCE_EXHAUSTED);
    }
    device_destroy(device);
    close(fd);
}
