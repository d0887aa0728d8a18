/* The hosts of a store, by their folders and manifests as they are on the disk. Blocks: helpers. */
#ifndef ACTIVATIONS_STORE_LISTING_H
#define ACTIVATIONS_STORE_LISTING_H

#include "activations/host_folder.h"

struct listed_host {
    uint32_t host;
    struct host_resume resume;
    uint64_t n_uploaded; /* segments that a bucket was proven to hold */
};

/* Ascending; metadata_free(). NOT_FOUND without such a folder, DATA_LOSS for a manifest that is damaged. */
int store_list_hosts(const struct store_roots *roots, const char *path, struct listed_host **hosts, size_t *n_hosts,
                     struct error *error);

#endif
