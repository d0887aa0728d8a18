/* What is no whole block of a file is kept, is written when there is much of it or when it is asked for, and is never taken for
 * written when it could not be. */
#include "tests/support/unit.h"

#include <fcntl.h>
#include <unistd.h>

#include "execute/output_file.h"

#undef fail /* ours is in base/error.h */

enum { BLOCK = OUTPUT_FILE_BLOCK_BYTES, FILE_BYTES = 4 << 20, EDGES = 4096, EDGES_BYTES = 2 << 20, SMALL = 32 << 10 };

static struct output_file file;
static unsigned char *memory, *found;
static struct error error;

static int open_file(void **state)
{
    char path[] = "/tmp/test_output_file_XXXXXX";
    (void)state;
    file = (struct output_file){.path = "out", .fd = mkstemp(path), .edges = output_edges_create()};
    file.direct_fd = open(path, O_WRONLY | O_DIRECT | O_CLOEXEC);
    assert_int_equal(ftruncate(file.fd, FILE_BYTES), 0);
    unlink(path);
    memory = aligned_alloc(BLOCK, FILE_BYTES);
    found = malloc(FILE_BYTES);
    for (size_t i = 0; i < FILE_BYTES; i++)
        memory[i] = (unsigned char)(1 + i % 251);
    return 0;
}

static int close_file(void **state)
{
    (void)state;
    output_edges_destroy(file.edges);
    close(file.fd);
    close(file.direct_fd);
    free(memory);
    free(found);
    return 0;
}

static void put(uint64_t offset, uint64_t count)
{
    assert_int_equal(output_file_write(&file, offset, memory + offset, count, &error), 0);
}

static bool holds(uint64_t offset, uint64_t count)
{
    assert_int_equal(pread(file.fd, found, count, (off_t)offset), count);
    return memcmp(found, memory + offset, count) == 0;
}

static void needs_direct_writes(void)
{
    if (file.direct_fd < 0)
        skip();
}

TEST_IN(ends_that_are_no_blocks_wait_until_they_are_asked_for, open_file, close_file)
{
    needs_direct_writes();
    put(100, 20 * BLOCK);
    assert_true(holds(BLOCK, 19 * BLOCK));
    assert_false(holds(100, 1) || holds(20 * BLOCK, 1));
    assert_int_equal(output_edges_write(file.edges, &error), 0);
    assert_true(holds(100, 20 * BLOCK));
    assert_false(holds(99, 1) || holds(20 * BLOCK + 100, 1));
    put(0, 100);
    put(20 * BLOCK + 100, BLOCK - 100);
    assert_int_equal(output_edges_write(file.edges, &error), 0);
    assert_true(holds(0, 21 * BLOCK));
}

TEST_IN(as_many_as_are_kept_wait_and_one_more_has_them_written, open_file, close_file)
{
    needs_direct_writes();
    for (uint64_t i = 0; i < EDGES; i++)
        put(i * 2, 1);
    assert_false(holds(0, 1));
    put(EDGES * 2, 1);
    for (uint64_t i = 0; i < EDGES; i++)
        assert_true(holds(i * 2, 1));
    assert_false(holds(EDGES * 2, 1));
}

TEST_IN(as_many_bytes_as_are_kept_wait_and_one_more_has_them_written, open_file, close_file)
{
    needs_direct_writes();
    for (uint64_t at = 0; at < EDGES_BYTES; at += SMALL)
        put(at, SMALL);
    assert_false(holds(0, 1));
    put(EDGES_BYTES, 1);
    assert_true(holds(0, EDGES_BYTES));
    assert_false(holds(EDGES_BYTES, 1));
}

TEST_IN(without_direct_writes_nothing_waits, open_file, close_file)
{
    int direct_fd = file.direct_fd;
    file.direct_fd = -1;
    put(100, 20 * BLOCK);
    assert_true(holds(100, 20 * BLOCK));
    file.direct_fd = direct_fd;
}

TEST_IN(what_could_not_be_written_is_never_taken_for_written, open_file, close_file)
{
    needs_direct_writes();
    struct output_file broken = {
        .path = "broken", .fd = open("/dev/null", O_RDONLY), .direct_fd = file.direct_fd, .edges = file.edges};
    put(0, 1);
    assert_int_equal(output_file_write(&broken, 7, memory, 1, &error), 0);
    assert_int_equal(output_edges_write(file.edges, &error), -1);
    assert_non_null(strstr(error.message, "cannot write at byte 7: broken"));
    put(2, 1);
    memset(&error, 0, sizeof error);
    assert_int_equal(output_edges_write(file.edges, &error), -1);
    assert_non_null(strstr(error.message, "broken"));
    close(broken.fd);
}
