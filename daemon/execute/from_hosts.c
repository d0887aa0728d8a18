/* See from_hosts.h. */
#include "execute/from_hosts.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"

/* Where the name is, or belongs. */
static size_t find_host(const struct from_hosts *hosts, const char *name)
{
    size_t lo = 0, hi = hosts->n;
    while (lo < hi) {
        size_t middle = lo + (hi - lo) / 2;
        if (strncmp(hosts->list[middle].name, name, FROM_HOSTS_NAME_CHARS - 1) < 0)
            lo = middle + 1;
        else
            hi = middle;
    }
    return lo;
}

static bool has_host(const struct from_hosts *hosts, size_t at, const char *name)
{
    return at < hosts->n && strncmp(hosts->list[at].name, name, FROM_HOSTS_NAME_CHARS - 1) == 0;
}

void from_hosts_add(struct from_hosts *hosts, const char *name, uint64_t bytes)
{
    size_t at = find_host(hosts, name);
    if (!has_host(hosts, at, name) && hosts->n >= FROM_HOSTS_MAX) {
        name = "(others)";
        at = find_host(hosts, name);
    }
    if (!has_host(hosts, at, name)) {
        ARRAY_RESERVE(hosts->list, hosts->n, hosts->room);
        memmove(&hosts->list[at + 1], &hosts->list[at], (hosts->n++ - at) * sizeof *hosts->list);
        snprintf(hosts->list[at].name, sizeof hosts->list[at].name, "%s", name);
        hosts->list[at].bytes = 0;
    }
    hosts->list[at].bytes += bytes;
}
