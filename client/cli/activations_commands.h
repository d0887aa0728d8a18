/* What `tensorcast activations` does, a function for each command. Each prints its result and returns 0, or -1. Folders and buckets
 * are read and written with the caller's own rights and credentials; what is appended goes through the daemon. */
#ifndef CLI_ACTIVATIONS_COMMANDS_H
#define CLI_ACTIVATIONS_COMMANDS_H

#include "args.h"
#include "base/json.h"
#include "bucket_objects.h"
#include "client/client.h"

struct bucket_store;

struct activations_run {
    const struct args *args;
    struct tc_client *client; /* nothing is asked of it before the first call */
    char *path;               /* of the store, absolute; of one in a bucket its reference; of partition and estimate NULL */
    struct bucket_store *bucket;   /* NULL = a folder */
    struct bucket_objects objects; /* shards and segments that lie in buckets */
    struct arena arena;
};

int activations_status(struct activations_run *run, struct error *error);
int activations_verify(struct activations_run *run, struct error *error);
int activations_merge(struct activations_run *run, struct error *error);
int activations_estimate(struct activations_run *run, struct error *error);
int activations_partition(struct activations_run *run, struct error *error);
int activations_claim(struct activations_run *run, struct error *error);
int activations_import(struct activations_run *run, struct error *error);
int activations_export(struct activations_run *run, struct error *error);
int activations_cat(struct activations_run *run, struct error *error);

/* Prints and frees the object. */
void activations_print(struct json_writer *json);

#endif
