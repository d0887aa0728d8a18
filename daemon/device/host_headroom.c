/* MemTotal and MemAvailable of /proc/meminfo; memory.max, memory.high, memory.current and memory.stat of each group of cgroup
 * v2, whose path is in /proc/self/cgroup ("0::/path"). What cannot be read limits nothing. */
#include "device/host_headroom.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { PATH_ROOM = PATH_MAX + 256, SPARED_SHARE = 8, SHORT_SHARE = 16 };

static void add_limit(struct host_headroom *headroom, uint64_t all, uint64_t available)
{
    uint64_t spared = all / SPARED_SHARE, free_bytes = available > spared ? available - spared : 0;
    headroom->free_bytes = free_bytes < headroom->free_bytes ? free_bytes : headroom->free_bytes;
    headroom->is_short = headroom->is_short || available < all / SHORT_SHARE;
}

/* Sum of the values of lines that begin with one of these names. */
static uint64_t sum_lines(const char *path, const char *const *names)
{
    char line[256], name[64];
    uint64_t value, sum = 0;
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "%63s %" SCNu64, name, &value) != 2)
            continue;
        for (size_t i = 0; names[i]; i++)
            sum += strcmp(name, names[i]) == 0 ? value : 0;
    }
    if (file)
        fclose(file);
    return sum;
}

/* UINT64_MAX for "max", and for a file that is not there. */
static uint64_t read_limit(const char *folder, const char *name)
{
    char path[PATH_ROOM];
    uint64_t value = UINT64_MAX;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "re");
    if (file && fscanf(file, "%" SCNu64, &value) != 1)
        value = UINT64_MAX;
    if (file)
        fclose(file);
    return value;
}

/* Pages of files count as used there, although the kernel gives them back first. */
static void add_group(struct host_headroom *headroom, const char *folder)
{
    static const char *const file_pages[] = {"inactive_file", "active_file", NULL};
    char path[PATH_ROOM];
    uint64_t max = read_limit(folder, "memory.max"), high = read_limit(folder, "memory.high"), all = max < high ? max : high;
    uint64_t used = read_limit(folder, "memory.current");
    if (all == UINT64_MAX || used == UINT64_MAX)
        return;
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    uint64_t files = sum_lines(path, file_pages);
    used = used > files ? used - files : 0;
    add_limit(headroom, all, all > used ? all - used : 0);
}

static bool find_group(const char *root, char *group, size_t room)
{
    char path[PATH_ROOM], line[PATH_MAX + 16];
    bool is_found = false;
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "re");
    while (file && !is_found && fgets(line, sizeof line, file)) {
        is_found = strncmp(line, "0::", 3) == 0;
        line[strcspn(line, "\n")] = '\0';
        if (is_found)
            snprintf(group, room, "%s", line + 3);
    }
    if (file)
        fclose(file);
    return is_found;
}

struct host_headroom host_headroom_at(const char *root)
{
    static const char *const total[] = {"MemTotal:", NULL}, *const available[] = {"MemAvailable:", NULL};
    struct host_headroom headroom = {.free_bytes = UINT64_MAX};
    char path[PATH_ROOM], group[PATH_MAX];
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    uint64_t total_bytes = sum_lines(path, total) << 10;
    if (total_bytes > 0)
        add_limit(&headroom, total_bytes, sum_lines(path, available) << 10);
    char *slash = find_group(root, group, sizeof group) ? group : NULL;
    while (slash) {
        snprintf(path, sizeof path, "%s/sys/fs/cgroup%s", root, group);
        add_group(&headroom, path);
        slash = strrchr(group, '/');
        if (slash)
            *slash = '\0';
    }
    return headroom;
}
