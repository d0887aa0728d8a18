/* Each proof, and what is none. The kernel's answers are made up, so that every file system is at hand and every call can
 * fail; real images and attributes are in tests/e2e/test_mapped.py. */
#include "tests/support/unit.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fsverity.h>
#include <linux/magic.h>
#include <linux/major.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "source/disk/immutability.h"
#include "tests/support/model_dir.h"

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

enum { PLAIN = 0, VERITY = 1, ATTRIBUTE = 2, LEASE = 4, UNKNOWN = 8 /* to the file system: the attribute */ };

TEST_IN(a_file_is_proven_by_what_its_file_system_keeps_and_by_nothing_else, set_up, tear_down)
{
    enum { FUSE = 0x65735546, CRAMFS = 0x28CD3D45, ROMFS = 0x7275, ISOFS = 0x9660, NFS = 0x6969 };
    static const struct {
        int has, proof; /* -1 = none */
        long filesystems[9];
    } rows[] = {
        {LEASE,
         -1,
         {EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, TMPFS_MAGIC, BTRFS_SUPER_MAGIC, F2FS_SUPER_MAGIC, OVERLAYFS_SUPER_MAGIC, NFS,
          0x12345}},
        {VERITY, IMMUTABLE_BY_FS_VERITY, {EXT4_SUPER_MAGIC, BTRFS_SUPER_MAGIC, F2FS_SUPER_MAGIC}},
        {VERITY | LEASE, -1, {XFS_SUPER_MAGIC, TMPFS_MAGIC, OVERLAYFS_SUPER_MAGIC, FUSE}},
        {PLAIN, IMMUTABLE_BY_SUPERBLOCK, {SQUASHFS_MAGIC, EROFS_SUPER_MAGIC_V1, CRAMFS, ROMFS, ISOFS}},
        {ATTRIBUTE | LEASE,
         IMMUTABLE_BY_ATTRIBUTE,
         {EXT4_SUPER_MAGIC, F2FS_SUPER_MAGIC, XFS_SUPER_MAGIC, BTRFS_SUPER_MAGIC}},
        {ATTRIBUTE | LEASE, -1, {TMPFS_MAGIC, OVERLAYFS_SUPER_MAGIC}},
        {ATTRIBUTE, -1, {EXT4_SUPER_MAGIC}}, /* a process may have it open for writing */
        {ATTRIBUTE | LEASE | UNKNOWN, -1, {EXT4_SUPER_MAGIC}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (const long *at = rows[i].filesystems; *at; at++) {
            kernel.filesystem = *at;
            kernel.has_verity = rows[i].has & VERITY;
            kernel.has_attribute = rows[i].has & ATTRIBUTE;
            kernel.knows_attribute = !(rows[i].has & UNKNOWN);
            kernel.n_ioctls = 0;
            int proof = prove(&no_roots, rows[i].has & LEASE);
            if (proof != rows[i].proof)
                fail_msg("row %zu, file system 0x%lx: %d", i, *at, proof);
            assert_true(rows[i].proof >= 0 || !(rows[i].has & VERITY) ||
                        kernel.n_ioctls == 0); /* they might answer anything */
        }
}

/* See test_image_file.c. */
TEST_IN(what_is_below_the_file_system_has_to_be_known, set_up, tear_down)
{
    const long filesystems[] = {SQUASHFS_MAGIC,  EROFS_SUPER_MAGIC_V1, EXT4_SUPER_MAGIC,
                                XFS_SUPER_MAGIC, F2FS_SUPER_MAGIC,     BTRFS_SUPER_MAGIC};
    const dev_t devices[] = {makedev(0, 42), makedev(LOOP_MAJOR, 1234567)};
    kernel.has_attribute = true;
    for (size_t i = 0; i < sizeof filesystems / sizeof filesystems[0]; i++)
        for (size_t k = 0; k < sizeof devices / sizeof devices[0]; k++) {
            kernel.filesystem = filesystems[i];
            kernel.device = devices[k];
            assert_int_equal(prove(&no_roots, true), i < 5 ? -1 : IMMUTABLE_BY_ATTRIBUTE);
        }
}

TEST_IN(without_a_lease_the_attribute_asks_for_one, set_up, tear_down)
{
    struct error error;
    enum immutability proof;
    const struct immutability_question question = {.roots = &no_roots, .name = "m"};
    kernel.has_attribute = true;
    assert_int_equal(immutability_prove(&question, &proof, &error), -1);
    assert_non_null(strstr(error.message, "CAP_LEASE"));
}

TEST_IN(the_operators_word_holds_below_the_root_and_nowhere_else, set_up, tear_down)
{
    char beside[MODEL_PATH_CHARS + 8], below[MODEL_PATH_CHARS + 32];
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

TEST_IN(a_root_that_is_a_link_stands_for_where_it_leads, set_up, tear_down)
{
    char link[MODEL_PATH_CHARS], real[MODEL_PATH_CHARS + 32];
    const char *given = model_dir_path(root, "link", link);
    struct trusted_roots by_link;
    model_dir_mkdir(root, "real");
    model_dir_link(root, "link", "real");
    trusted_roots_init(&by_link, &given, 1);
    assert_int_equal(prove(&by_link, false), -1);
    snprintf(real, sizeof real, "%s/real/model.safetensors", root);
    kernel.path = real;
    assert_int_equal(prove(&by_link, false), IMMUTABLE_BY_ROOT);
    trusted_roots_fini(&by_link);
}

TEST_IN(a_file_that_was_removed_lies_nowhere_and_has_changed, set_up, tear_down)
{
    const struct immutability_question question = {.fd = 0, .roots = &roots, .name = "model.safetensors"};
    enum immutability proof;
    struct error error;
    kernel.n_links = 0; /* another was renamed over it, or it was removed, since it was opened */
    assert_int_equal(immutability_prove(&question, &proof, &error), -1);
    assert_int_equal(error.kind, ERROR_KIND_SOURCE_CHANGED);
    assert_int_equal(prove(&no_roots, false), -1);
}

TEST_IN(a_call_that_fails_proves_nothing, set_up, tear_down)
{
    kernel.has_attribute = kernel.statx_fails = true;
    assert_int_equal(prove(&no_roots, true), -1);
    kernel.statx_fails = false;
    kernel.fstatfs_fails = true;
    assert_int_equal(prove(&no_roots, true), -1);
    kernel.has_attribute = false;
    kernel.readlink_fails = true;
    assert_int_equal(prove(&roots, true), -1);
}

TEST_IN(the_strongest_proof_is_told, set_up, tear_down)
{
    kernel.has_attribute = true;
    assert_int_equal(prove(&roots, true), IMMUTABLE_BY_ATTRIBUTE);
    kernel.has_verity = true;
    assert_int_equal(prove(&roots, true), IMMUTABLE_BY_FS_VERITY);
}
