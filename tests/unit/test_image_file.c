/* Who may write to the file below a loop device, in a /sys of the test's own; real devices are in tests/e2e/test_mapped.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "source/disk/image_file.h"

#include <cmocka.h>
#undef fail /* ours is in base/error.h */

static char root[64], image[80];
static struct error error;

static void run(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void run(const char *format, ...)
{
    char command[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(command, sizeof command, format, arguments);
    va_end(arguments);
    assert_int_equal(system(command), 0);
}

/* 7:3 is a loop device, 259:1 a partition of one, 8:0 a disk. */
static int make_sys(void **state)
{
    (void)state;
    strcpy(root, "/tmp/test_image_file_XXXXXX");
    assert_non_null(mkdtemp(root));
    snprintf(image, sizeof image, "%s/image", root);
    run("cd %s && mkdir -p devices/loop3/loop devices/loop3/loop3p1 devices/sda dev/block && echo %s "
        ">devices/loop3/loop/backing_file",
        root, image);
    run("cd %s/dev/block && ln -s ../../devices/loop3 7:3 && ln -s ../../devices/loop3/loop3p1 259:1 && ln -s "
        "../../devices/sda 8:0",
        root);
    run("touch %s && chmod 644 %s", image, image);
    return 0;
}

static int remove_sys(void **state)
{
    (void)state;
    run("rm -rf %s", root);
    return 0;
}

static void assert_refused(dev_t device, const char *naming)
{
    assert_int_equal(image_file_check(root, device, &error), -1);
    assert_int_equal(error.code, ERROR_FAILED_PRECONDITION);
    assert_string_equal(error.reason, "NOT_IMMUTABLE");
    assert_non_null(strstr(error.message, naming));
    assert_non_null(strstr(error.message, image));
}

static void what_is_no_loop_device_has_no_file(void **state)
{
    (void)state;
    run("chmod 666 %s", image);
    assert_int_equal(image_file_check(root, makedev(8, 0), &error), 0);
    assert_int_equal(image_file_check(root, makedev(0, 42), &error), 0);
}

static void an_image_of_this_user_alone_is_good(void **state)
{
    (void)state;
    assert_int_equal(image_file_check(root, makedev(7, 3), &error), 0);
    assert_int_equal(image_file_check(root, makedev(259, 1), &error), 0);
}

static void an_image_that_others_may_write_to_is_not(void **state)
{
    (void)state;
    run("chmod 664 %s", image);
    assert_refused(makedev(7, 3), "mode 0664");
    run("chmod 646 %s", image);
    assert_refused(makedev(259, 1), "mode 0646");
    run("chmod 644 %s", image);
    if (geteuid() == 0) {
        assert_int_equal(chown(image, 4242, 0), 0);
        assert_refused(makedev(7, 3), "user 4242");
    }
}

static void an_image_that_is_not_to_be_seen_is_not(void **state)
{
    (void)state;
    run("mv %s %s.new", image, image);
    assert_refused(makedev(7, 3), "cannot be seen");
}

#define IN_SYS(test) cmocka_unit_test_setup_teardown(test, make_sys, remove_sys)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_SYS(what_is_no_loop_device_has_no_file),
        IN_SYS(an_image_of_this_user_alone_is_good),
        IN_SYS(an_image_that_others_may_write_to_is_not),
        IN_SYS(an_image_that_is_not_to_be_seen_is_not),
    };
    return cmocka_run_group_tests_name("image_file", tests, NULL, NULL);
}
