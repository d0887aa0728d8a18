/* metadata.json beside pickle shards, in both forms that there are: what the programs write, and what their description says they do.
 * Pure. */
#ifndef CLI_SHARD_METADATA_H
#define CLI_SHARD_METADATA_H

#include <stddef.h>
#include <stdint.h>

#include "base/digest.h"
#include "base/json.h"

struct told_shard { /* 0 and "" = nothing is said of it */
    char *name;     /* of its file */
    uint64_t arrays, samples;
    char sha256[DIGEST_HEX_CHARS + 1]; /* of the file */
};

struct shard_metadata { /* zeroed = nothing is said */
    uint64_t shards, arrays, samples;
    struct told_shard *list;
    size_t n_list, capacity;
    char complaint[JSON_ERROR_CHARS]; /* "" = all of it could be read */
};

/* As far as it can be read: what is wrong in it is left out, and complained about where it is no JSON. */
void shard_metadata_parse(struct shard_metadata *metadata, const char *text, size_t length);
void shard_metadata_fini(struct shard_metadata *metadata);

#endif
