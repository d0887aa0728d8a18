/* MemTotal and MemAvailable of /proc/meminfo; memory.max, memory.high, memory.current and memory.stat of each group of cgroup
 * v2, whose path is in /proc/self/cgroup ("0::/path"). What cannot be read limits nothing. */
#include "device/host_headroom.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/kernel_text.h"

enum { PATH_ROOM = PATH_MAX + 256, SPARED_SHARE = 8, SHORT_SHARE = 16 };

static void add_limit(struct host_headroom *headroom, uint64_t all, uint64_t available)
{
    uint64_t spared = all / SPARED_SHARE, free_bytes = available > spared ? available - spared : 0;
    headroom->free_bytes = free_bytes < headroom->free_bytes ? free_bytes : headroom->free_bytes;
    headroom->is_short = headroom->is_short || available < all / SHORT_SHARE;
}

static uint64_t read_number(const char *folder, const char *name)
{
    char path[PATH_ROOM];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return kernel_text_number(path);
}

/* Pages of files count as used there, although the kernel gives them back first. */
static void add_group(struct host_headroom *headroom, const char *folder)
{
    static const char *const file_pages[] = {"inactive_file", "active_file", NULL};
    char path[PATH_ROOM];
    uint64_t max = read_number(folder, "memory.max"), high = read_number(folder, "memory.high"),
             all = max < high ? max : high;
    uint64_t used = read_number(folder, "memory.current");
    if (all == UINT64_MAX || used == UINT64_MAX)
        return;
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    uint64_t files = kernel_text_sum(path, file_pages);
    used = used > files ? used - files : 0;
    add_limit(headroom, all, all > used ? all - used : 0);
}

struct host_headroom host_headroom_at(const char *root)
{
    static const char *const total[] = {"MemTotal:", NULL}, *const available[] = {"MemAvailable:", NULL};
    struct host_headroom headroom = {.free_bytes = UINT64_MAX};
    char path[PATH_ROOM], group[PATH_MAX];
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    uint64_t total_bytes = kernel_text_sum(path, total) << 10;
    if (total_bytes > 0)
        add_limit(&headroom, total_bytes, kernel_text_sum(path, available) << 10);
    char *slash = kernel_text_cgroup(root, group, sizeof group) ? group : NULL;
    while (slash) {
        snprintf(path, sizeof path, "%s/sys/fs/cgroup%s", root, group);
        add_group(&headroom, path);
        slash = strrchr(group, '/');
        if (slash)
            *slash = '\0';
    }
    return headroom;
}
