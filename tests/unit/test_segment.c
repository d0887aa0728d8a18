/* Samples of any size, from any place of memory, lie one behind the other in a segment as they were; room that was taken from the
 * disk for one that did not come is given back. */
#include "tests/support/unit.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "activations/segment.h"
#include "tests/support/shell.h"

enum { MEMORY_BYTES = 2 << 20, MAX_SAMPLES = 64 };

static struct error error;
static char root[64];
static int folder_fd;

static int make_folder(void **state)
{
    (void)state;
    strcpy(root, "/tmp/test_segment_XXXXXX"); /* O_DIRECT is to be had there */
    assert_non_null(mkdtemp(root));
    folder_fd = open(root, O_RDONLY | O_DIRECTORY);
    return folder_fd < 0;
}

static int remove_folder(void **state)
{
    (void)state;
    close(folder_fd);
    shell("rm -rf %s", root);
    return 0;
}

struct one { /* a sample of bytes */
    struct sample sample;
    struct sample_tensor tensor;
    uint64_t shape;
};

static void make_one(struct one *one, uint32_t id, uint64_t bytes)
{
    *one = (struct one){.shape = bytes};
    one->tensor = (struct sample_tensor){.layer = 1, .rank = 1, .dtype = DTYPE_U8, .shape = &one->shape};
    one->sample = (struct sample){.id = id, .tensors = &one->tensor, .n_tensors = 1};
    assert_int_equal(sample_check(&one->sample, &one->tensor, &error), 0);
}

static uint64_t file_bytes(const char *name)
{
    struct stat status;
    return fstatat(folder_fd, name, &status, 0) < 0 ? 0 : (uint64_t)status.st_size;
}

/* Where the next byte lies as in the file, or one beside it. */
static void append(struct segment_builder *segment, uint32_t id, uint64_t count, const unsigned char *from,
                   unsigned char *memory, unsigned beside)
{
    struct one one;
    make_one(&one, id, count);
    assert_int_equal(segment_reserve(segment, count, &error), 0);
    assert_int_equal(segment_is_reserved(segment), count >= 256 << 10);
    uint64_t first = count / 3 * (id % 3), done = 0;
    for (uint64_t parts[2] = {first, count - first}, i = 0; i < 2; done += parts[i++]) {
        unsigned char *at = memory + (segment_data_end(segment) + done + beside) % SEGMENT_BLOCK_BYTES;
        memcpy(at, from + done, parts[i]);
        assert_int_equal(segment_write(segment, at, parts[i], &error), 0);
        memset(at, 0xEE, parts[i]);
    }
    assert_int_equal(segment_add(segment, &one.sample, &error), 0);
    assert_false(segment_is_reserved(segment));
}

TEST_IN(samples_lie_one_behind_the_other_wherever_they_begin, make_folder, remove_folder)
{
    struct segment_builder *segment;
    struct segment_facts facts;
    struct one one;
    unsigned char *memory = aligned_alloc(SEGMENT_BLOCK_BYTES, MEMORY_BYTES), *want = malloc(MAX_SAMPLES << 20), *got;
    uint64_t total = 0;
    srand(17);
    make_one(&one, 0, 1 << 20);
    assert_int_equal(segment_create(folder_fd, 1, 64 << 20, &one.sample, &segment, &error), 0);
    for (uint32_t id = 0; id < 40; id++) {
        uint64_t count = id % 7 == 0 ? (uint64_t)rand() % 5000 : (256 << 10) + (uint64_t)rand() % (700 << 10);
        for (uint64_t i = 0; i < count; i++)
            want[total + i] = (unsigned char)(rand() >> 8);
        append(segment, id, count, want + total, memory, id % 5 == 4);
        total += count;
        if (id % 6 == 0)
            assert_int_equal(segment_sync(segment, &error), 0);
    }
    assert_int_equal(segment_seal(segment, &facts, &error), 0);
    segment_close(segment);
    got = malloc(total);
    int fd = openat(folder_fd, "segment_000001.safetensors", O_RDONLY);
    assert_int_equal(pread(fd, got, total, (off_t)(facts.file_bytes - total)), (ssize_t)total);
    assert_memory_equal(got, want, total);
    close(fd);
    free(got);
    free(want);
    free(memory);
}

TEST_IN(room_of_a_sample_that_does_not_come_is_given_back, make_folder, remove_folder)
{
    struct segment_builder *segment;
    struct one one;
    static const unsigned char zeros[1 << 20];
    unsigned char *memory = aligned_alloc(SEGMENT_BLOCK_BYTES, MEMORY_BYTES);
    make_one(&one, 0, 1 << 20);
    assert_int_equal(segment_create(folder_fd, 1, 64 << 20, &one.sample, &segment, &error), 0);
    append(segment, 0, 1 << 20, zeros, memory, 0);
    uint64_t before = file_bytes("segment_000001.open");
    assert_int_equal(segment_reserve(segment, 8 << 20, &error), 0);
    assert_int_equal(file_bytes("segment_000001.open"), before + (8 << 20));
    segment_drop(segment);
    assert_int_equal(file_bytes("segment_000001.open"), before);
    assert_int_equal(segment_reserve(segment, (uint64_t)1 << 46, &error), -1);
    assert_int_equal(error.code, ERROR_RESOURCE_EXHAUSTED);
    assert_false(segment_is_reserved(segment));
    append(segment, 1, 300 << 10, zeros, memory, 0);
    segment_close(segment);
    free(memory);
}
