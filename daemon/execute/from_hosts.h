/* How many bytes came from which other host: a table by name. Of an item its worker's, of a run under the engine's lock. */
#ifndef EXECUTE_FROM_HOSTS_H
#define EXECUTE_FROM_HOSTS_H

#include <stddef.h>
#include <stdint.h>

enum {
    FROM_HOSTS_NAME_CHARS = 64, /* longer names are cut */
    FROM_HOSTS_MAX = 1024,      /* further hosts are counted together, as "(others)", which no host is called */
};

struct from_host {
    char name[FROM_HOSTS_NAME_CHARS];
    uint64_t bytes;
};

struct from_hosts {
    struct from_host *list; /* sorted by name; freed by the owner */
    size_t n, room;
};

void from_hosts_add(struct from_hosts *hosts, const char *name, uint64_t bytes);

#endif
