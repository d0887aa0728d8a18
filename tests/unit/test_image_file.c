/* Who may write to the file below a loop device, in a /sys of the test's own; real devices are in tests/e2e/test_mapped.py. */
#include "tests/support/unit.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "source/disk/image_file.h"
#include "tests/support/shell.h"

#undef fail /* ours is in base/error.h */

static char root[64], image[80];
static struct error error;

/* 7:3 is a loop device, 259:1 a partition of one, 253:0 a device on that, 253:1 one on the latter, 8:0 a disk. */
static int make_sys(void **state)
{
    (void)state;
    strcpy(root, "/tmp/test_image_file_XXXXXX");
    assert_non_null(mkdtemp(root));
    snprintf(image, sizeof image, "%s/images/image", root);
    shell("cd %s && mkdir -p devices/loop3/loop devices/loop3/loop3p1 devices/sda dev/block images && echo %s "
          ">devices/loop3/loop/backing_file",
          root, image);
    shell("cd %s/devices && mkdir -p dm-0/slaves dm-1/slaves && echo 259:1 >loop3/loop3p1/dev && echo 253:0 >dm-0/dev && "
          "ln -s ../../loop3/loop3p1 dm-0/slaves/ && ln -s ../../dm-0 dm-1/slaves/",
          root);
    shell("cd %s/dev/block && ln -s ../../devices/loop3 7:3 && ln -s ../../devices/loop3/loop3p1 259:1 && ln -s "
          "../../devices/sda 8:0 && ln -s ../../devices/dm-0 253:0 && ln -s ../../devices/dm-1 253:1",
          root);
    shell("touch %s && chmod 644 %s && chmod 755 %s", image, image, root);
    return 0;
}

static int remove_sys(void **state)
{
    (void)state;
    shell("rm -rf %s", root);
    return 0;
}

static void assert_refused(dev_t device, const char *naming)
{
    assert_int_equal(image_file_check(root, device, &error), -1);
    assert_int_equal(error.code, ERROR_FAILED_PRECONDITION);
    assert_string_equal(error.reason, "NOT_IMMUTABLE");
    assert_non_null(strstr(error.message, naming));
}

TEST_IN(what_is_on_no_loop_device_has_no_file, make_sys, remove_sys)
{
    shell("chmod 666 %s", image);
    assert_int_equal(image_file_check(root, makedev(8, 0), &error), 0);
    assert_refused(makedev(0, 42), "no block device");
    assert_refused(makedev(7, 1234567), "7:1234567"); /* neither here nor there */
}

TEST_IN(an_image_of_this_user_alone_is_good, make_sys, remove_sys)
{
    const dev_t devices[] = {makedev(7, 3), makedev(259, 1), makedev(253, 0), makedev(253, 1)};
    for (size_t i = 0; i < sizeof devices / sizeof devices[0]; i++)
        assert_int_equal(image_file_check(root, devices[i], &error), 0);
}

TEST_IN(an_image_that_others_may_write_to_is_not, make_sys, remove_sys)
{
    shell("chmod 664 %s", image);
    assert_refused(makedev(7, 3), "mode 0664");
    assert_refused(makedev(253, 0), "mode 0664");
    shell("chmod 646 %s", image);
    assert_refused(makedev(259, 1), "mode 0646");
    assert_refused(makedev(253, 1), "mode 0646");
    shell("chmod 644 %s", image);
    if (geteuid() == 0) {
        assert_int_equal(chown(image, 4242, 0), 0);
        assert_refused(makedev(7, 3), "user 4242");
        assert_refused(makedev(253, 1), image);
    }
}

TEST_IN(an_image_in_whose_place_others_may_put_another_one_is_not, make_sys, remove_sys)
{
    shell("chmod 777 %s/images", root);
    assert_refused(makedev(7, 3), "is below");
    shell("chmod 1777 %s/images", root); /* as /tmp: no other user renames it */
    assert_int_equal(image_file_check(root, makedev(7, 3), &error), 0);
    shell("chmod 755 %s/images", root);
    if (geteuid() == 0) {
        shell("chown 4242 %s/images", root);
        assert_refused(makedev(7, 3), "user 4242");
    }
}

/* What the kernel calls a file that was removed is a name that any user could give to another file. */
TEST_IN(an_image_that_is_not_to_be_seen_is_not, make_sys, remove_sys)
{
    shell("mv %s %s.new", image, image);
    assert_refused(makedev(7, 3), "cannot be seen");
    shell("echo '%s (deleted)' >%s/devices/loop3/loop/backing_file && ln -s /etc/passwd '%s (deleted)'", image, root, image);
    assert_refused(makedev(7, 3), "cannot be seen");
    shell("ln -s %s.new %s && echo %s >%s/devices/loop3/loop/backing_file", image, image, image, root);
    assert_refused(makedev(7, 3), "cannot be seen");
    shell("echo relative >%s/devices/loop3/loop/backing_file", root);
    assert_refused(makedev(7, 3), "no path");
}

/* A device of devices, of which one is unknown, or that never ends. */
TEST_IN(layers_that_cannot_be_followed_are_no_proof, make_sys, remove_sys)
{
    shell("rm %s/devices/dm-0/dev", root);
    assert_refused(makedev(253, 1), "253:1");
    shell("echo 253:1 >%s/devices/dm-0/dev", root);
    assert_refused(makedev(253, 1), "253:1");
}
