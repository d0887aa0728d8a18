/* Reading files: whole or not at all, cached or not, into few buffers or thousands. */
#include "tests/support/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bus_guard.h"
#include "source/disk/source_disk.h"

enum { FILE_BYTES = (1 << 20) + 777, MANY = 5000, HEAD = 5000, GAP = 70001 };

struct scene { /* one file, as source_disk.c would have opened it */
    struct source source;
    struct source_file file;
    struct source_disk_file handle;
    void *handles[1];
    char path[64];
    unsigned char *image;
};

static struct error error;                          /* of the last read */
static unsigned char bytes[FILE_BYTES], trash[GAP]; /* it goes here */

/* Stand in for the C library's: when a test says so they are interrupted now and then and return less than was asked. */
static bool is_stubborn;
static unsigned n_calls;

ssize_t preadv(int fd, const struct iovec *iov, int n_iov, off_t offset)
{
    if (!is_stubborn)
        return syscall(SYS_preadv, fd, iov, n_iov, offset, 0);
    if (++n_calls % 3 == 0) {
        errno = EINTR;
        return -1;
    }
    struct iovec part = {iov[0].iov_base, iov[0].iov_len > 5 ? iov[0].iov_len / 2 : iov[0].iov_len};
    return syscall(SYS_preadv, fd, &part, 1, offset, 0);
}

ssize_t pread(int fd, void *buffer, size_t count, off_t offset)
{
    if (is_stubborn && ++n_calls % 3 == 0) {
        errno = EINTR;
        return -1;
    }
    return syscall(SYS_pread64, fd, buffer, is_stubborn && count > 5 ? count / 2 : count, offset);
}

static int set_up(void **state)
{
    struct scene *scene = test_calloc(1, sizeof *scene);
    memset(bytes, 0, sizeof bytes);
    memset(trash, 0, sizeof trash);
    scene->image = test_malloc(FILE_BYTES);
    for (size_t i = 0; i < FILE_BYTES; i++)
        scene->image[i] = (unsigned char)(i * 2654435761u >> 13);
    strcpy(scene->path, "/tmp/tensorcast-io-XXXXXX");
    scene->handle.fd = mkstemp(scene->path);
    assert_true(scene->handle.fd >= 0);
    assert_int_equal(write(scene->handle.fd, scene->image, FILE_BYTES), FILE_BYTES);
    assert_int_equal(fsync(scene->handle.fd), 0);
    scene->handle.direct_fd = DIRECT_NOT_OPEN;
    scene->file = (struct source_file){.name = "model\n.safetensors", .size_bytes = FILE_BYTES};
    scene->handles[0] = &scene->handle;
    scene->source = (struct source){.ops = &source_disk_ops, .files = &scene->file, .handles = scene->handles, .n_files = 1};
    scene->source.caps.direct_reads = true;
    *state = scene;
    return 0;
}

static int tear_down(void **state)
{
    struct scene *scene = *state;
    change_detection_end(&scene->handle.changes);
    close(scene->handle.fd);
    if (scene->handle.direct_fd >= 0)
        close(scene->handle.direct_fd);
    unlink(scene->path);
    test_free(scene->image);
    test_free(scene);
    return 0;
}

static int read_at(struct scene *scene, uint64_t offset, const struct iovec *iov, int n_iov, bool direct)
{
    struct source_read read = {.offset = offset, .iov = iov, .n_iov = n_iov, .direct = direct};
    return source_disk_read(&scene->source, &read, &error);
}

TEST_IN(a_read_fills_every_buffer, set_up, tear_down)
{
    struct scene *scene = *state;
    unsigned char a[3], b[5000], c[1];
    struct iovec iov[] = {{a, 0}, {a, 3}, {NULL, 0}, {b, sizeof b}, {c, 1}, {c, 0}};
    assert_int_equal(read_at(scene, 100, iov, 6, false), 0);
    assert_memory_equal(a, scene->image + 100, 3);
    assert_memory_equal(b, scene->image + 103, sizeof b);
    assert_int_equal(c[0], scene->image[100 + 3 + sizeof b]);
    assert_int_equal(read_at(scene, FILE_BYTES, iov, 1, false), 0); /* nothing, at the end */
}

TEST_IN(a_buffer_without_an_address_throws_its_length_away, set_up, tear_down)
{
    struct scene *scene = *state;
    unsigned char a[3], b[5000];
    struct iovec iov[] = {{NULL, 10}, {a, 3}, {NULL, 7000}, {NULL, 1}, {b, sizeof b}, {NULL, 4}};
    for (int is_direct = 0; is_direct < 2; is_direct++) {
        memset(a, 0, sizeof a);
        memset(b, 0, sizeof b);
        assert_int_equal(read_at(scene, 100, iov, 6, is_direct), 0);
        assert_memory_equal(a, scene->image + 110, 3);
        assert_memory_equal(b, scene->image + 113 + 7001, sizeof b);
    }
}

TEST_IN(more_buffers_than_one_call_takes_are_filled, set_up, tear_down)
{
    struct scene *scene = *state;
    struct iovec *iov = test_calloc(MANY, sizeof *iov);
    unsigned char *out = test_calloc(MANY, 7);
    for (size_t i = 0; i < MANY; i++)
        iov[i] = (struct iovec){out + 7 * i, 7};
    assert_int_equal(read_at(scene, 11, iov, MANY, false), 0);
    assert_memory_equal(out, scene->image + 11, 7 * MANY);
    test_free(iov);
    test_free(out);
}

TEST_IN(short_and_interrupted_reads_are_carried_on, set_up, tear_down)
{
    struct scene *scene = *state;
    unsigned char out[3][3000];
    struct iovec iov[] = {{out[0], 3000}, {out[1], 1}, {out[2], 2999}};
    is_stubborn = true;
    n_calls = 0;
    int result = read_at(scene, 77, iov, 3, false);
    is_stubborn = false;
    assert_int_equal(result, 0);
    assert_true(n_calls > 6);
    assert_memory_equal(out[0], scene->image + 77, 3000);
    assert_memory_equal(out[1], scene->image + 3077, 1);
    assert_memory_equal(out[2], scene->image + 3078, 2999);
}

static struct sigaction bus_error;

static void keep_handler(void)
{
    unsigned char byte = 1, copy;
    bus_guard_copy(&copy, &byte, 1);
    sigaction(SIGBUS, NULL, &bus_error);
}

/* As change_detection.c would have: from here on the file cannot change. */
static void lease_file(struct scene *scene)
{
    int reader = open(scene->path, O_RDONLY | O_CLOEXEC);
    assert_true(reader >= 0);
    close(scene->handle.fd);
    scene->handle.fd = reader;
    scene->handle.changes = (struct change_detection){reader, file_lease_take(reader)};
    scene->file.changes_by = CHANGES_BY_LEASE;
    if (!scene->handle.changes.lease)
        skip(); /* not on this file system */
}

/* A head, a gap and the rest. */
static int read_with_gap(struct scene *scene, uint64_t offset)
{
    struct iovec iov[] = {{bytes, HEAD}, {trash, GAP}, {bytes + HEAD + GAP, FILE_BYTES - offset - HEAD - GAP}};
    struct source_read read = {.offset = offset, .iov = iov, .n_iov = 3, .is_cached = true, .trash = trash};
    return source_read(&scene->source, &read, &error);
}

TEST_IN(what_is_cached_and_leased_comes_without_a_system_call_and_without_the_gaps, set_up, tear_down)
{
    struct scene *scene = *state;
    lease_file(scene);
    for (uint64_t offset = 0; offset < 9000; offset += 4097) {
        uint64_t count = FILE_BYTES - offset - HEAD - GAP;
        assert_int_equal(read_with_gap(scene, offset), 0);
        assert_memory_equal(bytes, scene->image + offset, HEAD);
        assert_memory_equal(bytes + HEAD + GAP, scene->image + offset + HEAD + GAP, count);
        for (int i = 0; i < GAP; i++)
            assert_int_equal(trash[i], 0); /* preadv() would have filled it */
    }
}

TEST_IN(a_file_whose_lease_is_lost_is_not_mapped, set_up, tear_down)
{
    struct scene *scene = *state;
    lease_file(scene);
    close(open(scene->path, O_WRONLY | O_CLOEXEC));
    assert_int_equal(read_with_gap(scene, 0), 0);
    assert_memory_equal(bytes, scene->image, HEAD);
    assert_memory_equal(trash, scene->image + HEAD, GAP);
}

/* What no lease prevents: to the kernel it is the same as a device that fails. */
TEST_IN(a_page_that_cannot_be_had_is_an_error_of_the_read, set_up, tear_down)
{
    struct scene *scene = *state;
    assert_int_equal(truncate(scene->path, FILE_BYTES / 2), 0);
    assert_int_equal(sigaction(SIGBUS, &bus_error, NULL), 0); /* not cmocka's */
    lease_file(scene);
    assert_int_equal(read_with_gap(scene, 0), -1);
    assert_string_equal(error.reason, "FILE_TRUNCATED");
}

TEST_IN(the_end_of_the_file_is_data_loss_and_named, set_up, tear_down)
{
    struct scene *scene = *state;
    unsigned char buffer[4096];
    struct iovec iov[] = {{buffer, 700}, {buffer, 100}};
    assert_int_equal(read_at(scene, FILE_BYTES - 777, iov, 1, false), 0);
    assert_int_equal(read_at(scene, FILE_BYTES - 777, iov, 2, false), -1);
    assert_int_equal(error.code, ERROR_DATA_LOSS);
    assert_non_null(strstr(error.message, "model\\n.safetensors"));
    assert_int_equal(ftruncate(scene->handle.fd, 5000), 0);
    assert_int_equal(read_at(scene, 4900, iov, 1, false), -1);
    assert_int_equal(error.code, ERROR_DATA_LOSS);
    assert_non_null(strstr(error.message, "5000"));
}

TEST_IN(a_broken_handle_is_an_error_with_file_and_offset, set_up, tear_down)
{
    struct scene *scene = *state;
    unsigned char buffer[16];
    struct iovec iov = {buffer, sizeof buffer};
    int fd = scene->handle.fd;
    scene->handle.fd = open("/tmp", O_RDONLY | O_DIRECTORY);
    assert_int_equal(read_at(scene, 4321, &iov, 1, false), -1);
    assert_non_null(strstr(error.message, "model\\n.safetensors"));
    assert_non_null(strstr(error.message, "4321"));
    close(scene->handle.fd);
    scene->handle.fd = fd;
}

TEST_IN(direct_reads_give_the_same_bytes, set_up, tear_down)
{
    struct scene *scene = *state;
    unsigned char *buffer = aligned_alloc(4096, 1 << 20);
    struct iovec iov = {buffer, 64 << 10};
    assert_int_equal(read_at(scene, 8192, &iov, 1, true), 0);
    assert_memory_equal(buffer, scene->image + 8192, 64 << 10);
    iov = (struct iovec){buffer + 1, 1000}; /* no alignment at all: it is read through the page cache */
    assert_int_equal(read_at(scene, 8193, &iov, 1, true), 0);
    assert_memory_equal(buffer + 1, scene->image + 8193, 1000);
    iov = (struct iovec){buffer, 777}; /* the tail of the file */
    assert_int_equal(read_at(scene, 1 << 20, &iov, 1, true), 0);
    assert_memory_equal(buffer, scene->image + (1 << 20), 777);
    iov = (struct iovec){buffer, 4096}; /* beyond the end: short, then nothing */
    assert_int_equal(read_at(scene, 1 << 20, &iov, 1, true), -1);
    assert_int_equal(error.code, ERROR_DATA_LOSS);
    int fd = scene->handle.direct_fd;
    assert_true(fd >= 0);
    scene->handle.direct_fd = DIRECT_REFUSED; /* a filesystem without direct reads */
    iov = (struct iovec){buffer, 4096};
    assert_int_equal(read_at(scene, 4096, &iov, 1, true), 0);
    assert_memory_equal(buffer, scene->image + 4096, 4096);
    scene->handle.direct_fd = fd;
    free(buffer);
}

static bool residency_is_right(struct scene *scene)
{
    struct iovec iov = {bytes, FILE_BYTES};
    return read_at(scene, 0, &iov, 1, false) == 0 && source_resident_bytes(&scene->source, 0, 0, FILE_BYTES) == FILE_BYTES &&
           source_resident_bytes(&scene->source, 0, 5000, 10) == 10 &&
           source_resident_bytes(&scene->source, 0, 5000, 0) == 0 &&
           posix_fadvise(scene->handle.fd, 0, 0, POSIX_FADV_DONTNEED) == 0 &&
           source_resident_bytes(&scene->source, 0, 0, FILE_BYTES) < FILE_BYTES / 2;
}

/* From here on this process is on a kernel without cachestat(2), or in a container that forbids it. */
static bool forbid_cachestat(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 451, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST_IN(residency_follows_the_page_cache_also_without_cachestat, set_up, tear_down)
{
    assert_true(residency_is_right(*state));
    pid_t child = fork();
    if (child == 0)
        _exit(!(forbid_cachestat() && residency_is_right(*state)));
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static int set_up_all_tests(void **state)
{
    keep_handler();
    (void)state;
    return 0;
}

TESTS_IN(set_up_all_tests, NULL)
