/* Memory that is prepared for the next load, or was given back by one: it is not used while somebody may still read
 * it, and costs what was agreed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/device.h"
#include "tests/support/host_segments.h"

#include <cmocka.h> /* last: it makes a macro of fail */

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

static void new_memory_gets_no_page_before_what_was_given_back_is_gone(void **state)
{
    struct device *device = device_host_create(0);
    struct error error;
    (void)state;
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

static void memory_is_prepared_before_the_first_load_and_again_after_it(void **state)
{
    struct device *device = device_host_create(64 * MIB);
    (void)state;
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

static void more_than_is_prepared_begins_with_what_is(void **state)
{
    struct device *device = device_host_create(16 * MIB);
    (void)state;
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

static void memory_that_is_still_being_prepared_can_be_taken_and_given_back(void **state)
{
    (void)state;
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

static void nothing_is_prepared_while_a_load_fills_memory(void **state)
{
    struct device *device = device_host_create(64 * MIB);
    (void)state;
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

static void memory_that_somebody_may_still_read_is_not_used_again(void **state)
{
    enum { SPLICED = 32 << 10 };
    static unsigned char received[SPLICED];
    (void)state;
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

static void memory_that_another_process_has_is_not_used_again(void **state)
{
    struct device *device = device_host_create(4 * MIB);
    struct segment *segment = host_segment_allocate(device, 4 * MIB);
    int ready[2], leave[2];
    char byte;
    (void)state;
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

static void the_pool_keeps_its_budget_and_wastes_nothing(void **state)
{
    struct device *device = device_host_create(17 * MIB);
    struct segment *segments[3];
    (void)state;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_prepared_before_the_first_load_and_again_after_it),
        cmocka_unit_test(more_than_is_prepared_begins_with_what_is),
        cmocka_unit_test(memory_that_is_still_being_prepared_can_be_taken_and_given_back),
        cmocka_unit_test(nothing_is_prepared_while_a_load_fills_memory),
        cmocka_unit_test(memory_that_somebody_may_still_read_is_not_used_again),
        cmocka_unit_test(memory_that_another_process_has_is_not_used_again),
        cmocka_unit_test(new_memory_gets_no_page_before_what_was_given_back_is_gone),
        cmocka_unit_test(the_pool_keeps_its_budget_and_wastes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
