/* The row for files: rows of a window reach their places whatever their width, alignment and neighbours, past the page cache
 * and through it. The reference is the same puts copied in memory. */
#include "tests/support/unit.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/crc.h"
#include "execute/destination_file.h"

#undef fail /* ours is in base/error.h */

enum { BLOCK = OUTPUT_FILE_BLOCK_BYTES, FILE_BYTES = 1 << 20, WINDOW_BYTES = 512 << 10, SCRATCH_BYTES = 16 * BLOCK };

static struct output_file files[2];
static struct output_edges *edges;
static unsigned char *window_memory, *scratch, expected[2][FILE_BYTES], found[FILE_BYTES];
static struct error error;

static int open_files(void **state)
{
    (void)state;
    window_memory = aligned_alloc(BLOCK, WINDOW_BYTES + BLOCK);
    scratch = aligned_alloc(BLOCK, SCRATCH_BYTES);
    for (size_t i = 0; i < WINDOW_BYTES + BLOCK; i++)
        window_memory[i] = (unsigned char)(i * 31 + i / 251);
    edges = output_edges_create();
    for (int f = 0; f < 2; f++) {
        char path[] = "/tmp/test_destination_file_XXXXXX";
        files[f] = (struct output_file){.path = "out", .edges = edges};
        files[f].fd = mkstemp(path);
        files[f].direct_fd = open(path, O_WRONLY | O_DIRECT | O_CLOEXEC);
        assert_int_equal(ftruncate(files[f].fd, FILE_BYTES), 0);
        unlink(path);
        memset(expected[f], 0, FILE_BYTES);
    }
    return 0;
}

static int close_files(void **state)
{
    (void)state;
    for (int f = 0; f < 2; f++) {
        close(files[f].fd);
        close(files[f].direct_fd);
    }
    output_edges_destroy(edges);
    free(window_memory);
    free(scratch);
    return 0;
}

static struct destination_file make_window(void *address, const struct file_put *puts, size_t n_puts)
{
    struct destination_file window;
    destination_file_init(&window, address);
    window.files = files;
    window.puts = puts;
    window.n_puts = n_puts;
    window.scratch = scratch;
    window.scratch_bytes = SCRATCH_BYTES;
    window.wants_sum = true;
    window.sum = 0;
    return window;
}

static void check_puts(unsigned char *address, const struct file_put *puts, size_t n_puts)
{
    struct destination_file window = make_window(address, puts, n_puts);
    uint32_t sum = 0;
    for (size_t i = 0; i < n_puts; i++)
        for (uint64_t r = 0; r < puts[i].n_rows; r++) {
            unsigned char *place = &expected[puts[i].file][puts[i].offset + r * puts[i].row_bytes];
            memcpy(place, address + puts[i].at + r * puts[i].stride, puts[i].row_bytes);
            sum = crc32c_update(sum, place, puts[i].row_bytes);
        }
    assert_int_equal(destination_finish(&window.destination, NULL, &error), 0);
    assert_int_equal(window.sum, sum);
    assert_int_equal(output_edges_write(edges, &error), 0);
    for (int f = 0; f < 2; f++) {
        assert_int_equal(pread(files[f].fd, found, FILE_BYTES, 0), FILE_BYTES);
        assert_memory_equal(found, expected[f], FILE_BYTES);
    }
}

TEST_IN(a_whole_window_goes_straight_to_its_file, open_files, close_files)
{
    const struct file_put put = {.offset = 808, .row_bytes = WINDOW_BYTES, .n_rows = 1, .stride = WINDOW_BYTES};
    check_puts(window_memory + 808, &put, 1);
}

TEST_IN(a_window_that_lies_otherwise_than_in_its_file_arrives_the_same, open_files, close_files)
{
    const struct file_put put = {.offset = 813, .row_bytes = 300001, .n_rows = 1, .stride = 300001};
    check_puts(window_memory + 5, &put, 1);
}

TEST_IN(columns_of_a_window_go_to_two_files, open_files, close_files)
{
    const struct file_put puts[] = {{0, 104, 0, 1000, 256, 2000}, {1, 99, 1000, 1000, 256, 2000}};
    check_puts(window_memory, puts, 2);
}

TEST_IN(small_neighbours_become_one_write, open_files, close_files)
{
    struct file_put puts[100];
    for (uint64_t i = 0; i < 100; i++)
        puts[i] = (struct file_put){0, 17 + 1300 * i, 5000 * (99 - i), 1300, 1, 1300};
    check_puts(window_memory, puts, 100);
}

TEST_IN(a_file_that_refuses_direct_writes_is_written_through_the_page_cache, open_files, close_files)
{
    const struct file_put put = {.offset = 0, .row_bytes = WINDOW_BYTES, .n_rows = 1, .stride = WINDOW_BYTES};
    close(files[0].direct_fd);
    files[0].direct_fd = open("/dev/null", O_RDONLY | O_CLOEXEC); /* EBADF */
    check_puts(window_memory, &put, 1);
}

TEST_IN(what_cannot_be_written_is_an_error_that_names_the_file, open_files, close_files)
{
    const struct file_put put = {.offset = 0, .row_bytes = 100, .n_rows = 1, .stride = 100};
    struct destination_file window = make_window(window_memory, &put, 1);
    close(files[0].fd);
    files[0].fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
    assert_int_equal(destination_finish(&window.destination, NULL, &error),
                     0); /* it is kept, where files are written directly */
    assert_int_equal(output_edges_write(edges, &error), -1);
    assert_int_equal(error.code, ERROR_RESOURCE_EXHAUSTED);
    assert_int_equal(error.kind, ERROR_KIND_NO_SPACE);
    assert_non_null(strstr(error.message, "out"));
}

TEST_IN(a_broken_disk_is_no_damage_of_what_was_read, open_files, close_files)
{
    assert_int_equal(output_file_fail(&files[0], 5 /* EIO */, "write", &error), -1);
    assert_int_equal(error.code, ERROR_INTERNAL);
}

TEST_IN(rows_that_nobody_placed_are_copied_into_the_window, open_files, close_files)
{
    struct destination_file window = make_window(window_memory, NULL, 0);
    const struct device_rows rows = {2, 2, 3, 10};
    assert_int_equal(window.destination.ops->write(&window.destination, 4, "ab.cd", &rows, &error), 0);
    assert_memory_equal(window_memory + 4, "ab", 2);
    assert_memory_equal(window_memory + 14, "cd", 2);
}
