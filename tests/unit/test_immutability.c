/* Each proof, and what is none. The kernel's answers are made up, so that every file system is at hand and every call can
 * fail; real images and attributes are in tests/e2e/test_mapped.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fsverity.h>
#include <linux/magic.h>
#include <linux/major.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "source/disk/immutability.h"
#include "tests/support/model_dir.h"

#include <cmocka.h>

static struct { /* what the kernel says */
    long filesystem;
    bool has_verity, has_attribute, knows_attribute;
    bool fstatfs_fails, statx_fails, readlink_fails;
    const char *path; /* NULL = the real one */
    unsigned n_links;
    dev_t device;
    int n_ioctls;
} kernel;

int fstatfs(int fd, struct statfs *status)
{
    (void)fd;
    *status = (struct statfs){.f_type = kernel.filesystem};
    errno = EIO;
    return kernel.fstatfs_fails ? -1 : 0;
}

int ioctl(int fd, unsigned long request, ...)
{
    (void)fd;
    kernel.n_ioctls += request == FS_IOC_MEASURE_VERITY;
    errno = ENODATA;
    return request == FS_IOC_MEASURE_VERITY && kernel.has_verity ? 0 : -1;
}

int statx(int fd, const char *path, int flags, unsigned mask, struct statx *status)
{
    if (fd != 0) { /* on the way to where a root leads */
        int (*real)(int, const char *, int, unsigned, struct statx *) =
            (int (*)(int, const char *, int, unsigned, struct statx *))dlsym(RTLD_NEXT, "statx");
        return real(fd, path, flags, mask, status);
    }
    *status = (struct statx){.stx_attributes = kernel.has_attribute ? STATX_ATTR_IMMUTABLE : 0,
                             .stx_attributes_mask = kernel.knows_attribute ? STATX_ATTR_IMMUTABLE : 0};
    errno = EIO;
    return kernel.statx_fails ? -1 : 0;
}

ssize_t readlink(const char *path, char *text, size_t room)
{
    if (strcmp(path, "/proc/self/fd/0") != 0) { /* where a root leads */
        ssize_t (*real)(const char *, char *, size_t) =
            (ssize_t(*)(const char *, char *, size_t))dlsym(RTLD_NEXT, "readlink");
        return real(path, text, room);
    }
    size_t length = strlen(kernel.path);
    memcpy(text, kernel.path, length < room ? length : room);
    errno = EIO;
    return kernel.readlink_fails ? -1 : (ssize_t)(length < room ? length : room);
}

int fstat(int fd, struct stat *status)
{
    (void)fd;
    *status = (struct stat){.st_mode = S_IFREG, .st_nlink = kernel.n_links, .st_dev = kernel.device};
    return 0;
}

static char root[MODEL_PATH_CHARS], file[MODEL_PATH_CHARS];
static struct trusted_roots no_roots, roots;

static int set_up(void **state)
{
    const char *given = root;
    (void)state;
    model_dir_create(root);
    model_dir_path(root, "model.safetensors", file);
    trusted_roots_init(&roots, &given, 1);
    memset(&kernel, 0, sizeof kernel);
    kernel.filesystem = EXT4_SUPER_MAGIC;
    kernel.knows_attribute = true;
    kernel.n_links = 1;
    kernel.device = makedev(3000, 1); /* a disk that /sys knows nothing of */
    kernel.path = file;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    trusted_roots_fini(&roots);
    model_dir_destroy(root);
    return 0;
}

static int prove(const struct trusted_roots *below, bool is_leased)
{
    const struct immutability_question question = {
        .fd = 0, .is_leased = is_leased, .roots = below, .name = "model.safetensors"};
    enum immutability proof;
    struct error error;
    if (immutability_prove(&question, &proof, &error) == 0)
        return (int)proof;
    assert_int_equal(error.code, ERROR_FAILED_PRECONDITION);
    assert_string_equal(error.reason, "NOT_IMMUTABLE");
    assert_non_null(strstr(error.message, "model.safetensors can change"));
    return -1;
}

static void an_ordinary_file_can_change(void **state)
{
    const long filesystems[] = {EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC,       TMPFS_MAGIC, BTRFS_SUPER_MAGIC,
                                F2FS_SUPER_MAGIC, OVERLAYFS_SUPER_MAGIC, 0x6969,      0x12345};
    (void)state;
    for (size_t i = 0; i < sizeof filesystems / sizeof filesystems[0]; i++) {
        kernel.filesystem = filesystems[i];
        assert_int_equal(prove(&no_roots, true), -1);
    }
}

static void fs_verity_is_proof_where_the_kernel_has_it(void **state)
{
    const long with[] = {EXT4_SUPER_MAGIC, BTRFS_SUPER_MAGIC, F2FS_SUPER_MAGIC},
               without[] = {XFS_SUPER_MAGIC, TMPFS_MAGIC, OVERLAYFS_SUPER_MAGIC, 0x65735546 /* FUSE */};
    (void)state;
    kernel.has_verity = true;
    for (size_t i = 0; i < 3; i++) {
        kernel.filesystem = with[i];
        assert_int_equal(prove(&no_roots, false), IMMUTABLE_BY_FS_VERITY);
    }
    kernel.n_ioctls = 0;
    for (size_t i = 0; i < 4; i++) {
        kernel.filesystem = without[i];
        assert_int_equal(prove(&no_roots, true), -1);
    }
    assert_int_equal(kernel.n_ioctls, 0); /* others might answer what they like */
}

static void images_that_cannot_be_written_are_proof(void **state)
{
    const long images[] = {SQUASHFS_MAGIC, EROFS_SUPER_MAGIC_V1, 0x28CD3D45, 0x7275, 0x9660};
    (void)state;
    for (size_t i = 0; i < sizeof images / sizeof images[0]; i++) {
        kernel.filesystem = images[i];
        assert_int_equal(prove(&no_roots, false), IMMUTABLE_BY_SUPERBLOCK);
    }
}

static void the_attribute_is_proof_on_file_systems_that_keep_it(void **state)
{
    const long filesystems[] = {EXT4_SUPER_MAGIC,  F2FS_SUPER_MAGIC, XFS_SUPER_MAGIC,
                                BTRFS_SUPER_MAGIC, TMPFS_MAGIC,      OVERLAYFS_SUPER_MAGIC};
    (void)state;
    kernel.has_attribute = true;
    for (size_t i = 0; i < sizeof filesystems / sizeof filesystems[0]; i++) {
        kernel.filesystem = filesystems[i];
        assert_int_equal(prove(&no_roots, true), i < 4 ? IMMUTABLE_BY_ATTRIBUTE : -1);
    }
}

/* See test_image_file.c. */
static void what_is_below_the_file_system_has_to_be_known(void **state)
{
    const long filesystems[] = {SQUASHFS_MAGIC,  EROFS_SUPER_MAGIC_V1, EXT4_SUPER_MAGIC,
                                XFS_SUPER_MAGIC, F2FS_SUPER_MAGIC,     BTRFS_SUPER_MAGIC};
    const dev_t devices[] = {makedev(0, 42), makedev(LOOP_MAJOR, 1234567)};
    (void)state;
    kernel.has_attribute = true;
    for (size_t i = 0; i < sizeof filesystems / sizeof filesystems[0]; i++)
        for (size_t k = 0; k < sizeof devices / sizeof devices[0]; k++) {
            kernel.filesystem = filesystems[i];
            kernel.device = devices[k];
            assert_int_equal(prove(&no_roots, true), i < 5 ? -1 : IMMUTABLE_BY_ATTRIBUTE);
        }
}

static void without_a_lease_somebody_may_have_it_open_for_writing(void **state)
{
    struct error error;
    enum immutability proof;
    const struct immutability_question question = {.roots = &no_roots, .name = "m"};
    (void)state;
    kernel.has_attribute = true;
    assert_int_equal(prove(&no_roots, false), -1);
    assert_int_equal(immutability_prove(&question, &proof, &error), -1);
    assert_non_null(strstr(error.message, "CAP_LEASE"));
}

static void an_attribute_that_the_file_system_does_not_know_is_none(void **state)
{
    (void)state;
    kernel.has_attribute = true;
    kernel.knows_attribute = false;
    assert_int_equal(prove(&no_roots, true), -1);
}

static void the_operators_word_holds_below_the_root_and_nowhere_else(void **state)
{
    char beside[MODEL_PATH_CHARS + 8], below[MODEL_PATH_CHARS + 32];
    (void)state;
    kernel.filesystem = TMPFS_MAGIC;
    assert_int_equal(prove(&roots, false), IMMUTABLE_BY_ROOT);
    snprintf(below, sizeof below, "%s/a/b/model.safetensors", root);
    kernel.path = below;
    assert_int_equal(prove(&roots, false), IMMUTABLE_BY_ROOT);
    snprintf(beside, sizeof beside, "%s2/x", root);
    kernel.path = beside;
    assert_int_equal(prove(&roots, false), -1);
    kernel.path = root;
    assert_int_equal(prove(&roots, false), -1);
    kernel.path = "/etc/model.safetensors"; /* where a link led */
    assert_int_equal(prove(&roots, false), -1);
    kernel.path = "(unreachable)/model.safetensors";
    assert_int_equal(prove(&roots, false), -1);
}

static void a_root_that_is_a_link_stands_for_where_it_leads(void **state)
{
    char link[MODEL_PATH_CHARS], real[MODEL_PATH_CHARS + 32];
    const char *given = model_dir_path(root, "link", link);
    struct trusted_roots by_link;
    (void)state;
    model_dir_mkdir(root, "real");
    model_dir_link(root, "link", "real");
    trusted_roots_init(&by_link, &given, 1);
    assert_int_equal(prove(&by_link, false), -1);
    snprintf(real, sizeof real, "%s/real/model.safetensors", root);
    kernel.path = real;
    assert_int_equal(prove(&by_link, false), IMMUTABLE_BY_ROOT);
    trusted_roots_fini(&by_link);
}

static void a_file_that_was_removed_lies_nowhere_and_has_changed(void **state)
{
    const struct immutability_question question = {.fd = 0, .roots = &roots, .name = "model.safetensors"};
    enum immutability proof;
    struct error error;
    (void)state;
    kernel.n_links = 0; /* another was renamed over it, or it was removed, since it was opened */
    assert_int_equal(immutability_prove(&question, &proof, &error), -1);
    assert_int_equal(error.kind, ERROR_KIND_SOURCE_CHANGED);
    assert_int_equal(prove(&no_roots, false), -1);
}

static void a_call_that_fails_proves_nothing(void **state)
{
    (void)state;
    kernel.has_attribute = kernel.statx_fails = true;
    assert_int_equal(prove(&no_roots, true), -1);
    kernel.statx_fails = false;
    kernel.fstatfs_fails = true;
    assert_int_equal(prove(&no_roots, true), -1);
    kernel.has_attribute = false;
    kernel.readlink_fails = true;
    assert_int_equal(prove(&roots, true), -1);
}

static void the_strongest_proof_is_told(void **state)
{
    (void)state;
    kernel.has_attribute = true;
    assert_int_equal(prove(&roots, true), IMMUTABLE_BY_ATTRIBUTE);
    kernel.has_verity = true;
    assert_int_equal(prove(&roots, true), IMMUTABLE_BY_FS_VERITY);
}

#define WITH_A_KERNEL(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_A_KERNEL(an_ordinary_file_can_change),
        WITH_A_KERNEL(fs_verity_is_proof_where_the_kernel_has_it),
        WITH_A_KERNEL(images_that_cannot_be_written_are_proof),
        WITH_A_KERNEL(the_attribute_is_proof_on_file_systems_that_keep_it),
        WITH_A_KERNEL(what_is_below_the_file_system_has_to_be_known),
        WITH_A_KERNEL(without_a_lease_somebody_may_have_it_open_for_writing),
        WITH_A_KERNEL(an_attribute_that_the_file_system_does_not_know_is_none),
        WITH_A_KERNEL(the_operators_word_holds_below_the_root_and_nowhere_else),
        WITH_A_KERNEL(a_root_that_is_a_link_stands_for_where_it_leads),
        WITH_A_KERNEL(a_file_that_was_removed_lies_nowhere_and_has_changed),
        WITH_A_KERNEL(a_call_that_fails_proves_nothing),
        WITH_A_KERNEL(the_strongest_proof_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
