/* /proc/self/mountinfo stays open: poll() says when it has changed, and only then it is read again. */
#include "source/disk/mounts.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/loop.h"
#include "base/memory.h"
#include "source/disk/trusted_path.h"

enum { READ_BYTES = 64 << 10 };

struct mount {
    char *path; /* without a slash at the end: "" is the root */
    size_t length;
    uint64_t device; /* of its file system, as in stat.st_dev */
    bool is_fuse;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of what follows */
static int table_fd = -1;
static struct mount *mounts;
static size_t n_mounts, mounts_room;

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
    size_t length = strcspn(type, ". ");
    return (length == 4 && strncmp(type, "fuse", 4) == 0) || (length == 7 && strncmp(type, "fuseblk", 7) == 0);
}

static void add_mount(const char *line)
{
    unsigned major, minor;
    int at = 0;
    if (sscanf(line, "%*u %*d %u:%u %*s %n", &major, &minor, &at) < 2 || at == 0)
        return;
    char *path = memory_print("%.*s", (int)strcspn(line + at, " "), line + at);
    unescape(path);
    if (strcmp(path, "/") == 0)
        *path = '\0';
    const char *type = strstr(line + at, " - ");
    ARRAY_RESERVE(mounts, n_mounts, mounts_room);
    mounts[n_mounts++] =
        (struct mount){path, strlen(path), makedev(major, minor), type && mounts_is_fuse(type + strlen(" - "))};
}

/* Under the lock. */
static void read_if_changed(void)
{
    struct pollfd asked = {.fd = table_fd, .events = POLLPRI};
    if (table_fd >= 0 && poll(&asked, 1, 0) <= 0)
        return;
    if (table_fd < 0)
        table_fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
    if (table_fd < 0)
        return;
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
    char *rest = text;
    while (n_mounts > 0)
        free(mounts[--n_mounts].path);
    for (char *line; (line = strsep(&rest, "\n")) != NULL;)
        add_mount(line);
    free(text);
}

/* Also those that others cover: they are the same for all who go there. */
static uint64_t find_passed(const char *path, bool only_fuse)
{
    char *normal = trusted_path_normalize(path);
    uint64_t bits = 0;
    pthread_mutex_lock(&lock);
    read_if_changed();
    for (size_t i = 0; i < n_mounts; i++) {
        const struct mount *mount = &mounts[i];
        bool is_passed = strncmp(normal, mount->path, mount->length) == 0 &&
                         (normal[mount->length] == '/' || normal[mount->length] == '\0');
        if (is_passed && (mount->is_fuse || !only_fuse))
            bits |= loop_lane_of(mount->device);
    }
    pthread_mutex_unlock(&lock);
    free(normal);
    return bits;
}

uint64_t mounts_find(const char *path)
{
    return find_passed(path, false);
}

uint64_t mounts_find_fuse(const char *path)
{
    return find_passed(path, true);
}

struct mounts_fuse *mounts_list_fuse(const uint64_t *sets, size_t n_sets, size_t *n)
{
    struct mounts_fuse *list = NULL;
    size_t room = 0;
    *n = 0;
    pthread_mutex_lock(&lock);
    read_if_changed();
    for (size_t i = 0; i < n_mounts; i++) {
        const struct mount *mount = &mounts[i];
        bool is_wanted = false, is_listed = false;
        for (size_t k = 0; k < n_sets; k++)
            is_wanted |= (loop_lane_of(mount->device) & ~sets[k]) == 0;
        for (size_t k = 0; k < *n; k++)
            is_listed |= list[k].device == mount->device;
        if (!mount->is_fuse || !is_wanted || is_listed)
            continue;
        ARRAY_RESERVE(list, *n, room);
        list[(*n)++] = (struct mounts_fuse){memory_copy_text(mount->length ? mount->path : "/"), mount->device};
    }
    pthread_mutex_unlock(&lock);
    return list;
}

void mounts_list_free(struct mounts_fuse *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(list[i].path);
    free(list);
}
