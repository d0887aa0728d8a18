#include "source/disk/image_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/loop.h>
#include <linux/major.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/quota.h"
#include "base/text.h"
#include "source/disk/trusted_path.h"

enum { MAX_LAYERS = 8 /* of devices on devices */ };

static int fail_image(const char *path, const char *why, struct error *error)
{
    return fail(error, ERROR_FAILED_PRECONDITION, "NOT_IMMUTABLE", "the image that it is in, %s, %s", text_show(path), why);
}

/* --- the file ------------------------------------------------------------------------------------------------------------- */

static int check_owner(const char *path, const char *part, const struct stat *found, struct error *error)
{
    char why[TEXT_NAME_CHARS + 128], shown[TEXT_NAME_CHARS] = "";
    bool is_folder = S_ISDIR(found->st_mode);
    const char *in = is_folder ? "is below " : "", *verb = is_folder ? ", which " : "";
    text_escape(part, is_folder ? strlen(part) : 0, shown);
    if (!quota_is_privileged(found->st_uid))
        snprintf(why, sizeof why, "%s%s%sbelongs to user %u, who may write to it", in, shown, verb, (unsigned)found->st_uid);
    else if (found->st_mode & (S_IWGRP | S_IWOTH) && !(is_folder && found->st_mode & S_ISVTX))
        snprintf(why, sizeof why, "%s%s%smay be written to by others than its owner (mode %04o)", in, shown, verb,
                 (unsigned)found->st_mode & 07777);
    else
        return 0;
    return fail_image(path, why, error);
}

/* One folder of the path, or the file: the path as far as `length`. */
static int check_part(const char *path, size_t length, const struct loop_info64 *file, struct error *error)
{
    char part[PATH_MAX];
    struct stat found = {0};
    struct error cause;
    snprintf(part, sizeof part, "%.*s", (int)length, path);
    int fd = trusted_path_look(part, &cause), failed = fd < 0 ? -1 : fstat(fd, &found);
    if (fd >= 0)
        close(fd);
    bool is_other = !path[length] && file && (found.st_dev != file->lo_device || found.st_ino != file->lo_inode);
    if (failed || is_other || S_ISDIR(found.st_mode) == !path[length])
        return fail_image(path, "cannot be seen from here, so that nothing says who may write to it", error);
    return check_owner(path, part, &found, error);
}

/* The path is what the kernel calls the file, or the process that made the device: it is that file's for as long as only root
 * and this user can put another one there, so each folder is looked at before what is in it. */
static int check_path(const char *path, const struct loop_info64 *file, struct error *error)
{
    int failed = path[0] == '/' ? 0 : fail_image(path, "has no path that says whose it is", error);
    for (size_t at = 1; !failed && path[0] == '/' && at;) {
        const char *slash = strchr(path + at, '/');
        failed = check_part(path, slash ? (size_t)(slash - path) : strlen(path), file, error);
        at = slash ? (size_t)(slash - path) + 1 : 0;
    }
    return failed;
}

/* --- the devices ---------------------------------------------------------------------------------------------------------- */

static int fail_unknown(dev_t device, struct error *error)
{
    return fail(error, ERROR_FAILED_PRECONDITION, "NOT_IMMUTABLE",
                "nothing says whether the device %u:%u, which it is on, is a file that a user may write to", major(device),
                minor(device));
}

/* All of a small file without its last newline; 0 when it is not there, -1 when that is not known. */
static ssize_t read_text(const char *path, char *text, size_t room)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT || errno == ENOTDIR ? 0 : -1;
    ssize_t length = read(fd, text, room - 1);
    close(fd);
    length -= length > 0 && text[length - 1] == '\n';
    text[length > 0 ? length : 0] = '\0';
    return length;
}

/* Without /sys the driver of loop devices tells, where they may be opened, which file it is and how it was called then. */
static int ask_driver(dev_t device, struct error *error)
{
    struct loop_info64 file;
    char name[64], path[LO_NAME_SIZE + 1];
    snprintf(name, sizeof name, "/dev/loop%u", minor(device));
    int fd = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK), failed = fd < 0 ? -1 : ioctl(fd, LOOP_GET_STATUS64, &file);
    if (fd >= 0)
        close(fd);
    if (failed)
        return fail_unknown(device, error);
    snprintf(path, sizeof path, "%.*s", LO_NAME_SIZE, (const char *)file.lo_file_name);
    return check_path(path, &file, error);
}

static int check_device(const char *sys, dev_t device, int depth, struct error *error);

/* Of the devices that one is made of: dm-crypt on a loop device, say. */
static int check_slaves(const char *sys, const char *folder, int depth, dev_t device, struct error *error)
{
    DIR *list = opendir(folder);
    char path[2 * PATH_MAX], text[32];
    unsigned upper, lower;
    int failed = list || errno == ENOENT || errno == ENOTDIR ? 0 : fail_unknown(device, error);
    for (const struct dirent *entry; list && !failed && (entry = readdir(list));) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s/dev", folder, entry->d_name);
        bool is_known = read_text(path, text, sizeof text) > 0 && sscanf(text, "%u:%u", &upper, &lower) == 2;
        failed = is_known && depth < MAX_LAYERS ? check_device(sys, makedev(upper, lower), depth + 1, error)
                                                : fail_unknown(device, error);
    }
    if (list)
        closedir(list);
    return failed;
}

/* Of the device, or of the disk that it is a partition of. */
static int check_device(const char *sys, dev_t device, int depth, struct error *error)
{
    static const char *const places[] = {"", "/.."};
    char folder[PATH_MAX], name[PATH_MAX + 32], file[PATH_MAX];
    snprintf(folder, sizeof folder, "%s/dev/block/%u:%u", sys, major(device), minor(device));
    if (major(device) == LOOP_MAJOR && access(folder, F_OK) < 0)
        return ask_driver(device, error);
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        snprintf(name, sizeof name, "%s%s/loop/backing_file", folder, places[i]);
        ssize_t length = read_text(name, file, sizeof file);
        if (length != 0)
            return length < 0 ? fail_unknown(device, error) : check_path(file, NULL, error);
        snprintf(name, sizeof name, "%s%s/slaves", folder, places[i]);
        if (check_slaves(sys, name, depth, device, error) < 0)
            return -1;
    }
    return 0;
}

int image_file_check(const char *sys, dev_t device, struct error *error)
{
    if (major(device) == 0) /* erofs reads files without one */
        return fail(error, ERROR_FAILED_PRECONDITION, "NOT_IMMUTABLE",
                    "its file system is on no block device, so that nothing says whose its image is");
    return check_device(sys, device, 0, error);
}
