/* MemTotal and MemAvailable of /proc/meminfo, then each memory cgroup from this process's own up to the mount of the hierarchy.
 * A host has cgroup v2, v1, or both (hybrid); "memory" in a line of /proc/self/cgroup says that v1 has the memory. In a
 * container the mount is often one group of the hierarchy. What cannot be read limits nothing. */
#include "base/host_headroom.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/kernel_text.h"

enum { PATH_ROOM = PATH_MAX + 256, SPARED_SHARE = 8, SHORT_SHARE = 16 };
#define UNLIMITED ((uint64_t)1 << 62)

static void lower(uint64_t *least, uint64_t bytes)
{
    *least = bytes < *least ? bytes : *least;
}

static void add_limit(struct host_headroom *headroom, uint64_t all, uint64_t available)
{
    uint64_t spared = all / SPARED_SHARE;
    lower(&headroom->limit_bytes, all);
    lower(&headroom->available_bytes, available);
    lower(&headroom->free_bytes, available > spared ? available - spared : 0);
    headroom->is_short = headroom->is_short || available < all / SHORT_SHARE;
}

static uint64_t read_number(const char *folder, const char *name)
{
    char path[PATH_ROOM];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return kernel_text_number(path);
}

static const struct version {
    const char *file_system;
    const char *limits[2], *used; /* the smaller limit counts */
    const char *file_pages[3];    /* of memory.stat, with those of the groups below */
} versions[] = {
    {"cgroup2", {"memory.max", "memory.high"}, "memory.current", {"inactive_file", "active_file", NULL}},
    {"cgroup",
     {"memory.limit_in_bytes", "memory.limit_in_bytes"},
     "memory.usage_in_bytes",
     {"total_inactive_file", "total_active_file", NULL}},
};

/* Pages of files count as used there, although the kernel gives them back first. A group of version 1 without a limit has a
 * very large one. */
static void add_group(struct host_headroom *headroom, const struct version *version, const char *folder)
{
    char path[PATH_ROOM];
    uint64_t first = read_number(folder, version->limits[0]), second = read_number(folder, version->limits[1]),
             all = first < second ? first : second;
    uint64_t used = read_number(folder, version->used);
    if (all >= UNLIMITED || used == UINT64_MAX)
        return;
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    uint64_t files = kernel_text_sum(path, version->file_pages);
    used = used > files ? used - files : 0;
    add_limit(headroom, all, all > used ? all - used : 0);
}

static bool has_word(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = list; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, word, n) == 0 && (!at[n] || at[n] == ','))
            return true;
    }
    return false;
}

/* "4:cpu,memory:/a/b", or "0::/a/b" when no line is like that. NULL = neither. */
static const struct version *find_group(const char *root, char *group, size_t room)
{
    char path[PATH_ROOM], line[PATH_ROOM];
    const struct version *found = NULL;
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "re");
    while (file && found != &versions[1] && fgets(line, sizeof line, file)) {
        char *controllers = strchr(line, ':'), *where = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!where)
            continue;
        *where = '\0';
        bool is_v1 = has_word(controllers + 1, "memory");
        if (!is_v1 && strcmp(line, "0:") != 0)
            continue;
        found = &versions[is_v1];
        where[1 + strcspn(where + 1, "\n")] = '\0';
        snprintf(group, room, "%s", strcmp(where + 1, "/") == 0 ? "" : where + 1);
    }
    if (file)
        fclose(file);
    return found;
}

/* "35 31 0:32 /docker/a /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory". */
static bool find_mount(const char *root, const struct version *version, char *top, char *mount_point)
{
    char path[PATH_ROOM], line[PATH_ROOM], type[32], options[256];
    bool is_found = false;
    snprintf(path, sizeof path, "%s/proc/self/mountinfo", root);
    FILE *file = fopen(path, "re");
    while (file && !is_found && fgets(line, sizeof line, file)) {
        const char *rest = strstr(line, " - ");
        is_found = rest && sscanf(rest, " - %31s %*s %255s", type, options) == 2 &&
                   strcmp(type, version->file_system) == 0 && (version == &versions[0] || has_word(options, "memory")) &&
                   sscanf(line, "%*s %*s %*s %4095s %4095s", top, mount_point) == 2;
    }
    if (file)
        fclose(file);
    return is_found;
}

static void add_groups(struct host_headroom *headroom, const char *root)
{
    char group[PATH_ROOM], top[PATH_MAX], mount_point[PATH_MAX], folder[3 * PATH_ROOM];
    const struct version *version = find_group(root, group, sizeof group);
    if (!version || !find_mount(root, version, top, mount_point))
        return;
    size_t n = strcmp(top, "/") == 0 ? 0 : strlen(top);
    bool is_below = strncmp(group, top, n) == 0 && (group[n] == '/' || !group[n]);
    size_t n_top = (size_t)snprintf(folder, sizeof folder, "%s%s", root, mount_point);
    snprintf(folder + n_top, sizeof folder - n_top, "%s", is_below ? group + n : "");
    char *slash;
    do {
        add_group(headroom, version, folder);
        slash = strrchr(folder + n_top, '/');
        if (slash)
            *slash = '\0';
    } while (slash);
}

struct host_headroom host_headroom_at(const char *root)
{
    static const char *const total[] = {"MemTotal:", NULL}, *const available[] = {"MemAvailable:", NULL};
    struct host_headroom headroom = {.limit_bytes = UINT64_MAX, .available_bytes = UINT64_MAX, .free_bytes = UINT64_MAX};
    char path[PATH_ROOM];
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    uint64_t total_bytes = kernel_text_sum(path, total) << 10;
    if (total_bytes > 0)
        add_limit(&headroom, total_bytes, kernel_text_sum(path, available) << 10);
    add_groups(&headroom, root);
    return headroom;
}
