/* Files and headers that hold secrets: what fits, and what is seen to be too long. */
#include "tests/support/unit.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "source/secret.h"

TEST(what_fits_a_header_is_printable_and_not_too_long)
{
    static const char *const wrong[] = {"", " ", "a b", "a\nb", "a\r", "\x7f", "\xc3\xa9", "\x01"};
    char *text = malloc(SECRET_MAX_CHARS + 2);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_false(secret_fits_header(wrong[i]));
    memset(text, 'x', SECRET_MAX_CHARS + 1);
    text[SECRET_MAX_CHARS + 1] = '\0';
    assert_false(secret_fits_header(text));
    text[SECRET_MAX_CHARS] = '\0';
    assert_true(secret_fits_header(text));
    secret_free(text);
    secret_free(NULL);
}

TEST(a_file_is_read_whole_or_seen_to_be_longer)
{
    char path[] = "/tmp/test_secret.XXXXXX";
    int fd = mkstemp(path);
    size_t length;
    assert_int_equal(write(fd, "four", 4), 4);
    char *text = secret_read_file(path, 4, &length);
    assert_string_equal(text, "four");
    assert_int_equal(length, 4);
    secret_free(text);
    text = secret_read_file(path, 3, &length);
    assert_true(length > 3);
    secret_free(text);
    close(fd);
    unlink(path);
    assert_null(secret_read_file(path, 4, &length));
    assert_int_equal(errno, ENOENT);
    text = secret_read_file("/tmp", 4, &length); /* it can be opened and not read */
    assert_true(text && length == SIZE_MAX);
    secret_free(text);
}

TEST(a_file_of_ones_own_is_one_that_no_other_user_can_have_written)
{
    char folder[] = "/tmp/test_secret.XXXXXX", path[64], other[64];
    size_t length;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/kept", folder);
    snprintf(other, sizeof other, "%s/link", folder);
    FILE *file = fopen(path, "w");
    assert_true(file && fputs("mine", file) >= 0 && fclose(file) == 0);
    assert_int_equal(chmod(path, 0600), 0);
    char *text = secret_read_own_file(path, 10, &length);
    assert_string_equal(text, "mine");
    secret_free(text);
    assert_int_equal(symlink(path, other), 0);
    assert_null(secret_read_own_file(other, 10, &length));
    assert_null(secret_read_own_file(folder, 10, &length));
    assert_int_equal(chmod(path, 0620), 0);
    assert_null(secret_read_own_file(path, 10, &length));
    assert_int_equal(errno, EPERM);
    assert_int_equal(chmod(path, 0600), 0);
    assert_int_equal(chmod(folder, 0770), 0);
    assert_null(secret_read_own_file(path, 10, &length));
    assert_int_equal(chmod(folder, 0700), 0);
    if (geteuid() == 0) {
        assert_int_equal(chown(path, 70001, 70001), 0);
        assert_null(secret_read_own_file(path, 10, &length));
    }
    unlink(path);
    unlink(other);
    rmdir(folder);
}
