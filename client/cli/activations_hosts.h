/* The hosts of a store's folder as they lie there, read with the caller's own rights. */
#ifndef CLI_ACTIVATIONS_HOSTS_H
#define CLI_ACTIVATIONS_HOSTS_H

#include "activations/host_manifest.h"
#include "base/activation_name.h"

struct stored_host {
    uint32_t host;
    int fd; /* its folder; -1 in a bucket */
    char name[ACTIVATION_NAME_CHARS];
    struct host_manifest manifest;
    bool has_manifest;
    uint32_t last_sample;
    uint64_t n_samples, bytes; /* bytes: of segments that are there */
};

struct sample_taker {
    struct stored_host *host;
    int (*take)(void *data, const struct stored_host *host, uint32_t sample, struct error *error); /* may be NULL */
    void *data;
};

struct stored_hosts {
    struct stored_host *list; /* ascending */
    size_t n;
    int fd; /* the store's folder; -1 in a bucket */
};

/* `take` (may be NULL) is told of each sample of each host, in order. NOT_FOUND when there is no such folder. */
int stored_hosts_open(struct stored_hosts *hosts, const char *path,
                      int (*take)(void *data, const struct stored_host *host, uint32_t sample, struct error *error),
                      void *data, struct error *error);
/* The manifest of a host that has none yet. DATA_LOSS. */
int stored_host_parse(struct stored_host *host, const char *text, size_t length, struct sample_taker *taker,
                      struct error *error);
int stored_hosts_fail_none(const char *store, struct error *error); /* NOT_FOUND: it is no store */
void stored_hosts_close(struct stored_hosts *hosts);                /* also after a failed open */

#endif
