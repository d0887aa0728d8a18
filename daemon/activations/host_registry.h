/* The host folders that this daemon has written, so that the next one finds what it left: a small file for each in the state
 * folder. Losing them costs nothing but that: whoever opens a host makes it whole. Blocks: helpers, one at a time for one folder. */
#ifndef ACTIVATIONS_HOST_REGISTRY_H
#define ACTIVATIONS_HOST_REGISTRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

enum { HOST_REGISTRY_MAX = 1 << 16 };

struct known_upload { /* what the last opening asked for; zeroed = nothing */
    char *reference;  /* where segments go; malloced */
    uid_t uid;        /* who asked */
    bool drop_local;  /* they go from here then */
};

struct known_host {
    char *path; /* of the store; malloced */
    uint32_t host;
    uid_t uid;      /* whose store it is */
    bool is_shared; /* the members' of limits.shared_group */
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
