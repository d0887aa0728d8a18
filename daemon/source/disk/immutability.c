/* What is no proof: a mount that is read-only while its file system is not (it can be mounted again, or elsewhere), overlays
 * (their layers change below them), tmpfs, servers (NFS, FUSE), who may write by the mode of the file, and times that have
 * been the same for long. A system call that fails proves nothing, either. */
#include "source/disk/immutability.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fsverity.h>
#include <linux/magic.h>
#include <linux/romfs_fs.h>
#include <linux/stat.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "base/text.h"
#include "source/disk/change_detection.h"
#include "source/disk/filesystem.h"
#include "source/disk/image_file.h"

enum { MAX_VERITY_DIGEST_BYTES = 64 /* SHA-512 */ };

struct evidence {
    const struct immutability_question *question;
    unsigned filesystem; /* its magic number; 0 = unknown */
};

/* The kernel refuses to open a file with fs-verity for writing or to cut it, for good: there is no call to take it away.
 * Asked by the ioctl, which makes sure that the file's digest is there, where statx might only know a flag. Of file systems
 * of the kernel alone: others may answer an ioctl as they like.
 * The kernels that this was developed on are built without fs-verity: untested but for its refusal. */
static bool has_fs_verity(const struct evidence *evidence)
{
    union {
        struct fsverity_digest digest;
        char room[sizeof(struct fsverity_digest) + MAX_VERITY_DIGEST_BYTES];
    } answer = {.digest.digest_size = MAX_VERITY_DIGEST_BYTES};
    bool may_have = evidence->filesystem == EXT4_SUPER_MAGIC || evidence->filesystem == BTRFS_SUPER_MAGIC ||
                    evidence->filesystem == F2FS_SUPER_MAGIC;
    return may_have && ioctl(evidence->question->fd, FS_IOC_MEASURE_VERITY, &answer) == 0;
}

/* Formats that cannot be written at all, whatever mounts them. UDF is none of them. */
static bool is_of_read_only_format(const struct evidence *evidence)
{
    static const unsigned formats[] = {SQUASHFS_MAGIC, EROFS_SUPER_MAGIC_V1, CRAMFS_MAGIC, ROMFS_MAGIC, ISOFS_SUPER_MAGIC};
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        if (evidence->filesystem == formats[i])
            return true;
    return false;
}

static int check_image(const struct evidence *evidence, struct error *error)
{
    struct stat status;
    if (fstat(evidence->question->fd, &status) < 0)
        return fail_errno(error, errno, "it cannot be looked at");
    return image_file_check("/sys", status.st_dev, error);
}

/* And the image is no file that somebody may write to. */
static bool has_read_only_superblock(const struct evidence *evidence)
{
    struct error error;
    return is_of_read_only_format(evidence) && check_image(evidence, &error) == 0;
}

static bool has_attribute(const struct evidence *evidence)
{
    static const unsigned keepers[] = {EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, BTRFS_SUPER_MAGIC, F2FS_SUPER_MAGIC};
    struct statx status = {0};
    bool keeps = false;
    for (size_t i = 0; i < sizeof keepers / sizeof keepers[0]; i++)
        keeps = keeps || evidence->filesystem == keepers[i];
    return keeps &&
           statx(evidence->question->fd, "", AT_EMPTY_PATH | AT_STATX_SYNC_AS_STAT, STATX_BASIC_STATS, &status) == 0 &&
           (status.stx_attributes_mask & status.stx_attributes & STATX_ATTR_IMMUTABLE);
}

/* chattr +i: nobody opens the file for writing, cuts or removes it any more. Who had it open before may still write (ext4 and
 * f2fs ask at every write, xfs, btrfs and the driver of ext2 do not), so a lease has to say that nobody had. What is below the file
 * system is not asked of btrfs, whose files do not tell their device. */
static bool has_immutable_attribute(const struct evidence *evidence)
{
    struct error error;
    return evidence->question->is_leased && has_attribute(evidence) &&
           (evidence->filesystem == BTRFS_SUPER_MAGIC || check_image(evidence, &error) == 0);
}

/* The operator's word, for what really lies there: links that led to the file count for nothing, and a file without a name
 * lies nowhere. */
static bool is_below_immutable_root(const struct evidence *evidence)
{
    char name[32], path[PATH_MAX];
    struct stat status;
    if (!evidence->question->roots->n_roots || fstat(evidence->question->fd, &status) < 0 || status.st_nlink == 0)
        return false;
    snprintf(name, sizeof name, "/proc/self/fd/%d", evidence->question->fd);
    ssize_t length = readlink(name, path, sizeof path);
    if (length <= 0 || (size_t)length >= sizeof path || path[0] != '/')
        return false;
    path[length] = '\0';
    return trusted_roots_contain(evidence->question->roots, path);
}

static const struct {
    enum immutability proof;
    bool (*holds)(const struct evidence *evidence);
} proofs[] = {
    {IMMUTABLE_BY_FS_VERITY, has_fs_verity},
    {IMMUTABLE_BY_SUPERBLOCK, has_read_only_superblock},
    {IMMUTABLE_BY_ATTRIBUTE, has_immutable_attribute},
    {IMMUTABLE_BY_ROOT, is_below_immutable_root},
};

static int fail_unproven(const struct evidence *evidence, struct error *error)
{
    const struct immutability_question *question = evidence->question;
    char name[TEXT_NAME_CHARS];
    struct error image;
    struct stat status;
    if (question->roots->n_roots && fstat(question->fd, &status) == 0 && status.st_nlink == 0)
        return change_detection_fail(question->name, "was removed or replaced", error);
    text_escape(question->name, strlen(question->name), name);
    if (evidence->filesystem == FUSE_SUPER_MAGIC) {
        fail(error, ERROR_FAILED_PRECONDITION, "NOT_IMMUTABLE",
             "%s can change: it is on a FUSE mount, whose server may show other bytes at any time", name);
        return error_note(error, "file", "%s", question->name);
    }
    bool is_image = is_of_read_only_format(evidence) ||
                    (question->is_leased && has_attribute(evidence) && evidence->filesystem != BTRFS_SUPER_MAGIC);
    if (is_image && check_image(evidence, &image) < 0)
        fail(error, ERROR_FAILED_PRECONDITION, "NOT_IMMUTABLE",
             "%s can change: %s; make that root's alone, or name the folder in sources.disk.immutable_roots", name,
             image.message);
    else if (!question->is_leased && has_attribute(evidence))
        fail(error, ERROR_FAILED_PRECONDITION, "NOT_IMMUTABLE",
             "%s can change: it has the immutable attribute, but who opened it before may still write, and the daemon has "
             "no lease on it that says that nobody did; give it CAP_LEASE",
             name);
    else
        fail(error, ERROR_FAILED_PRECONDITION, "NOT_IMMUTABLE",
             "%s can change: it is on %s and has neither fs-verity nor the immutable attribute, is in no read-only image "
             "(squashfs, erofs), and is not below sources.disk.immutable_roots",
             name, filesystem_traits((long)evidence->filesystem).name);
    return error_note(error, "file", "%s", question->name);
}

int immutability_prove(const struct immutability_question *question, enum immutability *proof, struct error *error)
{
    struct statfs filesystem;
    struct evidence evidence = {.question = question};
    if (fstatfs(question->fd, &filesystem) == 0)
        evidence.filesystem = (unsigned)filesystem.f_type;
    bool is_fuse = evidence.filesystem == FUSE_SUPER_MAGIC; /* no operator's word helps against its server */
    for (size_t i = 0; i < sizeof proofs / sizeof proofs[0] && !is_fuse; i++) {
        if (proofs[i].holds(&evidence)) {
            *proof = proofs[i].proof;
            return 0;
        }
    }
    return fail_unproven(&evidence, error);
}
