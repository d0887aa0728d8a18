/* Objects of buckets that commands read as they read files, with the credentials of the command's user. An object is fetched
 * into a file without a name in $TMPDIR, which takes its room as long as it is open. One thread. */
#ifndef CLI_BUCKET_OBJECTS_H
#define CLI_BUCKET_OBJECTS_H

#include "backend.h"

struct bucket_objects { /* zeroed except for `backend`: nothing is asked before the first call */
    struct backend *backend;
    struct stores *stores;
};

/* Names of what lies in a folder of a bucket, "gs://bucket/shards", and not deeper. Malloced, each and all. */
int bucket_objects_list(struct bucket_objects *objects, const char *folder, char ***names, size_t *n_names,
                        struct error *error);
/* *fd: a file with its bytes, the caller's to close. */
int bucket_objects_fetch(struct bucket_objects *objects, const char *reference, int *fd, uint32_t *crc32c,
                         struct error *error);
void bucket_objects_close(struct bucket_objects *objects);

#endif
