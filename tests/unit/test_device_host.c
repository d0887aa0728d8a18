/* Host memory: what a client gets it can read and nothing else, and no client ever sees another one's bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/shared_memory.h"
#include "device/device.h"
#include "device/huge_pages.h"
#include "tests/support/row_moves.h"

#include <cmocka.h> /* last: it makes a macro of fail */

#define MIB ((uint64_t)1 << 20)

static struct segment *allocate(struct device *device, uint64_t bytes)
{
    struct segment *segment = NULL;
    struct error error;
    assert_int_equal(device_allocate(device, bytes, &segment, &error), 0);
    assert_non_null(segment);
    return segment;
}

static void fill(struct segment *segment, int byte)
{
    struct error error;
    assert_int_equal(device_prepare(segment, 0, segment->allocated_bytes, &error), 0);
    memset(segment->host_address, byte, segment->allocated_bytes);
}

static int seal_and_export(struct segment *segment)
{
    struct error error;
    assert_int_equal(device_seal(segment, &error), 0);
    int fd = device_export_fd(segment, &error);
    assert_true(fd >= 0);
    return fd;
}

static bool is_all(const void *memory, uint64_t bytes, unsigned char byte)
{
    const unsigned char *at = memory;
    return bytes == 0 || (*at == byte && memcmp(at, at + 1, bytes - 1) == 0);
}

static void segments_are_aligned_rounded_and_zero(void **state)
{
    static const uint64_t sizes[][2] = {{0, 4096},
                                        {1, 4096},
                                        {4096, 4096},
                                        {4097, 8192},
                                        {2 * MIB - 1, 2 * MIB},
                                        {2 * MIB, 2 * MIB},
                                        {2 * MIB + 1, 4 * MIB},
                                        {9 * MIB, 10 * MIB}};
    struct device *device = device_host_create(0);
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct segment *segment = allocate(device, sizes[i][0]);
        assert_int_equal(segment->size_bytes, sizes[i][0]);
        assert_int_equal(segment->allocated_bytes, sizes[i][1]);
        assert_int_equal((uintptr_t)segment->host_address % HUGE_PAGE_BYTES, 0);
        assert_false(segment->dirty);
        assert_true(is_all(segment->host_address, segment->allocated_bytes, 0));
        segment_unref(segment);
    }
    device_destroy(device);
}

static void assert_refused(int result, int why)
{
    assert_int_equal(result, -1);
    if (why)
        assert_int_equal(errno, why);
}

static void attack_descriptor(int fd, uint64_t bytes, bool is_open_for_writing)
{
    assert_refused(write(fd, "x", 1) == 1 ? 0 : -1, is_open_for_writing ? 0 : EBADF);
    assert_refused(pwrite(fd, "x", 1, 0) == 1 ? 0 : -1, is_open_for_writing ? 0 : EBADF);
    assert_refused(ftruncate(fd, 0), 0);
    assert_refused(ftruncate(fd, (off_t)bytes * 2), 0);
    assert_refused(fallocate(fd, 0, 0, (off_t)bytes * 2), 0);
    assert_refused(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)bytes), 0);
    assert_refused(fcntl(fd, F_ADD_SEALS, 0), EPERM);
    assert_ptr_equal(mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
    void *memory = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    assert_refused(mprotect(memory, bytes, PROT_READ | PROT_WRITE), EACCES);
    munmap(memory, bytes);
    unsigned char *copy = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    assert_ptr_not_equal(copy, MAP_FAILED);
    copy[0] = 99; /* one's own page from here on */
    munmap(copy, bytes);
}

static void a_client_can_neither_write_nor_resize_by_any_path(void **state)
{
    static const uint64_t sizes[] = {100, 5 * MIB};
    struct device *device = device_host_create(64 * MIB);
    (void)state;
    for (int i = 0; i < 2; i++) {
        char path[64];
        struct segment *segment = allocate(device, sizes[i]);
        fill(segment, 7);
        int fd = seal_and_export(segment);
        assert_int_equal(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
        assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
        attack_descriptor(fd, segment->allocated_bytes, false);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        int reopened = open(path, O_RDWR);
        assert_true(reopened >= 0); /* root may; it does not help */
        attack_descriptor(reopened, segment->allocated_bytes, true);
        assert_refused(open(path, O_RDWR | O_TRUNC), 0);
        assert_true(is_all(segment->host_address, segment->allocated_bytes, 7));
        close(reopened);
        close(fd);
        segment_unref(segment);
    }
    device_destroy(device);
}

static void our_own_mapping_is_write_protected_once_sealed(void **state)
{
    struct device *device = device_host_create(0);
    struct segment *segment = allocate(device, 3 * MIB);
    (void)state;
    fill(segment, 1);
    close(seal_and_export(segment));
    pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        *(volatile char *)segment->host_address = 2;
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_false(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    segment_unref(segment);
    device_destroy(device);
}

struct reader {
    const struct segment *segment;
    bool stop, is_right;
    pthread_t thread;
};

static void *keep_reading(void *argument)
{
    struct reader *reader = argument;
    reader->is_right = true;
    while (!__atomic_load_n(&reader->stop, __ATOMIC_RELAXED))
        reader->is_right &= is_all(reader->segment->host_address, 4 * MIB, 3);
    return NULL;
}

/* The engine does this: it copies from a replica to another one while the first is published. */
static void memory_can_be_read_while_it_is_sealed(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        struct device *device = device_host_create(i % 2 ? 64 * MIB : 0);
        struct segment *segment = allocate(device, 4 * MIB);
        fill(segment, 3);
        struct reader reader = {.segment = segment};
        assert_int_equal(pthread_create(&reader.thread, NULL, keep_reading, &reader), 0);
        close(seal_and_export(segment));
        __atomic_store_n(&reader.stop, true, __ATOMIC_RELAXED);
        pthread_join(reader.thread, NULL);
        assert_true(reader.is_right);
        segment_unref(segment);
        device_destroy(device);
    }
}

static void two_exports_have_positions_of_their_own(void **state)
{
    struct device *device = device_host_create(0);
    struct segment *segment = allocate(device, 8192);
    struct error error;
    char byte;
    (void)state;
    int first = seal_and_export(segment), second = device_export_fd(segment, &error);
    assert_int_equal(lseek(first, 5000, SEEK_SET), 5000);
    assert_int_equal(lseek(second, 0, SEEK_CUR), 0);
    assert_int_equal(read(second, &byte, 1), 1);
    assert_int_equal(byte, 0);
    close(first);
    close(second);
    segment_unref(segment);
    device_destroy(device);
}

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
        struct segment *first = allocate(device, 128 * MIB), *second = allocate(device, 64 * MIB);
        fill(first, 0xAA);
        segment_unref(first); /* on another thread */
        segment_unref(second);
        struct segment *third = allocate(device, 128 * MIB);
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
        struct segment *segment = allocate(device, 39 * MIB); /* cut off the 64, then what was prepared for it */
        assert_int_equal(segment->allocated_bytes, 40 * MIB);
        assert_int_equal(segment->backed_bytes, 40 * MIB);
        assert_int_equal(device->pool_bytes, i ? 24 * MIB : 0);
        assert_false(segment->dirty);
        assert_true(is_all(segment->host_address, segment->allocated_bytes, 0));
        fill(segment, 0xBB);
        int fd = seal_and_export(segment);
        attack_descriptor(fd, segment->allocated_bytes, false);
        close(fd);
        segment_unref(segment);
        wait_for_prepared(device, 64 * MIB);
    }
    device_trim(device);
    assert_int_equal(device->pool_bytes, 0);
    usleep(20000);
    assert_int_equal(device->pool_bytes, 0); /* until the next load */
    segment_unref(allocate(device, 8 * MIB));
    wait_for_prepared(device, 64 * MIB);
    device_destroy(device);
}

static void more_than_is_prepared_begins_with_what_is(void **state)
{
    struct device *device = device_host_create(16 * MIB);
    (void)state;
    wait_for_prepared(device, 16 * MIB);
    struct segment *segment = allocate(device, 50 * MIB);
    assert_int_equal(segment->allocated_bytes, 50 * MIB);
    if (device_page_kind(segment) != PAGE_KIND_HUGETLB)
        assert_int_equal(segment->backed_bytes, 16 * MIB);
    assert_true(is_all(segment->host_address, segment->backed_bytes, 0));
    fill(segment, 0xCC);
    int fd = seal_and_export(segment);
    attack_descriptor(fd, segment->allocated_bytes, false);
    assert_true(is_all(segment->host_address, segment->allocated_bytes, 0xCC));
    close(fd);
    segment_unref(segment);
    segment = allocate(device, 256 * MIB); /* for which it is not worth it */
    assert_int_equal(segment->backed_bytes, 0);
    segment_unref(segment);
    device_destroy(device);
}

static void memory_that_is_still_being_prepared_can_be_taken_and_given_back(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        struct device *device = device_host_create(64 * MIB);
        segment_unref(allocate(device, 32 * MIB));
        usleep((useconds_t)(125 * i)); /* the thread is at another place each time */
        struct segment *taken = allocate(device, 32 * MIB);
        fill(taken, i);
        assert_true(is_all(taken->host_address, taken->allocated_bytes, (unsigned char)i));
        segment_unref(taken);
        device_destroy(device);
    }
}

static void nothing_is_prepared_while_a_load_fills_memory(void **state)
{
    struct device *device = device_host_create(64 * MIB);
    (void)state;
    wait_for_prepared(device, 64 * MIB);
    struct segment *filling = allocate(device, 40 * MIB);
    uint64_t left = device->pool_bytes;
    usleep(20000);
    assert_int_equal(device->pool_bytes, left);
    fill(filling, 1);
    close(seal_and_export(filling));
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
        struct segment *segment = allocate(device, 4 * MIB);
        fill(segment, 0x5A);
        int fd = seal_and_export(segment), reopened = -1, ends[2];
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
        struct segment *next = allocate(device, 4 * MIB);
        assert_int_equal(device->pool_bytes, 0);
        fill(next, 0x11);
        if (memory != MAP_FAILED) {
            assert_true(is_all(memory, 4 * MIB, 0x5A));
            munmap(memory, 4 * MIB);
        }
        if (holding == HOLD_SPLICED) {
            assert_int_equal(read(ends[0], received, SPLICED), SPLICED);
            assert_true(is_all(received, SPLICED, 0x5A));
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
    struct segment *segment = allocate(device, 4 * MIB);
    int ready[2], leave[2];
    char byte;
    (void)state;
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(leave), 0);
    fill(segment, 0x5A);
    int fd = seal_and_export(segment);
    pid_t child = fork(); /* inherits the descriptor, as a client gets it by SCM_RIGHTS */
    if (child == 0) {
        void *memory = mmap(NULL, 4 * MIB, PROT_READ, MAP_SHARED, fd, 0);
        close(fd);
        _exit(write(ready[1], "x", 1) != 1 || read(leave[0], &byte, 1) != 1 || !is_all(memory, 4 * MIB, 0x5A));
    }
    close(fd);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    segment_unref(segment);
    wait_for_prepared(device, 4 * MIB);
    struct segment *next = allocate(device, 4 * MIB);
    fill(next, 0x11);
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
        segments[i] = allocate(device, 8 * MIB);
    for (int i = 0; i < 3; i++)
        segment_unref(segments[i]);
    wait_for_prepared(device, 16 * MIB);
    for (int i = 0; i < 2; i++) {
        segments[i] = allocate(device, 8 * MIB);
        assert_int_equal(segments[i]->allocated_bytes, 8 * MIB);
        assert_int_equal(segments[i]->backed_bytes, 8 * MIB);
    }
    for (int i = 0; i < 2; i++)
        segment_unref(segments[i]);
    wait_for_prepared(device, 16 * MIB);
    device_destroy(device);
    device = device_host_create(0);
    segment_unref(allocate(device, 4 * MIB));
    wait_for_prepared(device, 0);
    device_destroy(device);
}

static void page_kind_is_what_the_kernel_says(void **state)
{
    struct device *device = device_host_create(0);
    (void)state;
    struct segment *segment = allocate(device, 16 * MIB), *small = allocate(device, 10000);
    fill(segment, 1);
    fill(small, 1);
    close(seal_and_export(segment));
    close(seal_and_export(small));
    assert_true(is_all(segment->host_address, 16 * MIB, 1)); /* maps the pages again */
    enum page_kind kind = device_page_kind(segment);
    if (kind != PAGE_KIND_HUGETLB)
        assert_int_equal(kind == PAGE_KIND_THP, huge_pages_count_slowly(segment->host_address) >= 15 * MIB);
    assert_int_equal(huge_pages_count(segment->host_address, 16 * MIB), huge_pages_count_slowly(segment->host_address));
    assert_int_equal(device_page_kind(small), PAGE_KIND_4K);
    assert_string_equal(page_kind_name(PAGE_KIND_HUGETLB), "hugetlb");
    assert_string_equal(page_kind_name(PAGE_KIND_THP), "thp");
    assert_string_equal(page_kind_name(PAGE_KIND_4K), "4k");
    segment_unref(segment);
    segment_unref(small);
    device_destroy(device);
}

struct filler {
    struct segment *segment;
    uint64_t first;
    pthread_t thread;
    int result;
};

enum { N_FILLERS = 6, STRIPE = 4096 };

/* Every filler owns every N_FILLERS-th stripe, so all of them meet in every chunk. */
static void *fill_stripes(void *argument)
{
    struct filler *filler = argument;
    struct error error;
    for (uint64_t at = filler->first * STRIPE; at < filler->segment->allocated_bytes; at += N_FILLERS * STRIPE) {
        filler->result |= device_prepare(filler->segment, at, STRIPE, &error);
        memset((char *)filler->segment->host_address + at, (int)filler->first + 1, STRIPE);
    }
    return NULL;
}

static void many_workers_prepare_one_segment_without_losing_bytes(void **state)
{
    struct device *device = device_host_create(0);
    struct segment *segment = allocate(device, 24 * MIB);
    struct filler fillers[N_FILLERS] = {{0}};
    (void)state;
    for (uint64_t i = 0; i < N_FILLERS; i++) {
        fillers[i] = (struct filler){.segment = segment, .first = i};
        assert_int_equal(pthread_create(&fillers[i].thread, NULL, fill_stripes, &fillers[i]), 0);
    }
    for (int i = 0; i < N_FILLERS; i++) {
        pthread_join(fillers[i].thread, NULL);
        assert_int_equal(fillers[i].result, 0);
    }
    for (uint64_t at = 0; at < segment->allocated_bytes; at += STRIPE)
        assert_true(is_all((char *)segment->host_address + at, STRIPE, (unsigned char)(at / STRIPE % N_FILLERS + 1)));
    segment_unref(segment);
    device_destroy(device);
}

/* Whoever reads for us maps it, and may never come back. */
static void memory_that_may_still_be_written_to_is_not_sealed(void **state)
{
    struct device *device = device_host_create(0);
    struct stat found;
    struct error error;
    int fds[2];
    void *mapped[2];
    (void)state;
    for (int is_told = 0; is_told < 2; is_told++) {
        struct segment *segment = allocate(device, 4 * MIB);
        struct shared_memory *shared = shared_memory_find(segment->host_address, 4 * MIB);
        fill(segment, 1);
        assert_non_null(shared);
        assert_null(shared_memory_find((char *)segment->host_address + 1, 4 * MIB));
        fds[is_told] = dup(shared->fd);
        mapped[is_told] = mmap(NULL, 2 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fds[is_told], 0);
        assert_true(mapped[is_told] != MAP_FAILED);
        if (is_told)
            shared_memory_lose(shared);
        assert_int_equal(device_seal(segment, &error), -1);
        if (is_told)
            assert_string_equal(error.reason, "READ_GIVEN_UP");
        segment_unref(segment);
        assert_null(shared_memory_find(segment, 1));
    }
    struct segment *segment = allocate(device, 4 * MIB);
    void *address = segment->host_address;
    fill(segment, 1);
    assert_int_equal(device_seal(segment, &error), 0);
    assert_null(shared_memory_find(address, 1)); /* nobody writes there any more */
    segment_unref(segment);
    device_destroy(device);
    assert_int_equal(fstat(fds[1], &found), 0);
    assert_int_equal(found.st_blocks, 0); /* it was given back although it is mapped, and cannot be again */
    assert_true(mmap(NULL, 2 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fds[1], 0) == MAP_FAILED);
    for (int i = 0; i < 2; i++) {
        munmap(mapped[i], 2 * MIB);
        close(fds[i]);
    }
}

static void assert_exhausted(struct device *device, uint64_t bytes)
{
    struct segment *segment = NULL;
    struct error error = {0};
    assert_int_equal(device_allocate(device, bytes, &segment, &error), -1);
    assert_int_equal(error.code, ERROR_RESOURCE_EXHAUSTED);
    assert_true(error.message[0]);
    assert_null(segment);
}

static void want_of_anything_is_resource_exhausted(void **state)
{
    struct device *device = device_host_create(0);
    struct rlimit files, none;
    (void)state;
    assert_exhausted(device, UINT64_MAX);
    assert_exhausted(device, (uint64_t)1 << 62);
    assert_exhausted(device, (uint64_t)1 << 50); /* more than the address space has */
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    none = (struct rlimit){0, files.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    assert_exhausted(device, 4 * MIB);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
    segment_unref(allocate(device, 4 * MIB));
    device_destroy(device);
}

static void ranges_outside_a_segment_are_refused(void **state)
{
    struct device *device = device_host_create(0);
    struct segment *segment = allocate(device, 4096);
    struct error error;
    (void)state;
    assert_int_equal(device_copy(segment, 0, "abc", &(struct device_rows){3, 1, 3, 3}, &error), 0);
    assert_memory_equal(segment->host_address, "abc", 3);
    assert_int_equal(device_copy(segment, 1, "12-34-", &(struct device_rows){2, 2, 3, 2}, &error), 0);
    assert_memory_equal(segment->host_address, "a1234", 5);
    assert_int_equal(device_copy(segment, 4094, "abc", &(struct device_rows){3, 1, 3, 3}, &error), -1);
    assert_int_equal(error.code, ERROR_INTERNAL);
    assert_int_equal(device_prepare(segment, UINT64_MAX, 2, &error), -1);
    assert_int_equal(device_prepare(segment, 4096, 0, &error), 0);
    segment_unref(NULL);
    segment_unref(segment_ref(segment));
    segment_unref(segment);
    device_destroy(device);
    device_destroy(NULL);
}

static void rows_that_have_no_extent_are_refused(void **state)
{
    static const struct device_rows bad[] = {
        {2, 2, 2, 1}, {2, UINT64_MAX, 2, 2}, {2, 3, 2, UINT64_MAX / 2}, {3, 2, 3, 4094}};
    struct device *device = device_host_create(0);
    struct segment *segment = allocate(device, 4096);
    struct error error;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(device_copy(segment, 0, "abcdef", &bad[i], &error), -1);
        assert_string_equal(error.reason, "SEGMENT_BOUNDS");
    }
    assert_int_equal(device_copy(segment, 0, "abcdef", &(struct device_rows){3, 2, 3, 4093}, &error), 0);
    assert_memory_equal((char *)segment->host_address + 4093, "def", 3);
    segment_unref(segment);
    device_destroy(device);
}

static void rows_go_where_both_strides_say_and_nowhere_else(void **state)
{
    struct device *device = device_host_create(0);
    struct segment *segment = allocate(device, ROW_MOVES_BYTES);
    unsigned char *model = calloc(1, ROW_MOVES_BYTES);
    struct row_moves moves;
    struct row_move move;
    struct error error;
    (void)state;
    row_moves_init(&moves);
    while (row_moves_next(&moves, &move)) {
        assert_int_equal(device_copy(segment, move.offset, moves.source + move.src_offset, &move.rows, &error), 0);
        row_move_by_bytes(&moves, &move, model);
    }
    assert_memory_equal(segment->host_address, model, ROW_MOVES_BYTES);
    row_moves_fini(&moves);
    free(model);
    segment_unref(segment);
    device_destroy(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(segments_are_aligned_rounded_and_zero),
        cmocka_unit_test(a_client_can_neither_write_nor_resize_by_any_path),
        cmocka_unit_test(our_own_mapping_is_write_protected_once_sealed),
        cmocka_unit_test(memory_can_be_read_while_it_is_sealed),
        cmocka_unit_test(two_exports_have_positions_of_their_own),
        cmocka_unit_test(memory_is_prepared_before_the_first_load_and_again_after_it),
        cmocka_unit_test(more_than_is_prepared_begins_with_what_is),
        cmocka_unit_test(memory_that_is_still_being_prepared_can_be_taken_and_given_back),
        cmocka_unit_test(nothing_is_prepared_while_a_load_fills_memory),
        cmocka_unit_test(memory_that_somebody_may_still_read_is_not_used_again),
        cmocka_unit_test(memory_that_another_process_has_is_not_used_again),
        cmocka_unit_test(new_memory_gets_no_page_before_what_was_given_back_is_gone),
        cmocka_unit_test(the_pool_keeps_its_budget_and_wastes_nothing),
        cmocka_unit_test(page_kind_is_what_the_kernel_says),
        cmocka_unit_test(many_workers_prepare_one_segment_without_losing_bytes),
        cmocka_unit_test(memory_that_may_still_be_written_to_is_not_sealed),
        cmocka_unit_test(want_of_anything_is_resource_exhausted),
        cmocka_unit_test(ranges_outside_a_segment_are_refused),
        cmocka_unit_test(rows_that_have_no_extent_are_refused),
        cmocka_unit_test(rows_go_where_both_strides_say_and_nowhere_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
