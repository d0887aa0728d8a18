/* Paths lead anywhere inside the trusted roots and nowhere else; outside, existence stays unknown. All of it twice: with openat2()
 * and in a sandbox that refuses it. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/path_step.h"
#include "source/disk/trusted_path.h"
#include "tests/support/model_dir.h"
#include "tests/support/refuse_openat2.h"

#include <cmocka.h>

/* base/{a,b}: trusted; base/alias -> a: trusted under this name, too; base/outside, base/a-sibling: not. */
static char base[MODEL_PATH_CHARS];
static struct trusted_roots roots;

static int create(void **state)
{
    char b[MODEL_PATH_CHARS], alias[MODEL_PATH_CHARS], target[2 * MODEL_PATH_CHARS];
    (void)state;
    model_dir_create(base);
    static const char *const folders[] = {"a", "a/model", "a/blobs", "a/snapshot", "b", "outside", "a-sibling"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        model_dir_mkdir(base, folders[i]);
    static const char *const files[] = {"a/model/f", "a/blobs/0123", "b/f", "outside/f", "a-sibling/f"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        model_dir_write(base, files[i], files[i], strlen(files[i]));
    model_dir_link(base, "alias", "a");
    model_dir_link(base, "a/snapshot/f", "../blobs/0123");
    model_dir_link(base, "a/to-b", "../b");
    model_dir_link(base, "a/out", "../outside");
    model_dir_link(base, "a/out-file", "../outside/f");
    model_dir_link(base, "a/out-missing", "../outside/missing");
    model_dir_link(base, "a/x", "y");
    model_dir_link(base, "a/y", "x");
    model_dir_link(base, "a/dangling", "nothing");
    snprintf(target, sizeof target, "%s/a/blobs", base);
    model_dir_link(base, "b/absolute", target);
    snprintf(target, sizeof target, "%s/alias/model", base);
    model_dir_link(base, "b/absolute-alias", target);
    snprintf(target, sizeof target, "%s/outside", base);
    model_dir_link(base, "b/absolute-out", target);
    model_dir_path(base, "alias/", alias);
    model_dir_path(base, "b", b);
    trusted_roots_init(&roots, (const char *const[]){alias, b}, 2);
    return 0;
}

static int destroy(void **state)
{
    (void)state;
    trusted_roots_fini(&roots);
    model_dir_destroy(base);
    return 0;
}

static void opens(const char *name, const char *same_as)
{
    char path[MODEL_PATH_CHARS];
    struct stat got, wanted;
    struct error error;
    int fd = trusted_path_open(&roots, model_dir_path(base, name, path), &error);
    if (fd < 0)
        fail_msg("%s: %s", name, error.message);
    assert_int_equal(fstat(fd, &got), 0);
    assert_int_equal(stat(model_dir_path(base, same_as, path), &wanted), 0);
    assert_true(got.st_ino == wanted.st_ino && got.st_dev == wanted.st_dev);
    close(fd);
}

static void refuses(const char *name, enum error_code code)
{
    char path[MODEL_PATH_CHARS];
    struct error error;
    int fd = trusted_path_open(&roots, model_dir_path(base, name, path), &error);
    if (fd >= 0)
        fail_msg("opened %s", name);
    if (error.code != code)
        fail_msg("%s: %s: %s", name, error_code_name(error.code), error.message);
    assert_non_null(strstr(error.message, strrchr(path, '/')));
}

static void names_of_roots_and_links_inside_them_are_followed(void **state)
{
    static const struct {
        const char *name, *same_as;
    } rows[] = {{"a", "a"},
                {"alias", "a"},
                {"a/model/f", "a/model/f"},
                {"alias//model/./f", "a/model/f"},
                {"b/f", "b/f"},
                {"a/snapshot/f", "a/blobs/0123"},
                {"a/to-b/f", "b/f"},
                {"b/absolute/0123", "a/blobs/0123"},
                {"b/absolute-alias/f", "a/model/f"},
                {"a/to-b/../a/model/f", "a/model/f"},
                {"a/model/../snapshot/../model/f", "a/model/f"},
                {"outside/../a/model/f", "a/model/f"}, /* as text: outside is not looked at */
                {"a/out/../a/model/f", "a/model/f"},
                {"missing/../a/model/f", "a/model/f"}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        opens(rows[i].name, rows[i].same_as);
}

static void a_plain_path_leads_through_no_link_but_the_root(void **state)
{
    static const struct {
        const char *name;
        enum error_code code;
    } rows[] = {{"alias/model", ERROR_OK},
                {"alias", ERROR_OK},
                {"a/model", ERROR_FAILED_PRECONDITION}, /* it has one name, and that is by the root */
                {"a", ERROR_FAILED_PRECONDITION},
                {"b", ERROR_OK},
                {"a/snapshot/f", ERROR_FAILED_PRECONDITION},
                {"a/to-b", ERROR_FAILED_PRECONDITION},
                {"a/to-b/f", ERROR_FAILED_PRECONDITION},
                {"b/absolute-alias/f", ERROR_FAILED_PRECONDITION},
                {"a/dangling", ERROR_FAILED_PRECONDITION},
                {"a/out", ERROR_PERMISSION_DENIED},
                {"a/missing", ERROR_NOT_FOUND},
                {"outside", ERROR_PERMISSION_DENIED}};
    char path[MODEL_PATH_CHARS];
    struct error error;
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int fd = trusted_path_open_plain(&roots, model_dir_path(base, rows[i].name, path), &error);
        assert_int_equal(fd < 0 ? error.code : ERROR_OK, rows[i].code);
        if (rows[i].code == ERROR_FAILED_PRECONDITION)
            assert_string_equal(error.reason, "LINK_IN_PATH");
        if (fd >= 0)
            close(fd);
    }
}

static void a_folder_that_two_roots_lead_to_has_one_plain_name(void **state)
{
    char paths[3][MODEL_PATH_CHARS];
    struct error error;
    (void)state;
    static const char *const names[] = {"alias", "a", "b"};
    for (size_t i = 0; i < 3; i++)
        model_dir_path(base, names[i], paths[i]);
    for (size_t first = 0; first < 2; first++) { /* in either order the file that is no link */
        struct trusted_roots both;
        trusted_roots_init(&both, (const char *const[]){paths[first], paths[1 - first], paths[2]}, 3);
        for (size_t i = 0; i < 2; i++) {
            char path[MODEL_PATH_CHARS + 8];
            snprintf(path, sizeof path, "%s/model", paths[i]);
            int fd = trusted_path_open_plain(&both, path, &error);
            assert_int_equal(fd >= 0, i);
            if (fd >= 0)
                close(fd);
            else
                assert_non_null(strstr(error.message, "/a/model"));
        }
        trusted_roots_fini(&both);
    }
}

static void whatever_leads_outside_is_denied_whether_it_exists_or_not(void **state)
{
    static const char *const names[] = {
        "outside",
        "outside/f",
        "missing",
        "missing/f",
        "a-sibling",
        "a-sibling/f",
        "a/..",
        "a/../outside/f",
        "a/../missing",
        "a/out",
        "a/out/f",
        "a/out/missing",
        "a/out-file",
        "a/out-missing",
        "b/absolute-out",
        "b/absolute-out/f",
        "a/../../../../../../../etc/passwd",
        "b/../a-sibling/f",
        "alias/model/../../outside/f",
    };
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        refuses(names[i], ERROR_PERMISSION_DENIED);
}

static void what_is_missing_inside_is_not_found_and_a_cycle_of_links_ends(void **state)
{
    static const char *const missing[] = {"a/missing", "a/model/missing/f", "a/model/f/g" /* below a file */, "a/dangling"};
    (void)state;
    for (size_t i = 0; i < sizeof missing / sizeof *missing; i++)
        refuses(missing[i], ERROR_NOT_FOUND);
    refuses("a/x", ERROR_FAILED_PRECONDITION);
    refuses("a/x/f", ERROR_FAILED_PRECONDITION);
}

static void refuses_with(const char *name, const char *format, ...)
{
    char path[MODEL_PATH_CHARS], wanted[4 * MODEL_PATH_CHARS];
    struct error error;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(wanted, sizeof wanted, format, arguments);
    va_end(arguments);
    assert_int_equal(trusted_path_open(&roots, model_dir_path(base, name, path), &error), -1);
    assert_string_equal(error.reason, "OUTSIDE_TRUSTED_ROOTS");
    if (!strstr(error.message, wanted))
        fail_msg("%s\ndoes not say: %s", error.message, wanted);
}

static void a_link_that_leads_outside_is_blamed_and_not_the_path_inside(void **state)
{
    char target[2 * MODEL_PATH_CHARS];
    (void)state;
    refuses_with("a/out-file",
                 "/a/out-file is a link to ../outside/f, which is outside the trusted roots; add %s/outside to "
                 "sources.disk.trusted_roots",
                 base);
    refuses_with("a/out-missing", "is a link to ../outside/missing, which is outside the trusted roots; add %s/outside to",
                 base);
    refuses_with("a/out/f",
                 "/a/out/f leads through a link to ../outside, which is outside the trusted roots; add %s/outside to", base);
    refuses_with("b/absolute-out/f", "leads through a link to %s/outside, which", base);
    refuses_with("outside/f", "/outside/f is outside the trusted roots; add its folder to sources.disk.trusted_roots");
    refuses_with("outside/f", "or start a daemon of your own with that folder (tensorcastd --user --root DIR)");
    model_dir_link(base, "a/to-out-file", "out-file");
    refuses_with("a/to-out-file", "leads through a link to ../outside/f, which");

    model_dir_mkdir(base, "a/snapshots"); /* of a hub cache whose snapshots alone are trusted */
    model_dir_mkdir(base, "hub");
    snprintf(target, sizeof target, "%s/hub/models--org--tiny/blobs/3f2a", base);
    model_dir_link(base, "a/snapshots/model.safetensors", target);
    refuses_with("a/snapshots/model.safetensors",
                 "is a link to %s, which is outside the trusted roots; add %s/hub to "
                 "sources.disk.trusted_roots",
                 target, base);
}

static void links_are_followed_forty_times(void **state)
{
    char name[64], target[64];
    (void)state;
    for (int i = 1; i <= 41; i++) {
        snprintf(name, sizeof name, "b/link-%d", i);
        snprintf(target, sizeof target, i == 1 ? "f" : "link-%d", i - 1);
        model_dir_link(base, name, target);
    }
    opens("b/link-40", "b/f");
    refuses("b/link-41", ERROR_FAILED_PRECONDITION);
}

static void names_that_are_too_long_are_refused(void **state)
{
    char path[20000];
    struct error error;
    (void)state;
    snprintf(path, sizeof path, "%s/a/%0300d", base, 0);
    assert_int_equal(trusted_path_open(&roots, path, &error), -1);
    assert_int_equal(error.code, ERROR_INVALID_ARGUMENT);
    snprintf(path, sizeof path, "%s/a/%019000d", base, 0);
    assert_int_equal(trusted_path_open(&roots, path, &error), -1);
    assert_int_equal(error.code, ERROR_INVALID_ARGUMENT);
    assert_int_equal(trusted_path_open(&roots, "relative/path", &error), -1);
    assert_int_equal(error.code, ERROR_PERMISSION_DENIED);
}

static void without_roots_nothing_is_trusted(void **state)
{
    struct trusted_roots none = {0};
    struct error error;
    (void)state;
    assert_int_equal(trusted_path_open(&none, "/", &error), -1);
    assert_int_equal(error.code, ERROR_PERMISSION_DENIED);
    trusted_roots_init(&none, NULL, 0);
    assert_int_equal(trusted_path_open(&none, base, &error), -1);
    trusted_roots_fini(&none);
}

static void the_root_directory_and_missing_folders_may_be_roots(void **state)
{
    char missing[MODEL_PATH_CHARS], path[MODEL_PATH_CHARS];
    struct trusted_roots wide;
    struct error error;
    (void)state;
    model_dir_path(base, "not-yet", missing);
    trusted_roots_init(&wide, (const char *const[]){missing}, 1);
    assert_int_equal(trusted_path_open(&wide, model_dir_path(missing, "f", path), &error), -1);
    assert_int_equal(error.code, ERROR_NOT_FOUND);
    trusted_roots_fini(&wide);
    trusted_roots_init(&wide, (const char *const[]){"/"}, 1);
    int fd = trusted_path_open(&wide, model_dir_path(base, "outside/f", path), &error);
    assert_true(fd >= 0);
    close(fd);
    fd = trusted_path_open(&wide, "/../..", &error);
    assert_true(fd >= 0);
    close(fd);
    trusted_roots_fini(&wide);
}

static int count_descriptors(void)
{
    int n = 0;
    for (int fd = 0; fd < 256; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static void no_descriptor_is_left_open(void **state)
{
    int before = count_descriptors();
    (void)state;
    whatever_leads_outside_is_denied_whether_it_exists_or_not(state);
    names_of_roots_and_links_inside_them_are_followed(state);
    what_is_missing_inside_is_not_found_and_a_cycle_of_links_ends(state);
    assert_int_equal(count_descriptors(), before);
}

/* Another process exchanges a folder for a link out of the roots, all the time. */
struct exchange {
    char there[MODEL_PATH_CHARS], folder[MODEL_PATH_CHARS], link[MODEL_PATH_CHARS];
    int is_over; /* atomic */
};

static void *exchange(void *data)
{
    struct exchange *names = data;
    while (!__atomic_load_n(&names->is_over, __ATOMIC_ACQUIRE)) {
        rename(names->there, names->folder);
        rename(names->link, names->there);
        rename(names->there, names->link);
        rename(names->folder, names->there);
    }
    return NULL;
}

static void a_folder_that_is_exchanged_for_a_link_leads_outside_no_time(void **state)
{
    enum { TIMES = 4000, TIMES_ON_A_BUSY_MACHINE = 1000 * TIMES };
    struct exchange names = {0};
    char path[MODEL_PATH_CHARS], outside[MODEL_PATH_CHARS], real[MODEL_PATH_CHARS], found[64];
    size_t n_opened = 0, n_refused = 0;
    pthread_t thread;
    (void)state;
    model_dir_mkdir(base, "b/there");
    model_dir_mkdir(base, "b/there/deep");
    model_dir_mkdir(base, "outside/deep");
    model_dir_write(base, "b/there/deep/f", "b/there/deep/f", 14);
    model_dir_write(base, "outside/deep/f", "outside/deep/f", 14);
    model_dir_link(base, "b/link", "../outside");
    model_dir_path(base, "b/there", names.there);
    model_dir_path(base, "b/folder", names.folder);
    model_dir_path(base, "b/link", names.link);
    model_dir_path(base, "outside", outside);
    assert_int_equal(pthread_create(&thread, NULL, exchange, &names), 0);
    for (int i = 0; i < TIMES || (!(n_opened && n_refused) && i < TIMES_ON_A_BUSY_MACHINE); i++) {
        struct error error;
        int fd = trusted_path_open(&roots, model_dir_path(base, "b/there/deep/f", path), &error);
        n_opened += fd >= 0;
        n_refused += fd < 0 && error.code == ERROR_PERMISSION_DENIED;
        assert_true(fd >= 0 || error.code == ERROR_PERMISSION_DENIED || error.code == ERROR_NOT_FOUND);
        if (fd < 0)
            continue;
        snprintf(found, sizeof found, "/proc/self/fd/%d", fd);
        ssize_t length = readlink(found, real, sizeof real - 1);
        real[length > 0 ? length : 0] = '\0';
        if (strncmp(real, outside, strlen(outside)) == 0)
            fail_msg("opened %s", real);
        close(fd);
    }
    __atomic_store_n(&names.is_over, 1, __ATOMIC_RELEASE);
    pthread_join(thread, NULL);
    assert_true(n_opened && n_refused); /* both were met */
    unlink(names.link);
    char command[2 * MODEL_PATH_CHARS];
    snprintf(command, sizeof command, "rm -rf '%s'", names.there);
    assert_int_equal(system(command), 0);
}

static void a_path_has_127_folders_below_its_root_and_not_one_more(void **state)
{
    char folder[1024] = "b", name[1024] = "b/here"; /* a link, so that the kernel does not walk for us */
    (void)state;
    model_dir_link(base, name, ".");
    for (int depth = 1; depth <= 128; depth++) {
        strcat(folder, "/d");
        strcat(name, "/d");
        model_dir_mkdir(base, folder);
        if (depth <= 127)
            opens(name, folder);
        else
            refuses(name, ERROR_INVALID_ARGUMENT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_of_roots_and_links_inside_them_are_followed),
        cmocka_unit_test(a_plain_path_leads_through_no_link_but_the_root),
        cmocka_unit_test(a_folder_that_two_roots_lead_to_has_one_plain_name),
        cmocka_unit_test(whatever_leads_outside_is_denied_whether_it_exists_or_not),
        cmocka_unit_test(what_is_missing_inside_is_not_found_and_a_cycle_of_links_ends),
        cmocka_unit_test(a_link_that_leads_outside_is_blamed_and_not_the_path_inside),
        cmocka_unit_test(links_are_followed_forty_times),
        cmocka_unit_test(names_that_are_too_long_are_refused),
        cmocka_unit_test(a_path_has_127_folders_below_its_root_and_not_one_more),
        cmocka_unit_test(without_roots_nothing_is_trusted),
        cmocka_unit_test(the_root_directory_and_missing_folders_may_be_roots),
        cmocka_unit_test(a_folder_that_is_exchanged_for_a_link_leads_outside_no_time),
        cmocka_unit_test(no_descriptor_is_left_open),
    };
    int failed = cmocka_run_group_tests_name("with openat2()", tests, create, destroy);
    if (!refuse_openat2(EPERM) || path_step_refused() != EPERM)
        return 1;
    return failed + cmocka_run_group_tests_name("without openat2()", tests, create, destroy);
}
