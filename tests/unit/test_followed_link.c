/* Links are followed as the kernel follows them, but no link of another user to a file of a third. */
#include "tests/support/unit.h"

#include "base/followed_link.h"

#include <fcntl.h>
#include <unistd.h>

#include "tests/support/model_dir.h"

enum { ANN = 70001, BOB = 70002, MAX_LINKS = 40 };

static char root[MODEL_PATH_CHARS];
static int folder_fd;
static struct error error;

static void link_of(const char *target, const char *name, uid_t owner)
{
    assert_int_equal(symlinkat(target, folder_fd, name), 0);
    if (owner)
        assert_int_equal(fchownat(folder_fd, name, owner, owner, AT_SYMLINK_NOFOLLOW), 0);
}

static int set_up(void **state)
{
    (void)state;
    model_dir_create(root);
    folder_fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    model_dir_mkdir(root, "d");
    model_dir_write(root, "d/file", "bytes", 5);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    close(folder_fd);
    model_dir_destroy(root);
    return 0;
}

/* The same file as the kernel finds. */
static void assert_found(const char *name)
{
    struct stat found, wanted;
    assert_int_equal(fstatat(folder_fd, name, &wanted, 0), 0);
    assert_int_equal(followed_link_stat(folder_fd, name, name, &found, &error), 0);
    assert_true(found.st_dev == wanted.st_dev && found.st_ino == wanted.st_ino);
}

static void assert_refused(const char *name, enum error_code code)
{
    struct stat found;
    assert_int_equal(followed_link_stat(folder_fd, name, name, &found, &error), -1);
    assert_int_equal(error.code, code);
}

TEST_IN(ones_own_links_lead_where_the_kernel_follows_them, set_up, tear_down)
{
    char absolute[MODEL_PATH_CHARS];
    link_of("d/file", "relative", 0);
    link_of(model_dir_path(root, "d/file", absolute), "absolute", 0);
    link_of("d", "folder", 0);
    link_of("folder/../d/./file", "through", 0);
    link_of("d/", "slash", 0);
    link_of("/", "top", 0);
    for (const char *const *name =
             (const char *const[]){"d", "relative", "absolute", "folder", "through", "slash", "top", NULL};
         *name; name++)
        assert_found(*name);
    assert_refused("nothing", ERROR_NOT_FOUND);
    link_of("nothing", "dangling", 0);
    assert_refused("dangling", ERROR_NOT_FOUND);
}

TEST_IN(a_stranger_links_to_his_own_files_alone, set_up, tear_down)
{
    char secret[MODEL_PATH_CHARS];
    if (geteuid() != 0)
        skip();
    link_of("d/file", "hers", ANN);
    link_of("d/file", "his", BOB);
    link_of("hers", "of root", 0);
    link_of("hers", "of both", BOB);
    link_of(model_dir_path(root, "d", secret), "folder", ANN);
    link_of("folder/file", "within", 0);
    for (const char *const *name = (const char *const[]){"hers", "his", "of root", "of both", "within", NULL}; *name;
         name++) {
        assert_refused(*name, ERROR_PERMISSION_DENIED);
        assert_string_equal(error.reason, "FOREIGN_LINK");
    }
    assert_int_equal(fchownat(folder_fd, "d/file", ANN, ANN, 0), 0);
    for (const char *const *name = (const char *const[]){"hers", "of root", "within", NULL}; *name; name++)
        assert_found(*name);
    assert_refused("his", ERROR_PERMISSION_DENIED);
    assert_refused("of both", ERROR_PERMISSION_DENIED);
}

TEST_IN(forty_links_are_followed_and_not_one_more, set_up, tear_down)
{
    char name[16], target[16] = "d/file";
    for (int i = 1; i <= MAX_LINKS + 1; i++) {
        snprintf(name, sizeof name, "l%d", i);
        link_of(target, name, 0);
        snprintf(target, sizeof target, "%s", name);
    }
    assert_found("l40");
    assert_refused("l41", ERROR_FAILED_PRECONDITION);
    link_of("round", "round", 0);
    assert_refused("round", ERROR_FAILED_PRECONDITION);
}

TEST_IN(what_is_too_long_is_no_other_name, set_up, tear_down)
{
    char name[300], target[300 + 8] = "d/";
    memset(name, 'x', sizeof name);
    name[255] = '\0';
    model_dir_write(root, name, "", 0);
    name[255] = 'x';
    name[256] = '\0';
    strcpy(target, name);
    link_of(target, "long", 0);
    assert_refused("long", ERROR_INVALID_ARGUMENT);
}
