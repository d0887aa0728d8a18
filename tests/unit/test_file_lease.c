/* Leases on real files: what the kernel refuses, and that a writer never waits for us. */
#include "tests/support/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "source/disk/file_lease.h"

enum { FILE_BYTES = 4096, N_LEASES = 64 };
/* fs.lease-break-time is 45 s: a writer that only the kernel lets in waits that long */
#define NOTICEABLE_NS ((uint64_t)10000 * NS_PER_MS)

static char path[64];

static int create(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "/tmp/test_file_lease.XXXXXX");
    int fd = mkstemp(path);
    return fd < 0 || ftruncate(fd, FILE_BYTES) < 0 || close(fd) < 0;
}

static int delete (void **state)
{
    (void)state;
    return unlink(path);
}

static int open_file(int flags)
{
    int fd = open(path, flags | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static struct file_lease *take(int fd)
{
    struct file_lease *lease = file_lease_take(fd);
    if (!lease && errno == EINVAL)
        skip(); /* not on this file system */
    assert_non_null(lease);
    return lease;
}

static void let_go(struct file_lease *lease, int fd)
{
    file_lease_drop(lease);
    close(fd);
}

static void open_to_write_and_close(void)
{
    uint64_t start = clock_now_ns();
    close(open_file(O_WRONLY));
    assert_true(clock_now_ns() - start < NOTICEABLE_NS);
}

TEST_IN(a_file_that_is_open_for_writing_is_refused, create, delete)
{
    int writer = open_file(O_RDWR), fd = open_file(O_RDONLY);
    assert_null(file_lease_take(fd));
    assert_int_equal(errno, EAGAIN);
    close(writer);
    let_go(take(fd), fd);
}

TEST_IN(a_file_that_is_mapped_writable_is_refused, create, delete)
{
    int writer = open_file(O_RDWR), fd = open_file(O_RDONLY);
    void *mapping = mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, writer, 0);
    close(writer);
    assert_null(file_lease_take(fd));
    assert_int_equal(errno, EAGAIN);
    munmap(mapping, FILE_BYTES);
    let_go(take(fd), fd);
}

TEST_IN(readers_and_private_mappings_do_not_matter, create, delete)
{
    int reader = open_file(O_RDONLY), fd = open_file(O_RDONLY);
    void *mapping = mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE, reader, 0);
    struct file_lease *lease = take(fd);
    *(volatile char *)mapping = 1;
    close(open_file(O_RDONLY));
    assert_true(file_lease_is_held(lease));
    let_go(lease, fd);
    munmap(mapping, FILE_BYTES);
    close(reader);
}

TEST_IN(who_opens_the_file_for_writing_gets_it_and_the_lease_is_lost_for_good, create, delete)
{
    int fd = open_file(O_RDONLY);
    struct file_lease *lease = take(fd);
    assert_true(file_lease_is_held(lease));
    open_to_write_and_close();
    assert_false(file_lease_is_held(lease));
    int again = open_file(O_RDONLY);
    let_go(take(again), again);
    assert_false(file_lease_is_held(lease));
    let_go(lease, fd);
}

/* touch does that. */
TEST_IN(who_does_not_wait_for_a_lease_is_in_nobodys_way_when_the_next_one_is_taken, create, delete)
{
    for (int i = 0; i < 500; i++) {
        int fd = open_file(O_RDONLY), again = open_file(O_RDONLY);
        struct file_lease *lease = take(fd);
        struct stat info;
        assert_int_equal(fstat(fd, &info), 0);
        file_lease_span(lease, info.st_dev, info.st_ino, true);
        assert_int_equal(open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC), -1);
        assert_int_equal(errno, EWOULDBLOCK);
        struct file_lease *next = take(again); /* whether the thread has answered or not */
        assert_true(file_lease_is_held(next));
        assert_false(file_lease_is_held(lease));
        let_go(next, again);
        let_go(lease, fd);
    }
}

TEST_IN(truncating_by_name_breaks_a_lease_and_renaming_does_not, create, delete)
{
    char other[80];
    int fd = open_file(O_RDONLY);
    struct file_lease *lease = take(fd);
    snprintf(other, sizeof other, "%s.renamed", path);
    assert_int_equal(rename(path, other), 0);
    assert_int_equal(rename(other, path), 0);
    assert_true(file_lease_is_held(lease));
    assert_int_equal(truncate(path, FILE_BYTES), 0);
    assert_false(file_lease_is_held(lease));
    let_go(lease, fd);
}

static void hold_many(struct file_lease **leases, int *fds)
{
    for (int i = 0; i < N_LEASES; i++) {
        fds[i] = open_file(O_RDONLY);
        leases[i] = take(fds[i]);
    }
}

static void expect_all_lost(struct file_lease **leases, const int *fds)
{
    for (int i = 0; i < N_LEASES; i++) {
        assert_false(file_lease_is_held(leases[i]));
        let_go(leases[i], fds[i]);
    }
}

TEST_IN(all_leases_on_a_file_are_given_up_at_once, create, delete)
{
    struct file_lease *leases[N_LEASES];
    int fds[N_LEASES];
    struct stat status;
    hold_many(leases, fds);
    fstat(fds[0], &status);
    for (int i = 0; i < N_LEASES; i++)
        file_lease_span(leases[i], status.st_dev, status.st_ino, true);
    open_to_write_and_close();
    expect_all_lost(leases, fds);
}

/* Then the kernel sends SIGIO, which does not say which lease it is about. */
TEST_IN(a_queue_without_room_for_signals_delays_nobody, create, delete)
{
    struct rlimit before, none;
    struct file_lease *leases[N_LEASES];
    int fds[N_LEASES];
    hold_many(leases, fds);
    assert_int_equal(getrlimit(RLIMIT_SIGPENDING, &before), 0);
    none = (struct rlimit){0, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_SIGPENDING, &none), 0);
    open_to_write_and_close();
    assert_int_equal(setrlimit(RLIMIT_SIGPENDING, &before), 0);
    expect_all_lost(leases, fds);
}

TEST_IN(other_files_keep_their_leases, create, delete)
{
    char other[] = "/tmp/test_file_lease.XXXXXX";
    int writer = mkstemp(other), fd = open_file(O_RDONLY);
    close(writer);
    int kept_fd = open(other, O_RDONLY | O_CLOEXEC);
    struct file_lease *lease = take(fd), *kept = take(kept_fd);
    open_to_write_and_close();
    assert_false(file_lease_is_held(lease));
    assert_true(file_lease_is_held(kept));
    let_go(lease, fd);
    let_go(kept, kept_fd);
    unlink(other);
}

struct writer {
    pthread_t thread;
    bool is_done; /* atomic */
};

static void *open_to_write(void *data)
{
    struct writer *writer = data;
    close(open_file(O_WRONLY));
    __atomic_store_n(&writer->is_done, true, __ATOMIC_SEQ_CST);
    return NULL;
}

TEST_IN(who_writes_waits_until_readers_of_a_mapping_have_left, create, delete)
{
    int fds[2] = {open_file(O_RDONLY), open_file(O_RDONLY)};
    struct file_lease *leases[2] = {take(fds[0]), take(fds[1])};
    struct writer writer = {.is_done = false};
    struct stat status;
    assert_int_equal(fstat(fds[0], &status), 0);
    for (int i = 0; i < 2; i++)
        file_lease_span(leases[i], status.st_dev, status.st_ino, true);
    assert_true(file_lease_enter(leases[0]));
    assert_true(file_lease_enter(leases[1]));
    uint64_t start = clock_now_ns();
    assert_int_equal(pthread_create(&writer.thread, NULL, open_to_write, &writer), 0);
    while (file_lease_enter(leases[1])) /* until the writer waits */
        file_lease_leave(leases[1]);
    file_lease_leave(leases[0]);
    bool was_done = __atomic_load_n(&writer.is_done, __ATOMIC_SEQ_CST); /* there is still the reader of the other lease */
    assert_true(!was_done || clock_now_ns() - start >= FILE_LEASE_USE_NS);
    file_lease_leave(leases[1]);
    pthread_join(writer.thread, NULL);
    for (int i = 0; i < 2; i++) {
        assert_false(file_lease_enter(leases[i]));
        let_go(leases[i], fds[i]);
    }
}

TEST_IN(a_reader_who_does_not_leave_delays_a_writer_only_so_long, create, delete)
{
    int fd = open_file(O_RDONLY);
    struct file_lease *lease = take(fd);
    assert_true(file_lease_enter(lease));
    uint64_t start = clock_now_ns();
    open_to_write_and_close();
    assert_true(clock_now_ns() - start >= FILE_LEASE_USE_NS);
    assert_false(file_lease_is_held(lease));
    file_lease_leave(lease);
    let_go(lease, fd);
}

static struct file_lease *take_with_span(int fd, bool times_tell, uint64_t *span)
{
    struct stat status;
    struct file_lease *lease = take(fd);
    assert_int_equal(fstat(fd, &status), 0);
    *span = file_lease_span(lease, status.st_dev, status.st_ino, times_tell);
    return lease;
}

TEST_IN(overlapping_leases_share_a_span_until_one_is_lost, create, delete)
{
    int fds[4];
    uint64_t spans[4];
    struct file_lease *leases[4];
    for (int i = 0; i < 4; i++)
        fds[i] = open_file(O_RDONLY);
    leases[0] = take_with_span(fds[0], true, &spans[0]);
    leases[1] = take_with_span(fds[1], false, &spans[1]);
    assert_int_equal(spans[0], 0);
    assert_int_equal(spans[1], 0);
    open_to_write_and_close();
    leases[2] = take_with_span(fds[2], true, &spans[2]); /* the times may be those of before */
    leases[3] = take_with_span(fds[3], true, &spans[3]);
    assert_int_not_equal(spans[2], 0);
    assert_int_equal(spans[3], spans[2]);
    for (int i = 0; i < 4; i++)
        let_go(leases[i], fds[i]);
}

TEST_IN(where_times_do_not_tell_a_span_ends_with_its_last_lease, create, delete)
{
    uint64_t first, second, third;
    int fd = open_file(O_RDONLY), other = open_file(O_RDONLY);
    struct file_lease *lease = take_with_span(fd, false, &first);
    struct file_lease *beside = take_with_span(other, false, &second);
    assert_int_not_equal(first, 0);
    assert_int_equal(second, first);
    let_go(lease, fd);
    let_go(beside, other);
    fd = open_file(O_RDONLY);
    let_go(take_with_span(fd, false, &third), fd);
    assert_int_not_equal(third, first);
}
