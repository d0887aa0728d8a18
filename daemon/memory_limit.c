/* Reads /proc/meminfo and walks up the cgroup v2 tree from /proc/self/cgroup ("0::/path"). */
#include "memory_limit.h"

#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static uint64_t total_memory_bytes(void)
{
    uint64_t kib = 0;
    char line[256];
    FILE *file = fopen("/proc/meminfo", "re");
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "MemTotal: %" SCNu64 " kB", &kib) == 1)
            break;
    }
    if (file)
        fclose(file);
    return kib << 10;
}

/* UINT64_MAX when there is no limit ("max") or no such file. */
static uint64_t limit_of_cgroup(const char *cgroup)
{
    char path[PATH_MAX + 64];
    uint64_t bytes = UINT64_MAX;
    snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.max", cgroup);
    FILE *file = fopen(path, "re");
    if (!file)
        return UINT64_MAX;
    if (fscanf(file, "%" SCNu64, &bytes) != 1)
        bytes = UINT64_MAX;
    fclose(file);
    return bytes;
}

uint64_t memory_limit_bytes(void)
{
    uint64_t limit = total_memory_bytes();
    char cgroup[PATH_MAX] = "";
    char line[PATH_MAX + 16];
    FILE *file = fopen("/proc/self/cgroup", "re");
    while (file && fgets(line, sizeof line, file)) {
        if (strncmp(line, "0::", 3) == 0) {
            line[strcspn(line, "\n")] = '\0';
            snprintf(cgroup, sizeof cgroup, "%s", line + 3);
        }
    }
    if (file)
        fclose(file);
    while (true) {
        uint64_t here = limit_of_cgroup(cgroup);
        limit = here < limit ? here : limit;
        char *slash = strrchr(cgroup, '/');
        if (!slash)
            return limit;
        *slash = '\0';
    }
}
