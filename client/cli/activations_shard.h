/* A sealed segment written as a shard of pickled arrays. */
#ifndef CLI_ACTIVATIONS_SHARD_H
#define CLI_ACTIVATIONS_SHARD_H

#include "activations_commands.h"
#include "activations_hosts.h"
#include "base/activation_name.h"
#include "base/json.h"

/* The shards of a host so far. */
struct written_shards {
    const char *folder;
    int folder_fd;                /* opened once: who may write around it could put another one there */
    struct json_writer described; /* one after the other */
    size_t n;
    uint64_t n_arrays;
};

/* Held against its manifest before anything of it is written. */
int activations_shard_write(struct activations_run *run, const struct stored_host *host,
                            const struct manifest_segment *segment, struct written_shards *written, struct error *error);
void activations_shard_name(size_t number, char name[ACTIVATION_NAME_CHARS]); /* from 1 */

#endif
