/* The archive: read by the tools that people have, and never in the place of anything. */
#include "tests/support/unit.h"

#include <sys/stat.h>
#include <unistd.h>

#include "client/cli/bundle.h"

#undef fail /* ours is in base/error.h */

static char folder[] = "/tmp/tc-bundle-XXXXXX";

static void enter_folder(void)
{
    strcpy(folder + sizeof folder - sizeof "XXXXXX", "XXXXXX");
    assert_non_null(mkdtemp(folder));
    assert_int_equal(chdir(folder), 0);
}

static void leave_folder(void)
{
    char command[64];
    assert_int_equal(chdir("/"), 0);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    assert_int_equal(system(command), 0);
}

static size_t count_names(void)
{
    size_t n = 0;
    FILE *names = popen("ls -A", "r");
    for (int c; (c = fgetc(names)) != EOF;)
        n += c == '\n';
    pclose(names);
    return n;
}

TEST(tar_and_zstd_read_what_was_packed)
{
    enum { LARGE = 3 << 20 };
    struct error error;
    struct stat status;
    uint64_t bytes;
    char *large = malloc(LARGE);
    memset(large, 'x', LARGE);
    enter_folder();
    struct bundle *bundle = bundle_create("b.tar.zst", &error);
    assert_non_null(bundle);
    bundle_add(bundle, "small.txt", "hello", 5);
    bundle_add(bundle, "empty.txt", "", 0);
    bundle_add(bundle, "block.txt", large, 512);
    bundle_add(bundle, "large.txt", large, LARGE);
    assert_int_equal(count_names(), 0); /* not before it is complete */
    assert_int_equal(bundle_commit(bundle, &bytes, &error), 0);
    bundle_close(bundle);
    assert_int_equal(stat("b.tar.zst", &status), 0);
    assert_int_equal(status.st_mode & 07777, 0600);
    assert_int_equal(status.st_size, bytes);
    assert_true(bytes < 10000);
    if (system("zstd -q -t b.tar.zst && zstd -dc b.tar.zst | tar -xf - && [ \"$(cat small.txt)\" = hello ] && "
               "[ $(stat -c %s empty.txt block.txt large.txt | xargs | tr ' ' -) = 0-512-3145728 ]") != 0)
        fail_msg("the archive is not what it should be");
    free(large);
    leave_folder();
}

static void assert_refused(const char *path, const char *word)
{
    struct error error;
    struct bundle *bundle = bundle_create(path, &error);
    if (bundle)
        fail_msg("%s was accepted", path);
    if (!strstr(error.message, word))
        fail_msg("%s: %s", path, error.message);
}

TEST(nothing_is_replaced_or_written_through)
{
    struct error error;
    uint64_t bytes;
    enter_folder();
    fclose(fopen("there", "w"));
    assert_int_equal(symlink("nowhere", "link"), 0);
    assert_refused("there", "there already");
    assert_refused("link", "there already");
    assert_refused(".", "there already");
    assert_refused("missing/b", "missing");
    assert_refused("there/", "there");
    struct bundle *bundle = bundle_create("late", &error);
    assert_int_equal(symlink("nowhere", "late"), 0); /* meanwhile */
    assert_int_equal(bundle_commit(bundle, &bytes, &error), -1);
    assert_string_equal(error.reason, "FILE_EXISTS");
    bundle_close(bundle);
    assert_int_equal(access("nowhere", F_OK), -1);
    assert_int_equal(count_names(), 3);
    leave_folder();
}

TEST(a_bundle_that_is_given_up_leaves_nothing)
{
    struct error error;
    enter_folder();
    struct bundle *bundle = bundle_create("b", &error);
    bundle_add(bundle, "a", "b", 1);
    bundle_close(bundle);
    assert_int_equal(count_names(), 0);
    bundle_close(NULL);
    leave_folder();
}
