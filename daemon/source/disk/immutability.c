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

#include "base/file_io.h"
#include "base/text.h"
#include "source/disk/change_detection.h"
#include "source/disk/filesystem.h"
#include "source/disk/image_file.h"

enum { MAX_VERITY_DIGEST_BYTES = 64 /* SHA-512 */ };

struct evidence {
    const struct immutability_question *question;
    unsigned filesystem; /* its magic number; 0 = unknown */
};

static bool is_one_of(unsigned filesystem, const unsigned *magics, size_t n_magics)
{
    for (size_t i = 0; i < n_magics; i++)
        if (filesystem == magics[i])
            return true;
    return false;
}

/* The kernel refuses to open a file with fs-verity for writing or to cut it, for good: there is no call to take it away.
 * Asked by the ioctl, which makes sure that the file's digest is there, where statx might only know a flag. Of file systems
 * of the kernel alone: others may answer an ioctl as they like.
 * The kernels that this was developed on are built without fs-verity: untested except for its refusal. */
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
    return is_one_of(evidence->filesystem, formats, sizeof formats / sizeof formats[0]);
}

static int check_image(const struct evidence *evidence, struct error *error)
{
    struct stat status;
    if (fstat(evidence->question->fd, &status) < 0)
        return fail_errno(error, errno, "it cannot be checked");
    return image_file_check("/sys", status.st_dev, error);
}

/* chattr +i: no process can open the file for writing, cut or remove it any more. A process that had it open before may still
 * write (ext4 and f2fs ask at every write, xfs, btrfs and the driver of ext2 do not), so a lease has to say that none had. */
static bool has_attribute(const struct evidence *evidence)
{
    static const unsigned keepers[] = {EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, BTRFS_SUPER_MAGIC, F2FS_SUPER_MAGIC};
    struct statx status = {0};
    return is_one_of(evidence->filesystem, keepers, sizeof keepers / sizeof keepers[0]) &&
           statx(evidence->question->fd, "", AT_EMPTY_PATH | AT_STATX_SYNC_AS_STAT, STATX_BASIC_STATS, &status) == 0 &&
           (status.stx_attributes_mask & status.stx_attributes & STATX_ATTR_IMMUTABLE);
}

/* The operator's word, for what really lies there: links that led to the file count for nothing, and a file without a name
 * lies nowhere. */
static bool is_below_immutable_root(const struct evidence *evidence)
{
    char path[PATH_MAX];
    struct stat status;
    return evidence->question->roots->n_roots && fstat(evidence->question->fd, &status) == 0 && status.st_nlink > 0 &&
           trusted_roots_contain(evidence->question->roots, file_io_name(evidence->question->fd, path));
}

static int fail_unproven(const struct evidence *evidence, struct error *error)
{
    const struct immutability_question *question = evidence->question;
    struct error image;
    struct stat status;
    if (question->roots->n_roots && fstat(question->fd, &status) == 0 && status.st_nlink == 0)
        return change_detection_fail(question->name, "was removed or replaced", error);
    const char *name = text_show(question->name);
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
             "%s can change: it has the immutable attribute, but a process that opened it before may still write, and "
             "the daemon has no lease that excludes it; give it CAP_LEASE",
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
    struct error image; /* is a file that another user may write to */
    if (fstatfs(question->fd, &filesystem) == 0)
        evidence.filesystem = (unsigned)filesystem.f_type;
    if (evidence.filesystem == FUSE_SUPER_MAGIC) /* no operator's word helps against its server */
        return fail_unproven(&evidence, error);
    if (has_fs_verity(&evidence))
        *proof = IMMUTABLE_BY_FS_VERITY;
    else if (is_of_read_only_format(&evidence) && check_image(&evidence, &image) == 0)
        *proof = IMMUTABLE_BY_SUPERBLOCK;
    else if (question->is_leased && has_attribute(&evidence) && /* files of btrfs do not tell their device */
             (evidence.filesystem == BTRFS_SUPER_MAGIC || check_image(&evidence, &image) == 0))
        *proof = IMMUTABLE_BY_ATTRIBUTE;
    else if (is_below_immutable_root(&evidence))
        *proof = IMMUTABLE_BY_ROOT;
    else
        return fail_unproven(&evidence, error);
    return 0;
}
