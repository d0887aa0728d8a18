/* The folder of an export: absent, old or complete; and the journal of what is durable. */
#include "tests/support/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "export/export_files.h"
#include "export/export_target.h"
#include "tests/support/shell.h"

static struct error error;
static char folder[64], out[96], work[96];

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/test_export_target_XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(out, sizeof out, "%s/out", folder);
    snprintf(work, sizeof work, "%s/.out.exporting", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    shell("rm -rf %s", folder);
    return 0;
}

static void put_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static struct export_target begin(bool force)
{
    struct export_target target;
    char path[PATH_MAX + 80];
    assert_int_equal(export_target_open(&target, out, force, &error), 0);
    assert_int_equal(export_target_begin(&target, &error), 0);
    snprintf(path, sizeof path, "%s/new", target.content_path);
    put_file(path, "new");
    return target;
}

static void assert_published(struct export_target *target)
{
    char path[128];
    assert_int_equal(export_target_publish(target, &error), 0);
    export_target_close(target);
    snprintf(path, sizeof path, "%s/new", out);
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(access(work, F_OK), -1);
}

TEST_IN(a_new_folder_appears_by_a_rename, make_folder, remove_folder)
{
    struct export_target target = begin(false);
    assert_int_equal(access(out, F_OK), -1);
    assert_published(&target);
}

TEST_IN(an_empty_folder_is_replaced, make_folder, remove_folder)
{
    mkdir(out, 0755);
    struct export_target target = begin(false);
    assert_published(&target);
}

TEST_IN(a_folder_with_something_in_it_is_replaced_by_force_alone, make_folder, remove_folder)
{
    struct export_target target;
    char path[128], deep[160];
    mkdir(out, 0755);
    snprintf(path, sizeof path, "%s/sub", out);
    mkdir(path, 0755);
    snprintf(deep, sizeof deep, "%s/old", path);
    put_file(deep, "old");
    assert_int_equal(export_target_open(&target, out, false, &error), -1);
    assert_int_equal(error.code, ERROR_FAILED_PRECONDITION);
    export_target_close(&target);
    target = begin(true);
    assert_published(&target);
    assert_int_equal(access(path, F_OK), -1);
}

TEST_IN(what_came_into_the_target_meanwhile_is_kept, make_folder, remove_folder)
{
    struct export_target target;
    char path[128];
    mkdir(out, 0755);
    target = begin(false);
    snprintf(path, sizeof path, "%s/mine", out);
    put_file(path, "mine");
    assert_int_equal(export_target_publish(&target, &error), -1);
    assert_int_equal(error.code, ERROR_FAILED_PRECONDITION);
    assert_int_equal(access(path, F_OK), 0);
    export_target_discard(&target);
    export_target_close(&target);
    assert_int_equal(access(work, F_OK), -1);
}

TEST_IN(two_exports_to_one_folder_are_refused, make_folder, remove_folder)
{
    struct export_target first = begin(false), second;
    assert_int_equal(export_target_open(&second, out, false, &error), 0);
    assert_int_equal(export_target_begin(&second, &error), -1);
    assert_int_equal(error.code, ERROR_FAILED_PRECONDITION);
    export_target_close(&second);
    assert_published(&first);
}

TEST_IN(a_file_or_a_missing_parent_is_refused, make_folder, remove_folder)
{
    struct export_target target;
    put_file(out, "mine");
    assert_int_equal(export_target_open(&target, out, true, &error), -1);
    assert_int_equal(error.code, ERROR_FAILED_PRECONDITION);
    export_target_close(&target);
    strcat(out, ".link");
    assert_int_equal(symlink("nowhere", out), 0);
    assert_int_equal(export_target_open(&target, out, true, &error), -1);
    assert_string_equal(error.reason, "TARGET_IS_NO_FOLDER");
    export_target_close(&target);
    strcat(out, ".d/x/y");
    assert_int_equal(export_target_open(&target, out, false, &error), -1);
    assert_int_equal(error.code, ERROR_NOT_FOUND);
    export_target_close(&target);
}

TEST_IN(trees_of_130_levels_are_left_and_of_100_removed, make_folder, remove_folder)
{
    for (int levels = 100; levels <= 130; levels += 30) {
        struct export_target target = begin(false);
        int fd = dup(target.content_fd);
        for (int i = 0; i < levels; i++) {
            assert_int_equal(mkdirat(fd, "d", 0755), 0);
            int inner = openat(fd, "d", O_RDONLY | O_DIRECTORY);
            close(fd);
            fd = inner;
        }
        close(fd);
        assert_int_equal(export_target_empty(&target, &error), levels == 100 ? 0 : -1);
        export_target_close(&target);
    }
}

TEST_IN(a_folder_beside_that_others_could_change_is_not_worked_in, make_folder, remove_folder)
{
    struct export_target target;
    char journal[128];
    struct stat status;
    snprintf(journal, sizeof journal, "%s/journal", work);
    for (int by_owner = 0; by_owner <= (geteuid() == 0); by_owner++) {
        assert_int_equal(mkdir(work, 0700), 0);
        if (by_owner)
            assert_int_equal(chown(work, 70001, 70001), 0);
        else
            assert_int_equal(chmod(work, 0777), 0);
        assert_int_equal(export_target_open(&target, out, false, &error), 0);
        assert_int_equal(export_target_begin(&target, &error), -1);
        assert_string_equal(error.reason, "FOREIGN_WORK_FOLDER");
        assert_int_equal(stat(journal, &status), -1);
        export_target_discard(&target); /* leaves nothing open */
        export_target_close(&target);
        rmdir(work);
    }
    target = begin(false);
    assert_published(&target);
}

TEST_IN(a_source_that_is_the_target_or_within_it_meets_it, make_folder, remove_folder)
{
    struct export_target target;
    char path[128];
    mkdir(out, 0755);
    snprintf(path, sizeof path, "%s/sub", out);
    mkdir(path, 0755);
    assert_int_equal(export_target_open(&target, out, true, &error), 0);
    assert_true(export_target_meets(&target, out));
    assert_true(export_target_meets(&target, path));
    assert_false(export_target_meets(&target, folder));
    export_target_close(&target);
}

/* --- the journal --- */

static const char fingerprint[DIGEST_HEX_CHARS + 1] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
static const char other[DIGEST_HEX_CHARS + 1] = "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210";

static int write_journal_file(void)
{
    struct export_journal journal;
    const struct journal_record records[] = {{.unit = 3, .sum = 33}, {.unit = 1, .sum = 11}};
    int fd = open(out, O_RDWR | O_CREAT, 0600);
    assert_int_equal(export_journal_open(&journal, fd, fingerprint, 5, false, &error), 0);
    assert_int_equal(export_journal_add(&journal, records, 2, &error), 0);
    export_journal_close(&journal);
    return fd;
}

static uint32_t count_done(int fd, const char *print, bool resume)
{
    struct export_journal journal;
    assert_int_equal(export_journal_open(&journal, fd, print, 5, resume, &error), 0);
    uint32_t n_done = journal.n_done;
    if (n_done == 2)
        assert_true(journal.is_done[3] && journal.is_done[1] && journal.sums[3] == 33 && !journal.is_done[0]);
    export_journal_close(&journal);
    return n_done;
}

TEST_IN(a_journal_is_read_again, make_folder, remove_folder)
{
    int fd = write_journal_file();
    assert_int_equal(count_done(fd, fingerprint, true), 2);
    close(fd);
}

TEST_IN(another_export_or_none_to_resume_begins_anew, make_folder, remove_folder)
{
    int fd = write_journal_file();
    assert_int_equal(count_done(fd, other, true), 0);
    assert_int_equal(count_done(fd, fingerprint, true), 0);
    close(fd);
    fd = write_journal_file();
    assert_int_equal(count_done(fd, fingerprint, false), 0);
    close(fd);
}

TEST_IN(records_that_a_crash_cut_or_changed_do_not_count, make_folder, remove_folder)
{
    for (off_t cut = 1; cut <= 12; cut++) {
        int fd = write_journal_file();
        assert_int_equal(ftruncate(fd, DIGEST_HEX_CHARS + 1 + 24 - cut), 0);
        assert_int_equal(count_done(fd, fingerprint, true), 1);
        close(fd);
        fd = write_journal_file();
        assert_int_equal(pwrite(fd, "\xff", 1, DIGEST_HEX_CHARS + 1 + 24 - cut), 1);
        assert_int_equal(count_done(fd, fingerprint, true), 1);
        close(fd);
    }
}
