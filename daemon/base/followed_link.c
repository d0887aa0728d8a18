#include "base/followed_link.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/text.h"

enum { MAX_LINKS = 40 /* as the kernel */, REST_CHARS = 2 * PATH_MAX };

struct walk {
    int folder_fd;         /* where it is */
    char rest[REST_CHARS]; /* still to be walked */
    int n_links;
    bool has_stranger; /* some of the links are of a user who is neither this one nor root */
    uid_t stranger;
    bool is_served; /* some of the links are on a file system whose server says whose they are */
    dev_t server;
};

static void enter(struct walk *walk, int fd)
{
    close(walk->folder_fd);
    walk->folder_fd = fd;
}

/* `fd`: the link. 0, or an errno: EPERM for a second stranger, EXDEV for a second server. */
static int follow(struct walk *walk, int fd, const struct stat *link)
{
    static const unsigned served[] = {FUSE_SUPER_MAGIC, NFS_SUPER_MAGIC, CIFS_SUPER_MAGIC, SMB_SUPER_MAGIC,
                                      SMB2_SUPER_MAGIC, V9FS_MAGIC,      AFS_SUPER_MAGIC,  CODA_SUPER_MAGIC};
    struct statfs system;
    char target[REST_CHARS];
    ssize_t length = readlinkat(fd, "", target, PATH_MAX);
    bool is_strange = link->st_uid != geteuid() && link->st_uid != 0;
    if (length < 0)
        return errno;
    if (++walk->n_links > MAX_LINKS)
        return ELOOP;
    if (is_strange && walk->has_stranger && walk->stranger != link->st_uid)
        return EPERM;
    if (is_strange)
        walk->stranger = link->st_uid;
    walk->has_stranger = walk->has_stranger || is_strange;
    /* a FUSE process, root of another client, or a writer of the bucket behind it can make links that claim to be root's */
    bool is_served = fstatfs(fd, &system) < 0;
    for (size_t i = 0; i < sizeof served / sizeof *served; i++)
        is_served = is_served || (unsigned)system.f_type == served[i];
    if (is_served && walk->is_served && walk->server != link->st_dev)
        return EXDEV;
    if (is_served)
        walk->server = link->st_dev;
    walk->is_served = walk->is_served || is_served;
    if (snprintf(target + length, sizeof target - (size_t)length, "/%s", walk->rest) >= PATH_MAX)
        return ENAMETOOLONG;
    snprintf(walk->rest, sizeof walk->rest, "%s", target);
    if (target[0] == '/')
        enter(walk, open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
    return 0;
}

/* One component. 1 = it was the last one, and *found is it; 0 = there is more; else a negative errno. */
static int walk_component(struct walk *walk, struct stat *found)
{
    char name[NAME_MAX + 2];
    const char *first = walk->rest + strspn(walk->rest, "/");
    size_t length = strcspn(first, "/"), taken = length <= NAME_MAX ? length : NAME_MAX + 1; /* refused as too long */
    memcpy(name, first, taken);
    name[taken] = '\0';
    memmove(walk->rest, first + length, strlen(first + length) + 1);
    if (!*name) /* behind a link that ends with a slash */
        return fstat(walk->folder_fd, found) < 0 ? -errno : 1;
    int fd = openat(walk->folder_fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, found) < 0) {
        int cause = errno;
        if (fd >= 0)
            close(fd);
        return -cause;
    }
    if (S_ISLNK(found->st_mode)) {
        int cause = follow(walk, fd, found);
        close(fd);
        return -cause;
    }
    enter(walk, fd);
    return walk->rest[strspn(walk->rest, "/")] ? 0 : 1;
}

int followed_link_stat(int folder_fd, const char *name, const char *shown, struct stat *found, struct error *error)
{
    struct walk walk = {.folder_fd = openat(folder_fd, ".", O_PATH | O_DIRECTORY | O_CLOEXEC)};
    char text[TEXT_NAME_CHARS];
    int at = walk.folder_fd < 0 ? -errno : 0;
    snprintf(walk.rest, sizeof walk.rest, "%s", name);
    while (at == 0)
        at = walk_component(&walk, found);
    if (walk.folder_fd >= 0)
        close(walk.folder_fd);
    text_escape(shown, strlen(shown), text);
    bool is_foreign = at == -EPERM || (at == 1 && walk.has_stranger && found->st_uid != walk.stranger);
    if (is_foreign)
        return fail(error, ERROR_PERMISSION_DENIED, REASON(FOREIGN_LINK),
                    "%s is a link that user %u has made, to a file of another user that they might not be allowed to read: "
                    "put the file itself there, or make the link yourself",
                    text, (unsigned)walk.stranger);
    if (at == -EXDEV || (at == 1 && walk.is_served && found->st_dev != walk.server))
        return fail(
            error, ERROR_PERMISSION_DENIED, REASON(FOREIGN_LINK),
            "%s leads through a link on a file system whose server tells whose links are (FUSE, NFS, CIFS, 9p), to what is "
            "not on that file system; its server might not be allowed to read that: name the file itself",
            text);
    return at < 0 ? fail_errno(error, -at, "cannot look at %s", text) : 0;
}

int followed_link_open(int folder_fd, const char *name, const char *shown, int flags, struct error *error)
{
    struct stat found, opened;
    char text[TEXT_NAME_CHARS];
    if (followed_link_stat(folder_fd, name, shown, &found, error) < 0)
        return -1;
    text_escape(shown, strlen(shown), text);
    int fd = openat(folder_fd, name, flags | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return fail_errno(error, errno, "cannot open %s", text);
    if (fstat(fd, &opened) == 0 && opened.st_dev == found.st_dev && opened.st_ino == found.st_ino)
        return fd;
    close(fd);
    return fail(error, ERROR_ABORTED, "FILE_REPLACED", "%s was replaced while it was being opened; try again", text);
}
