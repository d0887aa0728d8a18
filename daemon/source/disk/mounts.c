/* /proc/self/mountinfo stays open: poll() says when it has changed, and only then it is read again. */
#include "source/disk/mounts.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/text.h"
#include "source/disk/trusted_path.h"

enum { READ_BYTES = 64 << 10, MAX_LINKS = 40 /* as the kernel */ };

struct mount {
    char *path; /* without a slash at the end: "" is the root */
    size_t length;
    uint64_t id, device; /* the kernel's numbers of the mount and of its file system */
    bool is_fuse;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of what follows */
static int table_fd = -1;
static struct mount *mounts;
static size_t n_mounts, mounts_room;
static bool leaves_fuse; /* const once there are threads, like the next one */
static uint64_t own_mounts;

static bool has_changed(void)
{
    if (table_fd < 0) {
        table_fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
        return table_fd >= 0;
    }
    struct pollfd asked = {.fd = table_fd, .events = POLLPRI};
    return poll(&asked, 1, 0) > 0;
}

/* The whole file as text; malloced. */
static char *read_table(void)
{
    size_t n_bytes = 0, room = 0;
    char *text = NULL;
    ssize_t got;
    do {
        if (room - n_bytes < READ_BYTES)
            text = memory_grow(text, room += 2 * READ_BYTES, 1);
        got = pread(table_fd, text + n_bytes, READ_BYTES - 1, (off_t)n_bytes);
        n_bytes += got > 0 ? (size_t)got : 0;
    } while (got > 0);
    text[n_bytes] = '\0';
    return text;
}

/* "\040" -> " ", in place. */
static void unescape(char *text)
{
    char *to = text;
    for (const char *from = text; *from; to++) {
        unsigned byte;
        if (from[0] == '\\' && sscanf(from + 1, "%3o", &byte) == 1) {
            *to = (char)byte;
            from += 4;
        } else {
            *to = *from++;
        }
    }
    *to = '\0';
}

/* "fuse.sshfs", "fuseblk", but not "fusectl". */
bool mounts_is_fuse(const char *type)
{
    static const char *const names[] = {"fuse", "fuseblk"};
    size_t length = strcspn(type, ". ");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i]) == length && strncmp(type, names[i], length) == 0)
            return true;
    return false;
}

static void add_mount(const char *line)
{
    unsigned major, minor;
    uint64_t id;
    int at = 0;
    if (sscanf(line, "%" SCNu64 " %*d %u:%u %*s %n", &id, &major, &minor, &at) < 3 || at == 0)
        return;
    char *path = memory_print("%.*s", (int)strcspn(line + at, " "), line + at);
    unescape(path);
    if (strcmp(path, "/") == 0)
        *path = '\0';
    const char *type = strstr(line + at, " - ");
    ARRAY_RESERVE(mounts, n_mounts, mounts_room);
    mounts[n_mounts++] =
        (struct mount){path, strlen(path), id, (uint64_t)major << 32 | minor, type && mounts_is_fuse(type + strlen(" - "))};
}

/* Under the lock. */
static void read_if_changed(void)
{
    if (!has_changed())
        return;
    char *text = read_table(), *rest = text;
    while (n_mounts > 0)
        free(mounts[--n_mounts].path);
    for (char *line; (line = strsep(&rest, "\n")) != NULL;)
        add_mount(line);
    free(text);
}

/* Both without a slash at the end. */
static bool leads_through(const char *path, const char *folder, size_t length)
{
    return strncmp(path, folder, length) == 0 && (path[length] == '/' || path[length] == '\0');
}

/* Also those that others cover: they are the same for all who go there. Under the lock. */
static uint64_t sum_bits(const char *normal, bool only_fuse)
{
    uint64_t bits = 0;
    for (size_t i = 0; i < n_mounts; i++)
        if ((mounts[i].is_fuse || !only_fuse) && leads_through(normal, mounts[i].path, mounts[i].length))
            bits |= mounts_bits_of(mounts[i].device);
    return bits;
}

struct mounts_passed mounts_pass(const char *path)
{
    char *normal = trusted_path_normalize(path);
    struct mounts_passed passed;
    pthread_mutex_lock(&lock);
    read_if_changed();
    passed.all = sum_bits(normal, false);
    passed.elsewhere = leaves_fuse ? sum_bits(normal, true) & ~own_mounts : 0;
    pthread_mutex_unlock(&lock);
    free(normal);
    return passed;
}

uint64_t mounts_find(const char *path)
{
    return mounts_pass(path).all;
}

/* --- FUSE ----------------------------------------------------------------------------------------------------------- */

void mounts_leave_fuse(uint64_t own)
{
    leaves_fuse = true;
    own_mounts = own;
}

static size_t add_bits(uint64_t bits, uint64_t *found, size_t n_found, size_t room)
{
    size_t i = 0;
    while (i < n_found && found[i] != bits)
        i++;
    if (bits == 0 || i < n_found || n_found == room)
        return n_found;
    found[n_found] = bits;
    return n_found + 1;
}

size_t mounts_list_fuse(const char *path, uint64_t *found, size_t room)
{
    char *normal = trusted_path_normalize(path);
    size_t length = strlen(normal);
    pthread_mutex_lock(&lock);
    read_if_changed();
    size_t n_found = add_bits(sum_bits(normal, true), found, 0, room);
    for (size_t i = 0; i < n_mounts; i++)
        if (mounts[i].is_fuse && leads_through(mounts[i].path, normal, length))
            n_found = add_bits(sum_bits(mounts[i].path, true), found, n_found, room);
    pthread_mutex_unlock(&lock);
    free(normal);
    return n_found;
}

int mounts_check(const char *path, struct mounts_passed passed, struct error *error)
{
    char name[TEXT_NAME_CHARS];
    if (!passed.elsewhere)
        return 0;
    fail(error, ERROR_UNAVAILABLE, REASON(FUSE_MOUNT), "%s is on a FUSE mount of another process",
         text_escape(path, strlen(path), name));
    return error_note(error, "mounts", "%" PRIx64, passed.elsewhere);
}

/* What was unmounted (MNT_DETACH) since the descriptor was opened is in no table any more, and may be FUSE. Below a chroot that is no
 * mount itself, the table does not have the mount of the root either. Under the lock. */
static bool has_gone(const struct statx *found)
{
    struct statx root;
    for (size_t i = 0; i < n_mounts; i++)
        if (mounts[i].id == found->stx_mnt_id)
            return false;
    return found->stx_mask & STATX_MNT_ID &&
           (statx(AT_FDCWD, "/", AT_STATX_DONT_SYNC, STATX_MNT_ID, &root) < 0 || root.stx_mnt_id != found->stx_mnt_id);
}

/* The number of the device is the kernel's own knowledge, where nothing has to be up to date. What users mount has none of a disk. */
int mounts_check_fd(int fd, const char *shown, struct error *error)
{
    struct statx found;
    struct mounts_passed passed = {0};
    if (!leaves_fuse || statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_MNT_ID, &found) < 0 || found.stx_dev_major)
        return 0;
    pthread_mutex_lock(&lock);
    read_if_changed();
    if (has_gone(&found))
        passed.elsewhere = mounts_bits_of(found.stx_dev_minor) & ~own_mounts;
    for (size_t i = 0; i < n_mounts; i++)
        if (mounts[i].is_fuse && mounts[i].device == found.stx_dev_minor)
            passed.elsewhere |= mounts_bits_of(found.stx_dev_minor) & ~own_mounts;
    pthread_mutex_unlock(&lock);
    return mounts_check(shown, passed, error);
}

uint64_t mounts_elsewhere(const struct error *error)
{
    const char *value;
    bool is_known = error->kind == ERROR_KIND_FUSE_MOUNT && !own_mounts && error_next_note(error, NULL, &value);
    return is_known ? strtoull(value, NULL, 16) : 0;
}

char *mounts_describe(uint64_t wanted)
{
    const struct mount *found = NULL;
    char name[TEXT_NAME_CHARS];
    pthread_mutex_lock(&lock);
    read_if_changed();
    for (size_t i = 0; i < n_mounts; i++) {
        const struct mount *mount = &mounts[i];
        if (mount->is_fuse && (mounts_bits_of(mount->device) & ~wanted) == 0 && (!found || mount->length > found->length))
            found = mount;
    }
    char *text = memory_copy_text(
        !found ? "(not mounted)" : text_escape(*found->path ? found->path : "/", found->length ? found->length : 1, name));
    pthread_mutex_unlock(&lock);
    return text;
}

/* A path that is being walked: `done` has no links, `rest` is still to be looked at. */
struct walked {
    char done[PATH_MAX], rest[PATH_MAX];
    int n_links;
};

/* Puts the target of the link at `done`, whose name begins at `used`, before the rest; leaves `done` as it is where there is
 * no link. 0 or errno. */
static int follow_link(struct walked *walked, size_t used)
{
    char target[PATH_MAX], tail[PATH_MAX];
    ssize_t n_chars = readlink(walked->done, target, sizeof target - 1);
    if (n_chars < 0)
        return errno == EINVAL ? 0 : errno;
    target[n_chars] = '\0';
    if (++walked->n_links > MAX_LINKS)
        return ELOOP;
    walked->done[*target == '/' ? 0 : used] = '\0';
    memcpy(tail, walked->rest, sizeof tail);
    return snprintf(walked->rest, PATH_MAX, "%s/%s", target, tail) < PATH_MAX ? 0 : ENAMETOOLONG;
}

/* One component from the beginning of `rest` to the end of `done`. 0 or errno. */
static int walk_component(struct walked *walked)
{
    const char *name = walked->rest + strspn(walked->rest, "/");
    size_t length = strcspn(name, "/"), used = strlen(walked->done);
    bool is_up = length == 2 && strncmp(name, "..", 2) == 0, is_here = length == 0 || (length == 1 && *name == '.');
    if (used + 1 + length >= PATH_MAX)
        return ENAMETOOLONG;
    if (is_up)
        *(used ? strrchr(walked->done, '/') : walked->done) = '\0';
    else if (!is_here)
        snprintf(walked->done + used, PATH_MAX - used, "/%.*s", (int)length, name);
    memmove(walked->rest, name + length, strlen(name + length) + 1);
    return is_up || is_here ? 0 : follow_link(walked, used);
}

char *mounts_realpath(const char *path, struct error *error)
{
    struct walked walked = {.done = ""};
    char name[TEXT_NAME_CHARS];
    int failed = snprintf(walked.rest, PATH_MAX, "%s", path) < PATH_MAX ? 0 : ENAMETOOLONG;
    while (!failed && walked.rest[0]) {
        char *whole = memory_print("%s/%s", walked.done, walked.rest);
        int is_left = mounts_check(whole, mounts_pass(whole), error);
        free(whole);
        if (is_left < 0)
            return NULL;
        failed = walk_component(&walked);
    }
    if (!failed)
        return memory_copy_text(walked.done[0] ? walked.done : "/");
    fail_errno(error, failed, "%s", text_escape(path, strlen(path), name));
    return NULL;
}
