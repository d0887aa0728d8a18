/* Operands of root: links of other users are followed to what is theirs, and nowhere else. */
#include "tests/support/unit.h"

#include "base/operand.h"

#include <errno.h>
#include <unistd.h>

#include "tests/support/model_dir.h"

enum { ANN = 70001 };

static char root[MODEL_PATH_CHARS];
static struct error error;

static const char *below(const char *name)
{
    static char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", root, name);
    return path;
}

static void link_of_ann(const char *target, const char *name)
{
    assert_int_equal(symlink(target, below(name)), 0);
    assert_int_equal(lchown(below(name), ANN, ANN), 0);
}

static int set_up(void **state)
{
    (void)state;
    model_dir_create(root);
    model_dir_mkdir(root, "d");
    model_dir_write(root, "d/file", "bytes", 5);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    model_dir_destroy(root);
    return 0;
}

TEST_IN(what_is_there_is_resolved_and_what_is_not_is_no_failure, set_up, tear_down)
{
    char resolved[PATH_MAX], wanted[PATH_MAX];
    assert_non_null(realpath(below("d/file"), wanted));
    assert_int_equal(operand_resolve(below("d/file"), resolved, &error), 1);
    assert_string_equal(resolved, wanted);
    assert_int_equal(operand_resolve(below("none"), resolved, &error), 0);
    assert_int_equal(errno, ENOENT);
    assert_int_equal(operand_check(below("none/deeper"), &error), 0);
    assert_int_equal(operand_check("", &error), 0);
    assert_int_equal(operand_resolve("/", resolved, &error), 1);
}

TEST_IN(a_link_of_another_user_leads_root_to_nothing_but_theirs, set_up, tear_down)
{
    static const char *const refused[] = {"file", "dir", "dir/", "dir/file", "dir/new", "dir/new/"};
    char resolved[PATH_MAX];
    if (geteuid() != 0)
        skip();
    link_of_ann("d/file", "file");
    link_of_ann("d", "dir");
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        assert_int_equal(operand_check(below(refused[i]), &error), -1);
        assert_int_equal(operand_resolve(below(refused[i]), resolved, &error), -1);
        assert_string_equal(error.reason, "FOREIGN_LINK");
    }
    assert_int_equal(chown(below("d"), ANN, ANN), 0);
    assert_int_equal(operand_check(below("dir"), &error), 0);
    assert_int_equal(operand_check(below("dir/new"), &error), 0);
    assert_int_equal(operand_resolve(below("dir"), resolved, &error), 1);
    assert_int_equal(operand_check(below("dir/file"), &error), -1); /* root's */
}
