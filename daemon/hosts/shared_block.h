/* Which bytes hosts share, and who reads them. A shared file is cut into blocks, and each block has one owner among the live
 * hosts of a domain: the host with the highest score (rendezvous hashing, Thaler and Ravishankar 1998). Hosts that know
 * the same others agree without messages, and a host that goes moves only its own blocks. Hosts that disagree cost one more
 * read of a block, never a wrong byte. Pure; any thread. */
#ifndef HOSTS_SHARED_BLOCK_H
#define HOSTS_SHARED_BLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "source/source.h"

enum {
    SHARED_BLOCK_BYTES = 4 << 20,
    SHARED_PIECE_BYTES = 256 << 10, /* an owner reads whole pieces of its block: what is asked of it, and little more */
    SHARED_ID_CHARS = 33,
};

struct shared_file { /* one version of one file, the same on every host */
    char id[SHARED_ID_CHARS];
    uint64_t hash; /* of the id */
};

/* False with the reason (static): this host's alone, or a source that cannot tell versions apart. */
bool shared_file_of(const struct source *source, size_t file, struct shared_file *shared, const char **reason);

uint64_t shared_host_hash(const char *name);
/* Of a host in the election for a block: the highest one owns it. */
uint64_t shared_score(const struct shared_file *file, uint64_t block, uint64_t host_hash);

#endif
