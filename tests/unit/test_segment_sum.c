/* Every byte of a file, in order, whatever its length; a file that ends early is an error that names it. */
#include "tests/support/unit.h"

#include <fcntl.h>
#include <unistd.h>

#include "activations/segment_sum.h"

enum { PIECE_BYTES = 512 << 10 };

static struct error error;

struct taken {
    const unsigned char *want;
    uint64_t at;
};

static void take(void *data, const void *bytes, size_t count)
{
    struct taken *taken = data;
    assert_memory_equal(bytes, taken->want + taken->at, count);
    taken->at += count;
}

/* Of /tmp, or of /dev/shm, where O_DIRECT may not be had. */
static int make_file(const char *folder, const void *bytes, size_t count)
{
    char path[64];
    strcpy(path, folder);
    strcat(path, "/test_segment_sum_XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    unlink(path);
    assert_int_equal(write(fd, bytes, count), (ssize_t)count);
    return fd;
}

TEST(every_byte_comes_once_and_in_order)
{
    static const size_t lengths[] = {
        0, 1, 4095, 4096, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 7 * PIECE_BYTES + 4097};
    size_t most = lengths[7];
    unsigned char *bytes = malloc(most);
    for (size_t i = 0; i < most; i++)
        bytes[i] = (unsigned char)(i * 7 + i / 4096);
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
        for (int shm = 0; shm < 2; shm++) {
            int fd = make_file(shm ? "/dev/shm" : "/tmp", bytes, lengths[i]), flags = fcntl(fd, F_GETFL);
            struct taken taken = {.want = bytes};
            assert_int_equal(segment_read_ahead(fd, "x", lengths[i], take, &taken, &error), 0);
            assert_int_equal(taken.at, lengths[i]);
            assert_int_equal(fcntl(fd, F_GETFL), flags);
            close(fd);
        }
    free(bytes);
}

TEST(a_file_that_ends_early_is_data_loss_after_what_it_had)
{
    static const size_t lengths[] = {100, 3 * PIECE_BYTES};
    unsigned char *bytes = calloc(3, PIECE_BYTES);
    for (size_t i = 0; i < 2; i++) {
        int fd = make_file("/tmp", bytes, lengths[i]);
        struct taken taken = {.want = bytes};
        assert_int_equal(segment_read_ahead(fd, "segment_000009", 4 * PIECE_BYTES, take, &taken, &error), -1);
        assert_int_equal(error.code, ERROR_DATA_LOSS);
        assert_non_null(strstr(error.message, "segment_000009"));
        assert_int_equal(taken.at, lengths[i]);
        close(fd);
    }
    free(bytes);
}
