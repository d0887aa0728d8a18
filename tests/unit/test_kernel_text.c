/* Numbers out of the kernel's text files. */
#include "tests/support/unit.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/file_io.h"
#include "base/kernel_text.h"
#include "tests/support/shell.h"

static char root[32], path[128];

static const char *write_file(const char *name, const char *text)
{
    snprintf(path, sizeof path, "%s/%s", root, name);
    assert_int_equal(file_io_make_folders(path, 0700), 0);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_int_equal(file_io_write(fd, text, strlen(text)), 0);
    close(fd);
    return path;
}

static int make_root(void **state)
{
    (void)state;
    strcpy(root, "/tmp/kernel_text.XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    (void)state;
    shell("rm -rf %s", root);
    return 0;
}

TEST(lines_of_the_names_are_added_up)
{
    static const char *const names[] = {"active_file", "inactive_file", NULL}, *const total[] = {"MemTotal:", NULL};
    assert_int_equal(
        kernel_text_sum(write_file("a", "active_file 7\nactive_file_x 9\n\ninactive_file 5\nMemTotal: 8 kB"), names), 12);
    assert_int_equal(kernel_text_sum(path, total), 8);
    assert_int_equal(kernel_text_sum("/nowhere", total), 0);
    assert_true(kernel_text_sum("/proc/meminfo", total) > 0);
}

TEST(a_limit_that_is_none_is_the_largest_number)
{
    assert_int_equal(kernel_text_number(write_file("b", "4096\n")), 4096);
    assert_true(kernel_text_number(write_file("b", "max\n")) == UINT64_MAX);
    assert_true(kernel_text_number(write_file("b", "")) == UINT64_MAX);
    assert_true(kernel_text_number("/nowhere") == UINT64_MAX);
}

TESTS_IN(make_root, remove_root)
