/* A store of activations in a bucket, with the credentials of whoever runs the command: listed, read, and written where several
 * write. Its documents are read with sink_document_read(), so that a write can name the version that was read. */
#ifndef CLI_BUCKET_STORE_H
#define CLI_BUCKET_STORE_H

#include "activations_hosts.h"
#include "backend.h"
#include "sink/sink_document.h"
#include "source/source.h"

struct bucket_store {
    char *reference; /* "gs://bucket/acts" */
    struct backend *backend;
    struct stores *stores;
    struct source *source; /* once its hosts were asked for */
    char **names;          /* of what lies in the folders of hosts, "host_003/manifest.json"; sorted */
    size_t n_names;
};

/* Asks nobody yet. may_write: with credentials that may. Signals only raise a flag from here on. */
int bucket_store_open(struct bucket_store *store, struct backend *backend, const char *reference, bool may_write,
                      struct error *error);
void bucket_store_close(struct bucket_store *store); /* accepts a zeroed one */

char *bucket_store_below(const struct bucket_store *store, const char *name); /* malloced */

/* As stored_hosts_open(): every segment that a manifest lists counts. */
int bucket_store_hosts(struct bucket_store *store, struct stored_hosts *hosts,
                       int (*take)(void *data, const struct stored_host *host, uint32_t sample, struct error *error),
                       void *data, struct error *error);
bool bucket_store_has(const struct bucket_store *store, const char *name); /* a name of the list */

/* *is_there false: it is not. Any thread. */
int bucket_store_read(const struct bucket_store *store, const char *name, uint64_t max_bytes, struct sink_document *document,
                      bool *is_there, struct error *error);
/* In place of that version, NULL = of nothing. 1 = it is there, 0 = somebody else was quicker. Without `needs_condition` stores
 * that know no conditions are written to all the same. */
int bucket_store_write(const struct bucket_store *store, const char *name, const char *text, size_t length,
                       const char *version, bool needs_condition, struct error *error);

#endif
