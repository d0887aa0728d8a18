/* /proc/self/mountinfo stays open: poll() says when it has changed, and only then it is read again. */
#include "source/disk/mounts.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "source/disk/trusted_path.h"

enum { READ_BYTES = 64 << 10 };

struct mount {
    char *path; /* without a slash at the end: "" is the root */
    size_t length;
    uint64_t device;
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

static void add_mount(const char *line)
{
    unsigned major, minor;
    int at = 0;
    if (sscanf(line, "%*d %*d %u:%u %*s %n", &major, &minor, &at) < 2 || at == 0)
        return;
    char *path = memory_print("%.*s", (int)strcspn(line + at, " "), line + at);
    unescape(path);
    if (strcmp(path, "/") == 0)
        *path = '\0';
    ARRAY_RESERVE(mounts, n_mounts, mounts_room);
    mounts[n_mounts++] = (struct mount){path, strlen(path), (uint64_t)major << 32 | minor};
}

uint64_t mounts_find(const char *path)
{
    char *normal = trusted_path_normalize(path);
    pthread_mutex_lock(&lock);
    if (has_changed()) {
        char *text = read_table(), *rest = text;
        while (n_mounts > 0)
            free(mounts[--n_mounts].path);
        for (char *line; (line = strsep(&rest, "\n")) != NULL;)
            add_mount(line);
        free(text);
    }
    /* also those that others cover: they are the same for all who go there */
    uint64_t bits = 0;
    for (size_t i = 0; i < n_mounts; i++) {
        const struct mount *mount = &mounts[i];
        bool is_beginning = strncmp(normal, mount->path, mount->length) == 0 &&
                            (normal[mount->length] == '/' || normal[mount->length] == '\0');
        bits |= is_beginning ? mounts_bits_of(mount->device) : 0;
    }
    pthread_mutex_unlock(&lock);
    free(normal);
    return bits;
}
