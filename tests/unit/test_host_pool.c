/* Memory that is prepared for the next load, or was given back by one: it is not used while a process may still read
 * it, and costs what was agreed. */
#include "tests/support/unit.h"

#include "base/huge_pages.h"
#include "device/device.h"
#include "device/host_pool.h"
#include "tests/support/host_segments.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* Until the pool's thread has prepared so much. */
static void wait_for_prepared(const struct device *device, uint64_t bytes)
{
    for (int i = 0; i < 60000 && __atomic_load_n(&device->pool_bytes, __ATOMIC_RELAXED) != bytes; i++)
        usleep(1000);
    assert_int_equal(__atomic_load_n(&device->pool_bytes, __ATOMIC_RELAXED), bytes);
}

/* Of this process's memfds, those that hold a replica's memory. */
static size_t count_memories(void)
{
    size_t count = 0;
    for (int fd = 0; fd < 1024; fd++) {
        char path[32], name[64] = "";
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        count += readlink(path, name, sizeof name - 1) > 0 && strstr(name, "tensorcast-replica");
    }
    return count;
}

TEST(new_memory_gets_no_page_before_what_was_given_back_is_gone)
{
    struct device *device = device_host_create(0);
    struct error error;
    size_t before = count_memories();
    for (int i = 0; i < 3; i++) {
        struct segment *first = host_segment_allocate(device, 128 * MIB), *second = host_segment_allocate(device, 64 * MIB);
        host_segment_fill(first, 0xAA);
        segment_unref(first); /* on another thread */
        segment_unref(second);
        struct segment *third = host_segment_allocate(device, 128 * MIB);
        assert_int_equal(device_prepare(third, 0, MIB, &error), 0);
        assert_int_equal(count_memories(), before + 1);
        segment_unref(third);
    }
    device_destroy(device);
    assert_int_equal(count_memories(), before);
}

TEST(memory_is_prepared_before_the_first_load_and_again_after_it)
{
    struct device *device = device_host_create(64 * MIB);
    wait_for_prepared(device, 64 * MIB);
    for (int i = 0; i < 2; i++) {
        struct segment *segment =
            host_segment_allocate(device, 39 * MIB); /* cut off the 64, then what was prepared for it */
        assert_int_equal(segment->allocated_bytes, 40 * MIB);
        assert_int_equal(segment->backed_bytes, 40 * MIB);
        assert_int_equal(device->pool_bytes, i ? 24 * MIB : 0);
        assert_false(segment->dirty);
        assert_true(host_segment_is_all(segment->host_address, segment->allocated_bytes, 0));
        host_segment_fill(segment, 0xBB);
        int fd = host_segment_export(segment);
        host_segment_attack(fd, segment->allocated_bytes, false);
        close(fd);
        segment_unref(segment);
        wait_for_prepared(device, 64 * MIB);
    }
    device_trim(device);
    assert_int_equal(device->pool_bytes, 0);
    usleep(20000);
    assert_int_equal(device->pool_bytes, 0); /* until the next load */
    segment_unref(host_segment_allocate(device, 8 * MIB));
    wait_for_prepared(device, 64 * MIB);
    device_destroy(device);
}

TEST(more_than_is_prepared_begins_with_what_is)
{
    struct device *device = device_host_create(16 * MIB);
    wait_for_prepared(device, 16 * MIB);
    struct segment *segment = host_segment_allocate(device, 50 * MIB);
    assert_int_equal(segment->allocated_bytes, 50 * MIB);
    if (device_page_kind(segment) != PAGE_KIND_HUGETLB)
        assert_int_equal(segment->backed_bytes, 16 * MIB);
    assert_true(host_segment_is_all(segment->host_address, segment->backed_bytes, 0));
    host_segment_fill(segment, 0xCC);
    int fd = host_segment_export(segment);
    host_segment_attack(fd, segment->allocated_bytes, false);
    assert_true(host_segment_is_all(segment->host_address, segment->allocated_bytes, 0xCC));
    close(fd);
    segment_unref(segment);
    segment = host_segment_allocate(device, 256 * MIB); /* for which it is not worth it */
    assert_int_equal(segment->backed_bytes, 0);
    segment_unref(segment);
    device_destroy(device);
}

TEST(memory_that_is_still_being_prepared_can_be_taken_and_given_back)
{
    for (int i = 0; i < 20; i++) {
        struct device *device = device_host_create(64 * MIB);
        segment_unref(host_segment_allocate(device, 32 * MIB));
        usleep((useconds_t)(125 * i)); /* the thread is at another place each time */
        struct segment *taken = host_segment_allocate(device, 32 * MIB);
        host_segment_fill(taken, i);
        assert_true(host_segment_is_all(taken->host_address, taken->allocated_bytes, (unsigned char)i));
        segment_unref(taken);
        device_destroy(device);
    }
}

TEST(nothing_is_prepared_while_a_load_fills_memory)
{
    struct device *device = device_host_create(64 * MIB);
    wait_for_prepared(device, 64 * MIB);
    struct segment *filling = host_segment_allocate(device, 40 * MIB);
    uint64_t left = device->pool_bytes;
    usleep(20000);
    assert_int_equal(device->pool_bytes, left);
    host_segment_fill(filling, 1);
    close(host_segment_export(filling));
    wait_for_prepared(device, 64 * MIB);
    segment_unref(filling);
    device_destroy(device);
}

enum holding { HOLD_DESCRIPTOR, HOLD_MAPPING, HOLD_REOPENED, HOLD_PRIVATE_MAPPING, HOLD_SPLICED };

/* Pages in a pipe have neither descriptor nor mapping. */
static void splice_some(int fd, int pipe_end, size_t bytes)
{
    off64_t at = 0;
    assert_int_equal(splice(fd, &at, pipe_end, NULL, bytes, 0), bytes);
}

TEST(memory_that_a_process_may_still_read_is_not_used_again)
{
    enum { SPLICED = 32 << 10 };
    static unsigned char received[SPLICED];
    for (enum holding holding = HOLD_DESCRIPTOR; holding <= HOLD_SPLICED; holding++) {
        struct device *device = device_host_create(4 * MIB);
        struct segment *segment = host_segment_allocate(device, 4 * MIB);
        host_segment_fill(segment, 0x5A);
        int fd = host_segment_export(segment), reopened = -1, ends[2];
        void *memory = MAP_FAILED;
        char path[64];
        assert_int_equal(pipe(ends), 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        if (holding == HOLD_MAPPING || holding == HOLD_PRIVATE_MAPPING)
            memory = mmap(NULL, 4 * MIB, PROT_READ, holding == HOLD_MAPPING ? MAP_SHARED : MAP_PRIVATE, fd, 0);
        if (holding == HOLD_REOPENED)
            reopened = open(path, O_RDWR);
        if (holding == HOLD_SPLICED)
            splice_some(fd, ends[1], SPLICED);
        if (holding != HOLD_DESCRIPTOR)
            close(fd);
        segment_unref(segment);
        wait_for_prepared(device, 4 * MIB);
        struct segment *next = host_segment_allocate(device, 4 * MIB);
        assert_int_equal(device->pool_bytes, 0);
        host_segment_fill(next, 0x11);
        if (memory != MAP_FAILED) {
            assert_true(host_segment_is_all(memory, 4 * MIB, 0x5A));
            munmap(memory, 4 * MIB);
        }
        if (holding == HOLD_SPLICED) {
            assert_int_equal(read(ends[0], received, SPLICED), SPLICED);
            assert_true(host_segment_is_all(received, SPLICED, 0x5A));
        }
        segment_unref(next);
        if (reopened >= 0)
            close(reopened);
        if (holding == HOLD_DESCRIPTOR)
            close(fd);
        close(ends[0]);
        close(ends[1]);
        device_destroy(device);
    }
}

TEST(memory_that_another_process_has_is_not_used_again)
{
    struct device *device = device_host_create(4 * MIB);
    struct segment *segment = host_segment_allocate(device, 4 * MIB);
    int ready[2], leave[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(leave), 0);
    host_segment_fill(segment, 0x5A);
    int fd = host_segment_export(segment);
    pid_t child = fork(); /* inherits the descriptor, as a client gets it by SCM_RIGHTS */
    if (child == 0) {
        void *memory = mmap(NULL, 4 * MIB, PROT_READ, MAP_SHARED, fd, 0);
        close(fd);
        _exit(write(ready[1], "x", 1) != 1 || read(leave[0], &byte, 1) != 1 || !host_segment_is_all(memory, 4 * MIB, 0x5A));
    }
    close(fd);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    segment_unref(segment);
    wait_for_prepared(device, 4 * MIB);
    struct segment *next = host_segment_allocate(device, 4 * MIB);
    host_segment_fill(next, 0x11);
    assert_int_equal(write(leave[1], "x", 1), 1);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    segment_unref(next);
    for (int i = 0; i < 2; i++) {
        close(ready[i]);
        close(leave[i]);
    }
    device_destroy(device);
}

TEST(the_pool_keeps_its_budget_and_wastes_nothing)
{
    struct device *device = device_host_create(17 * MIB);
    struct segment *segments[3];
    wait_for_prepared(device, 16 * MIB);
    for (int i = 0; i < 3; i++)
        segments[i] = host_segment_allocate(device, 8 * MIB);
    for (int i = 0; i < 3; i++)
        segment_unref(segments[i]);
    wait_for_prepared(device, 16 * MIB);
    for (int i = 0; i < 2; i++) {
        segments[i] = host_segment_allocate(device, 8 * MIB);
        assert_int_equal(segments[i]->allocated_bytes, 8 * MIB);
        assert_int_equal(segments[i]->backed_bytes, 8 * MIB);
    }
    for (int i = 0; i < 2; i++)
        segment_unref(segments[i]);
    wait_for_prepared(device, 16 * MIB);
    device_destroy(device);
    device = device_host_create(0);
    segment_unref(host_segment_allocate(device, 4 * MIB));
    wait_for_prepared(device, 0);
    device_destroy(device);
}

TEST(nothing_is_known_at_first_so_the_budget_is_halved_and_halved)
{
    const struct pool_recent none = {.n = 0};
    const uint64_t expected[] = {512 * MIB, 256 * MIB, 128 * MIB, 64 * MIB, 64 * MIB};
    uint64_t sizes[POOL_SIZES];
    assert_int_equal(pool_sizes_choose(&none, 1024 * MIB + 4097, sizes), 5);
    assert_memory_equal(sizes, expected, sizeof expected);
    assert_int_equal(pool_sizes_choose(&none, HUGE_PAGE_BYTES - 1, sizes), 0);
    assert_int_equal(pool_sizes_choose(&none, 100 * MIB, sizes), 1);
    assert_int_equal(sizes[0], 100 * MIB);
}

TEST(what_loads_asked_for_comes_first_as_often_as_they_did)
{
    struct pool_recent recent = {.n = 0};
    const uint64_t expected[] = {100 * MIB, 300 * MIB, 300 * MIB, 150 * MIB, 74 * MIB, 76 * MIB};
    uint64_t sizes[POOL_SIZES];
    pool_recent_add(&recent, 300 * MIB);
    pool_recent_add(&recent, 5000 * MIB); /* larger than the budget */
    pool_recent_add(&recent, 300 * MIB);
    pool_recent_add(&recent, 100 * MIB);
    size_t n = pool_sizes_choose(&recent, 1000 * MIB, sizes);
    assert_int_equal(n, 6);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(sizes[i] / (2 * MIB), expected[i] / (2 * MIB));
}

TEST(the_last_thirty_two_count_and_no_budget_is_exceeded)
{
    struct pool_recent recent = {.n = 0};
    uint64_t sizes[POOL_SIZES];
    for (uint64_t i = 1; i <= 100; i++)
        pool_recent_add(&recent, i * HUGE_PAGE_BYTES);
    assert_int_equal(recent.n, POOL_RECENT);
    assert_int_equal(recent.sizes[0], 100 * (uint64_t)HUGE_PAGE_BYTES);
    assert_int_equal(recent.sizes[POOL_RECENT - 1], 69 * (uint64_t)HUGE_PAGE_BYTES);
    for (uint64_t budget = 0; budget < 64; budget++) {
        uint64_t limit = ((uint64_t)1 << budget) + budget * 4096, sum = 0;
        size_t n = pool_sizes_choose(&recent, limit, sizes);
        assert_true(n <= POOL_SIZES);
        for (size_t i = 0; i < n; i++) {
            assert_int_equal(sizes[i] % HUGE_PAGE_BYTES, 0);
            sum += sizes[i];
        }
        assert_int_equal(sum, limit / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES);
    }
}

TEST(what_is_a_little_larger_is_kept_instead)
{
    assert_true(pool_size_is_met(100 * MIB, 100 * MIB));
    assert_true(pool_size_is_met(100 * MIB, 125 * MIB));
    assert_false(pool_size_is_met(100 * MIB, 126 * MIB));
    assert_false(pool_size_is_met(100 * MIB, 98 * MIB));
}

TEST(memory_is_cut_by_half_at_most_and_grown_eightfold_at_most)
{
    assert_int_equal(pool_size_gain(10 * MIB, 20 * MIB, 20 * MIB, false), 10 * MIB);
    assert_int_equal(pool_size_gain(10 * MIB, 20 * MIB, 4 * MIB, false), 4 * MIB);
    assert_int_equal(pool_size_gain(10 * MIB, 22 * MIB, 22 * MIB, true), 0);
    assert_int_equal(pool_size_gain(80 * MIB, 20 * MIB, 10 * MIB, true), 10 * MIB);
    assert_int_equal(pool_size_gain(80 * MIB, 20 * MIB, 8 * MIB, true), 0);
    assert_int_equal(pool_size_gain(80 * MIB, 20 * MIB, 20 * MIB, false), 0);
}
