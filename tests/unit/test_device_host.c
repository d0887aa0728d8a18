/* Host memory: what a client gets it can read and nothing else, and no client ever sees another one's bytes. */
#include "tests/support/unit.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/device.h"
#include "base/huge_pages.h"
#include "tests/support/host_segments.h"
#include "tests/support/row_moves.h"

TEST(segments_are_aligned_rounded_and_zero)
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
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct segment *segment = host_segment_allocate(device, sizes[i][0]);
        assert_int_equal(segment->size_bytes, sizes[i][0]);
        assert_int_equal(segment->allocated_bytes, sizes[i][1]);
        assert_int_equal((uintptr_t)segment->host_address % HUGE_PAGE_BYTES, 0);
        assert_false(segment->dirty);
        assert_true(host_segment_is_all(segment->host_address, segment->allocated_bytes, 0));
        segment_unref(segment);
    }
    device_destroy(device);
}

TEST(a_client_can_neither_write_nor_resize_by_any_path)
{
    static const uint64_t sizes[] = {100, 5 * MIB};
    struct device *device = device_host_create(64 * MIB);
    for (int i = 0; i < 2; i++) {
        char path[64];
        struct segment *segment = host_segment_allocate(device, sizes[i]);
        host_segment_fill(segment, 7);
        int fd = host_segment_export(segment);
        assert_int_equal(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
        assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
        host_segment_attack(fd, segment->allocated_bytes, false);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        int reopened = open(path, O_RDWR);
        assert_true(reopened >= 0); /* root may; it does not help */
        host_segment_attack(reopened, segment->allocated_bytes, true);
        host_segment_assert_refused(open(path, O_RDWR | O_TRUNC), 0);
        assert_true(host_segment_is_all(segment->host_address, segment->allocated_bytes, 7));
        close(reopened);
        close(fd);
        segment_unref(segment);
    }
    device_destroy(device);
}

TEST(our_own_mapping_is_write_protected_once_sealed)
{
    struct device *device = device_host_create(0);
    struct segment *segment = host_segment_allocate(device, 3 * MIB);
    host_segment_fill(segment, 1);
    close(host_segment_export(segment));
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
        reader->is_right &= host_segment_is_all(reader->segment->host_address, 4 * MIB, 3);
    return NULL;
}

/* The engine does this: it copies from a replica to another one while the first is published. */
TEST(memory_can_be_read_while_it_is_sealed)
{
    for (int i = 0; i < 20; i++) {
        struct device *device = device_host_create(i % 2 ? 64 * MIB : 0);
        struct segment *segment = host_segment_allocate(device, 4 * MIB);
        host_segment_fill(segment, 3);
        struct reader reader = {.segment = segment};
        assert_int_equal(pthread_create(&reader.thread, NULL, keep_reading, &reader), 0);
        close(host_segment_export(segment));
        __atomic_store_n(&reader.stop, true, __ATOMIC_RELAXED);
        pthread_join(reader.thread, NULL);
        assert_true(reader.is_right);
        segment_unref(segment);
        device_destroy(device);
    }
}

TEST(two_exports_have_positions_of_their_own)
{
    struct device *device = device_host_create(0);
    struct segment *segment = host_segment_allocate(device, 8192);
    struct error error;
    char byte;
    int first = host_segment_export(segment), second = device_export_fd(segment, &error);
    assert_int_equal(lseek(first, 5000, SEEK_SET), 5000);
    assert_int_equal(lseek(second, 0, SEEK_CUR), 0);
    assert_int_equal(read(second, &byte, 1), 1);
    assert_int_equal(byte, 0);
    close(first);
    close(second);
    segment_unref(segment);
    device_destroy(device);
}

TEST(page_kind_is_what_the_kernel_says)
{
    struct device *device = device_host_create(0);
    struct segment *segment = host_segment_allocate(device, 16 * MIB), *small = host_segment_allocate(device, 10000);
    host_segment_fill(segment, 1);
    host_segment_fill(small, 1);
    close(host_segment_export(segment));
    close(host_segment_export(small));
    assert_true(host_segment_is_all(segment->host_address, 16 * MIB, 1)); /* maps the pages again */
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

TEST(many_workers_prepare_one_segment_without_losing_bytes)
{
    struct device *device = device_host_create(0);
    struct segment *segment = host_segment_allocate(device, 24 * MIB);
    struct filler fillers[N_FILLERS] = {{0}};
    for (uint64_t i = 0; i < N_FILLERS; i++) {
        fillers[i] = (struct filler){.segment = segment, .first = i};
        assert_int_equal(pthread_create(&fillers[i].thread, NULL, fill_stripes, &fillers[i]), 0);
    }
    for (int i = 0; i < N_FILLERS; i++) {
        pthread_join(fillers[i].thread, NULL);
        assert_int_equal(fillers[i].result, 0);
    }
    for (uint64_t at = 0; at < segment->allocated_bytes; at += STRIPE)
        assert_true(
            host_segment_is_all((char *)segment->host_address + at, STRIPE, (unsigned char)(at / STRIPE % N_FILLERS + 1)));
    segment_unref(segment);
    device_destroy(device);
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

TEST(want_of_anything_is_resource_exhausted)
{
    struct device *device = device_host_create(0);
    struct rlimit files, none;
    assert_exhausted(device, UINT64_MAX);
    assert_exhausted(device, (uint64_t)1 << 62);
    assert_exhausted(device, (uint64_t)1 << 50); /* more than the address space has */
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    none = (struct rlimit){0, files.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    assert_exhausted(device, 4 * MIB);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
    segment_unref(host_segment_allocate(device, 4 * MIB));
    device_destroy(device);
}

TEST(ranges_outside_a_segment_are_refused)
{
    struct device *device = device_host_create(0);
    struct segment *segment = host_segment_allocate(device, 4096);
    struct error error;
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

TEST(rows_that_have_no_extent_are_refused)
{
    static const struct device_rows bad[] = {
        {2, 2, 2, 1}, {2, UINT64_MAX, 2, 2}, {2, 3, 2, UINT64_MAX / 2}, {3, 2, 3, 4094}};
    struct device *device = device_host_create(0);
    struct segment *segment = host_segment_allocate(device, 4096);
    struct error error;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(device_copy(segment, 0, "abcdef", &bad[i], &error), -1);
        assert_string_equal(error.reason, "SEGMENT_BOUNDS");
    }
    assert_int_equal(device_copy(segment, 0, "abcdef", &(struct device_rows){3, 2, 3, 4093}, &error), 0);
    assert_memory_equal((char *)segment->host_address + 4093, "def", 3);
    segment_unref(segment);
    device_destroy(device);
}

TEST(rows_go_where_both_strides_say_and_nowhere_else)
{
    struct device *device = device_host_create(0);
    struct segment *segment = host_segment_allocate(device, ROW_MOVES_BYTES);
    unsigned char *model = calloc(1, ROW_MOVES_BYTES);
    struct row_moves moves;
    struct row_move move;
    struct error error;
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
