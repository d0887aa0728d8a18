/* The host folders that this daemon has written, so that the next one finds what it left: a small file for each in the state
 * folder. A cache: when it is lost, a folder is made whole and uploaded when it is opened. Blocks: helpers, one at a time for one folder. */
#ifndef ACTIVATIONS_HOST_REGISTRY_H
#define ACTIVATIONS_HOST_REGISTRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum { HOST_REGISTRY_MAX = 1 << 16 };

struct known_upload { /* what the last opening asked for; zeroed = nothing */
    char *reference;  /* where segments go; malloced */
    bool drop_local;  /* they go from here then */
};

struct known_host {
    char *path; /* of the store; malloced */
    uint32_t host;
    struct known_upload upload;
};

/* Durable when it returns 0. */
int host_registry_add(const char *state_dir, const struct known_host *host, struct error *error);
void host_registry_remove(const char *state_dir, const struct known_host *host);
/* All of them; what cannot be read is left out. The caller ends each and frees the list. */
struct known_host *host_registry_list(const char *state_dir, size_t *n_hosts);
/* False: it is not known. */
bool host_registry_find(const char *state_dir, const char *path, uint32_t host, struct known_host *found);
void known_host_fini(struct known_host *host);

#endif
