/* What is read or written in pieces is whole for the caller, signals or not. */
#include "tests/support/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_io.h"

enum { COUNT = 1 << 20, PIECE = 3001 }; /* more than a pipe holds */

static void on_signal(int number)
{
    (void)number;
}

struct other_end {
    pthread_t thread, main;
    int fd;
    unsigned char *bytes;
};

/* Takes what the pipe has, a little at a time, and interrupts the writer in between. */
static void *take_in_pieces(void *data)
{
    struct other_end *end = data;
    ssize_t n = 0;
    for (size_t at = 0; at < COUNT && (n = read(end->fd, end->bytes + at, COUNT - at < PIECE ? COUNT - at : PIECE)) > 0;
         at += (size_t)n)
        pthread_kill(end->main, SIGUSR1);
    return NULL;
}

static void *give_in_pieces(void *data)
{
    struct other_end *end = data;
    ssize_t n = 0;
    for (size_t at = 0; at < COUNT && (n = write(end->fd, end->bytes + at, COUNT - at < PIECE ? COUNT - at : PIECE)) > 0;
         at += (size_t)n)
        pthread_kill(end->main, SIGUSR1);
    close(end->fd);
    return NULL;
}

static unsigned char *make_bytes(void)
{
    unsigned char *bytes = malloc(COUNT);
    for (size_t i = 0; i < COUNT; i++)
        bytes[i] = (unsigned char)(i * 2654435761u >> 11);
    return bytes;
}

static void interrupt_calls(void)
{
    struct sigaction action = {.sa_handler = on_signal}; /* no SA_RESTART */
    assert_return_code(sigaction(SIGUSR1, &action, NULL), errno);
}

TEST(a_pipe_that_takes_a_little_and_signals_gets_all)
{
    int ends[2];
    unsigned char *bytes = make_bytes();
    struct other_end end = {.main = pthread_self(), .bytes = calloc(1, COUNT)};
    interrupt_calls();
    assert_return_code(pipe(ends), errno);
    end.fd = ends[0];
    assert_int_equal(pthread_create(&end.thread, NULL, take_in_pieces, &end), 0);
    assert_return_code(file_io_write(ends[1], bytes, COUNT), errno);
    pthread_join(end.thread, NULL);
    assert_memory_equal(end.bytes, bytes, COUNT);
    close(ends[0]);
    close(ends[1]);
    free(end.bytes);
    free(bytes);
}

TEST(what_comes_in_pieces_is_read_up_to_the_end)
{
    int ends[2];
    unsigned char *bytes = make_bytes(), *read = calloc(1, COUNT + 9);
    struct other_end end = {.main = pthread_self(), .bytes = bytes};
    interrupt_calls();
    assert_return_code(pipe(ends), errno);
    end.fd = ends[1];
    assert_int_equal(pthread_create(&end.thread, NULL, give_in_pieces, &end), 0);
    assert_int_equal(file_io_read(ends[0], read, COUNT + 9), COUNT); /* the file ends before */
    pthread_join(end.thread, NULL);
    assert_memory_equal(read, bytes, COUNT);
    close(ends[0]);
    free(read);
    free(bytes);
}

TEST(offsets_do_not_move_the_descriptor)
{
    char found[8] = "";
    int fd = memfd_create("file_io", MFD_CLOEXEC);
    assert_return_code(file_io_write(fd, "abc", 3), errno);
    assert_return_code(file_io_write_at(fd, "xyz", 3, 10), errno);
    assert_int_equal(lseek(fd, 0, SEEK_CUR), 3);
    assert_int_equal(file_io_read_at(fd, found, 2, 11), 2);
    assert_memory_equal(found, "yz", 2);
    assert_int_equal(file_io_read_at(fd, found, 8, 11), 2);
    assert_int_equal(file_io_read_at(fd, found, 8, 13), 0);
    assert_int_equal(lseek(fd, 0, SEEK_CUR), 3);
    assert_int_equal(file_io_read_at(fd, found, 8, UINT64_MAX), -1); /* not where it stands */
    assert_int_equal(errno, EINVAL);
    assert_int_equal(file_io_write_at(fd, found, 8, UINT64_MAX), -1);
    close(fd);
}

TEST(errno_says_why)
{
    char byte = 0;
    int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    assert_int_equal(file_io_write(full, &byte, 1), -1);
    assert_int_equal(errno, ENOSPC);
    assert_int_equal(file_io_read(full, &byte, 1), -1);
    assert_int_equal(errno, EBADF);
    assert_return_code(file_io_write(full, &byte, 0), errno);
    close(full);
}

TEST(folders_are_made_up_to_the_last_slash)
{
    char root[] = "/tmp/file_io.XXXXXX", path[64];
    struct stat status;
    assert_non_null(mkdtemp(root));
    snprintf(path, sizeof path, "%s/a/b/file", root);
    assert_return_code(file_io_make_folders(path, 0700), errno);
    assert_return_code(file_io_make_folders(path, 0700), errno);
    assert_int_equal(stat(path, &status), -1);
    *strrchr(path, '/') = '\0';
    assert_return_code(stat(path, &status), errno);
    assert_int_equal(status.st_mode & 0777, 0700);
    assert_int_equal(file_io_make_folders("/proc/none/file", 0700), -1);
    assert_int_equal(errno, ENOENT);
    rmdir(path);
    *strrchr(path, '/') = '\0';
    rmdir(path);
    rmdir(root);
}

TEST(a_file_is_replaced_whole_or_not_at_all)
{
    char root[] = "/tmp/file_io.XXXXXX", path[64], found[8];
    struct stat status;
    assert_non_null(mkdtemp(root));
    int folder = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    snprintf(path, sizeof path, "%s/f", root);
    assert_return_code(file_io_replace(AT_FDCWD, path, "old", 3, true), errno);
    assert_return_code(file_io_replace(folder, "f", "fresh", 5, false), errno);
    assert_return_code(fstatat(folder, "f", &status, 0), errno);
    assert_int_equal(status.st_mode & 0777, 0600);
    int fd = openat(folder, "f", O_RDONLY | O_CLOEXEC);
    assert_int_equal(file_io_read(fd, found, sizeof found), 5);
    assert_memory_equal(found, "fresh", 5);
    close(fd);
    assert_return_code(mkdirat(folder, "d", 0700), errno);
    assert_int_equal(file_io_replace(folder, "d", "x", 1, false), -1);
    assert_int_equal(errno, EISDIR);
    assert_int_equal(faccessat(folder, "d.new", F_OK, 0), -1); /* nothing is left */
    assert_int_equal(file_io_replace(AT_FDCWD, "/proc/none/f", "x", 1, true), -1);
    assert_int_equal(errno, ENOENT);
    unlinkat(folder, "f", 0);
    unlinkat(folder, "d", AT_REMOVEDIR);
    close(folder);
    rmdir(root);
}

TEST(a_call_is_made_again_after_a_hundred_interruptions_and_not_after_one_more)
{
    int n_times = 0;
    for (int i = 0; i < 100; i++) {
        errno = EINTR;
        assert_true(file_io_is_interrupted(&n_times));
    }
    assert_false(file_io_is_interrupted(&n_times));
    n_times = 0;
    errno = EIO;
    assert_false(file_io_is_interrupted(&n_times));
}

TEST(an_open_file_has_the_name_that_the_kernel_calls_it)
{
    char path[] = "/tmp/file_io.XXXXXX", other[64], name[PATH_MAX], real[PATH_MAX];
    int fd = mkstemp(path);
    assert_string_equal(file_io_name(fd, name), realpath(path, real));
    snprintf(other, sizeof other, "%s.moved", real);
    assert_return_code(rename(path, other), errno);
    assert_string_equal(file_io_name(fd, name), other);
    unlink(other);
    close(fd);
    assert_string_equal(file_io_name(fd, name), "");
}
