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

/* Also those that others cover: they are the same for all who go there. */
static uint64_t find_passed(const char *path, bool only_fuse)
{
    char *normal = trusted_path_normalize(path);
    uint64_t bits = 0;
    pthread_mutex_lock(&lock);
    read_if_changed();
    for (size_t i = 0; i < n_mounts; i++)
        if ((mounts[i].is_fuse || !only_fuse) && leads_through(normal, mounts[i].path, mounts[i].length))
            bits |= loop_lane_of(mounts[i].device);
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

static bool is_in_one(uint64_t bits, const uint64_t *sets, size_t n_sets)
{
    for (size_t i = 0; i < n_sets; i++)
        if ((bits & ~sets[i]) == 0)
            return true;
    return false;
}

static bool is_listed(const struct mounts_fuse *list, size_t n, uint64_t device)
{
    for (size_t i = 0; i < n; i++)
        if (list[i].device == device)
            return true;
    return false;
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
        if (!mount->is_fuse || is_listed(list, *n, mount->device) || !is_in_one(loop_lane_of(mount->device), sets, n_sets))
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
