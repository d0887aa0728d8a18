/* A store of activations in a bucket, with the credentials of the command's user: listed, read, and written where several
 * write. Its documents are read with sink_document_read(), so that a write can name the version that was read. */
#ifndef CLI_BUCKET_STORE_H
#define CLI_BUCKET_STORE_H

#include "activations/host_manifest.h"
#include "backend.h"
#include "base/activation_name.h"
#include "sink/sink_document.h"
#include "source/source.h"

/* The hosts of a store's folder as they lie there, read with the caller's own rights. */
struct stored_host {
    uint32_t host;
    int fd; /* its folder; -1 in a bucket */
    char name[ACTIVATION_NAME_CHARS];
    struct host_manifest manifest;
    bool has_manifest;
    uint32_t last_sample;
    uint64_t n_samples, bytes; /* bytes: of segments that are there */
};

typedef int stored_sample_fn(void *data, const struct stored_host *host, uint32_t sample, struct error *error);

struct sample_taker {
    struct stored_host *host;
    stored_sample_fn *take; /* may be NULL */
    void *data;
};

struct stored_hosts {
    struct stored_host *list; /* ascending */
    size_t n;
    int fd; /* the store's folder; -1 in a bucket */
};

/* `take` (may be NULL) is told of each sample of each host, in order. NOT_FOUND when there is no such folder. */
int stored_hosts_open(struct stored_hosts *hosts, const char *path, stored_sample_fn *take, void *data, struct error *error);
void stored_hosts_close(struct stored_hosts *hosts); /* also after a failed open */

struct bucket_store {
    char *reference; /* "gs://bucket/acts" */
    struct backend *backend;
    struct stores *stores;
    struct source *source; /* once its hosts were asked for */
    char **names;          /* of what lies in the folders of hosts, "host_003/manifest.json"; sorted */
    size_t n_names;
};

/* Asks no server yet. may_write: with credentials that may. Signals only raise a flag from here on. */
int bucket_store_open(struct bucket_store *store, struct backend *backend, const char *reference, bool may_write,
                      struct error *error);
void bucket_store_close(struct bucket_store *store); /* accepts a zeroed one */

char *bucket_store_below(const struct bucket_store *store, const char *name); /* malloced */

/* As stored_hosts_open(): every segment that a manifest lists counts. */
int bucket_store_hosts(struct bucket_store *store, struct stored_hosts *hosts, stored_sample_fn *take, void *data,
                       struct error *error);
bool bucket_store_has(const struct bucket_store *store, const char *name); /* a name of the list */

/* *is_there false: it is not. Any thread. */
int bucket_store_read(const struct bucket_store *store, const char *name, uint64_t max_bytes, struct sink_document *document,
                      bool *is_there, struct error *error);
/* In place of that version, NULL = of nothing. 1 = it is there, 0 = another writer was quicker. Without `needs_condition`
 * stores that know no conditions are written to all the same. */
int bucket_store_write(const struct bucket_store *store, const char *name, const char *text, size_t length,
                       const char *version, bool needs_condition, struct error *error);

#endif
